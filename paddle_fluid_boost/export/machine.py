"""The machine in words, as a bundle's card names it, and as the key of what was measured on it."""

from __future__ import annotations

import platform

from ..engines.native import runtime
from ..hardware.cores import usable_cores
from ..hardware.processor import processor_name
from ..options import options


def machine() -> str:
    """Processor and architecture, e.g. ``"AMD EPYC 9B45, x86_64"``."""
    return f"{processor_name()}, {platform.machine()}"


def tuning_key() -> str:
    """What a measured choice of the native engine holds for: processor, threads, oneDNN."""
    version = ".".join(map(str, runtime.module().onednn_version()))
    return f"{machine()}, {options.threads or usable_cores()} threads, oneDNN {version}"
