"""Builds the simulated device, runs scripts with it in child processes, and talks to it there."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

_SOURCES = Path(__file__).parent / "simulated_npu"
_SCENARIOS = Path(__file__).parent / "npu_scenarios.py"
_LIBRARY = "libsimulated_npu.so"
#: A line of a scenario's output that holds its answer.
ANSWER = "scenario "


def why_not() -> str | None:
    """Why the device cannot be built here, or None."""
    import paddle

    if not sys.platform.startswith("linux"):
        return "custom devices are built for Linux only"
    if shutil.which("g++") is None:
        return "no C++ compiler (g++)"
    if not (Path(paddle.sysconfig.get_include()) / "paddle/phi/backends/device_ext.h").exists():
        return "this build of Paddle ships no headers"
    return None


def build(folder: Path) -> Path:
    """Compiles the plug-in into ``folder``, which then serves as CUSTOM_DEVICE_ROOT."""
    import paddle

    include = Path(paddle.sysconfig.get_include())
    command = [
        *("g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w"),
        *(f"-I{include}", f"-I{include / 'third_party'}"),
        *("-DPADDLE_WITH_CUSTOM_DEVICE", "-DPADDLE_WITH_CUSTOM_KERNEL"),
        *map(str, sorted(_SOURCES.glob("*.cc"))),
        *("-o", str(folder / _LIBRARY)),
        str(_core_library(Path(paddle.__file__).parent)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def _core_library(paddle_folder: Path) -> Path:
    """What has PD_RegisterPhiKernel: a library of its own since 3.1."""
    candidates = (paddle_folder / "libs/libphi_core.so", paddle_folder / "base/libpaddle.so")
    return next(path for path in candidates if path.exists())


def run_scenario(
    root: Path, name: str, *, timeout: float = 600.0, **environment: str
) -> dict[str, Any]:
    """What scenario ``name`` of npu_scenarios.py answers, run in a process with the device."""
    done = subprocess.run(
        [sys.executable, str(_SCENARIOS), name],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={
            **os.environ,
            "CUSTOM_DEVICE_ROOT": str(root),
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "GLOG_minloglevel": "3",
            **environment,
        },
    )
    for line in done.stdout.splitlines():
        if line.startswith(ANSWER):
            answer: dict[str, Any] = json.loads(line[len(ANSWER) :])
            return answer
    raise AssertionError(f"{name}: exit status {done.returncode}\n{done.stderr[-4000:]}")


class SimulatedNpu:
    """The device as seen from inside a scenario: its counters, and what is to go wrong."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.path.join(os.environ["CUSTOM_DEVICE_ROOT"], _LIBRARY))
        for name in ("count", "bytes", "live", "peak"):
            getattr(self._library, f"simulated_npu_{name}").restype = ctypes.c_long
        for name in ("fail", "abort"):
            function = getattr(self._library, f"simulated_npu_{name}")
            function.argtypes = [ctypes.c_char_p, ctypes.c_long]

    def count(self, event: str) -> int:
        """How often ``event`` has happened, e.g. ``"h2d"``, ``"kernel"``."""
        return int(self._library.simulated_npu_count(event.encode()))

    def nbytes(self, event: str) -> int:
        """Bytes of all of them."""
        return int(self._library.simulated_npu_bytes(event.encode()))

    def live(self, device: int = 0) -> int:
        """Bytes allocated on a device."""
        return int(self._library.simulated_npu_live(device))

    def fail(self, event: str, after: int = 0) -> None:
        """Lets ``event`` fail after it has succeeded ``after`` more times; -1: never."""
        self._library.simulated_npu_fail(event.encode(), after)
