"""What every entry depends on besides the program: code, Paddle, machine and options."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

from ..hardware.cores import usable_cores
from ..hardware.processor import processor_name
from ..options import options

#: Folders of this package whose code decides what is built and how fast it is.
_ROOMS = ("engines", "passes", "ir", "memory", "hardware")
#: Environment variables that change what oneDNN, OpenMP and Paddle do start like this.
_VARIABLES = ("DNNL_", "ONEDNN_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "FLAGS_", "GOMP_")
#: Options that change which candidates there are, or how one is judged.
_OPTIONS = ("engines", "device", "threads", "rtol", "probe_in_child", "onednn_cache_capacity")


def surroundings() -> dict[str, Any]:
    """The parts by name; equal in two processes exactly if what one has learned holds for both."""
    import paddle

    return {
        "package": _package_version(),
        "sources": source_hash(),
        "paddle": f"{paddle.__version__} {getattr(paddle.version, 'commit', '')}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": {
            "processor": _processor(),
            "architecture": platform.machine(),
            "cores": [usable_cores(), os.cpu_count()],
        },
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)
        },
        "options": {name: getattr(options, name) for name in _OPTIONS},
    }


def key(*parts: Any) -> str:
    """32 hexadecimal digits for anything that JSON can write."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.cache
def source_hash(root: Path | None = None) -> str:
    """A digest of the code that builds and runs compiled versions, extensions included."""
    root = root or Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    files = [file for room in _ROOMS for file in (root / room).rglob("*.py")]
    for file in sorted([*files, *root.glob("*.so"), *root.glob("*.pyd")]):
        digest.update(f"{file.relative_to(root)}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _package_version() -> str:
    import paddle_fluid_boost

    return paddle_fluid_boost.__version__


@functools.cache
def _processor() -> tuple[str, str]:
    """Name and instruction sets, read once: with hundreds of cores the system takes its time."""
    return processor_name(), _processor_features()


def _processor_features() -> str:
    """A digest of the instruction sets; "" where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return ""
    for line in text.splitlines():
        name, _, features = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return hashlib.sha256(" ".join(sorted(features.split())).encode()).hexdigest()[:16]
    return ""
