"""GPUs and NPUs: Paddle's own answers first, then those of the makers' tools.

The order is that of harm.  First questions that any build of Paddle answers with yes or no, then,
only on a build for GPUs, how many there are.  What may hang or crash with a broken driver (NVML,
``npu-smi``) is asked in a child process with a time limit.  ``paddle.device.cuda.current_stream()``
is never asked: it kills the process on a build without CUDA.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .modules import installed, python


@dataclass(frozen=True)
class Gpu:
    """capability: NVIDIA's compute capability, e.g. (8, 6); None where it is not told.
    memory: bytes.  usable: whether this build of Paddle can compute on it."""

    index: int
    name: str
    capability: tuple[int, int] | None
    memory: int | None
    usable: bool
    driver: str = ""
    celsius: float | None = None


@dataclass(frozen=True)
class Npu:
    """An Ascend chip.  kind: Paddle's name of the device, "" where Paddle does not have it.
    name: of the chip, e.g. ``"910B3"``.  memory: bytes."""

    index: int
    kind: str
    name: str
    memory: int | None = None
    celsius: float | None = None
    health: str = ""

    @property
    def usable(self) -> bool:
        """Whether this process can compute on it."""
        return bool(self.kind)


#: Runs a command within so many seconds and returns what it printed; raises OSError or
#: subprocess.SubprocessError where it cannot.
Ask = Callable[[Sequence[str], float], str]


def run_child(command: Sequence[str], seconds: float) -> str:
    """What ``command`` prints; it is ended after ``seconds``."""
    done = subprocess.run(
        command,
        timeout=seconds,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return done.stdout


_NVML = """
import json, pynvml as n
n.nvmlInit()
text = lambda value: value.decode() if isinstance(value, bytes) else value
found = []
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    try:
        heat = n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)
    except n.NVMLError:
        heat = None
    found.append([text(n.nvmlDeviceGetName(h)), n.nvmlDeviceGetCudaComputeCapability(h),
        n.nvmlDeviceGetMemoryInfo(h).total, text(n.nvmlSystemGetDriverVersion()), heat])
print(json.dumps(found))
"""


def find_gpus(paddle: Any, seconds: float, notes: list[str], ask: Ask = run_child) -> list[Gpu]:
    """The GPUs that Paddle can use, else those that are there all the same.

    Args:
        paddle: the module, None where it is not installed.
        seconds: for a child process.
        notes: takes what could not be asked, and why.
    """
    ours = _gpus_of_paddle(paddle, notes)
    interpreter = python()
    if interpreter is None or not installed("pynvml"):
        return ours
    try:
        answer = ask([interpreter, "-c", _NVML], seconds)
        theirs = [
            Gpu(i, str(name), (int(cc[0]), int(cc[1])), int(memory), False, str(driver), heat)
            for i, (name, cc, memory, driver, heat) in enumerate(json.loads(answer))
        ]
    except (OSError, subprocess.SubprocessError, *_NO_ANSWER) as error:
        notes.append(f"NVML gave no answer: {_why(error)}")
        return ours
    if not ours:
        return theirs
    if len(ours) == len(theirs):  # else CUDA_VISIBLE_DEVICES hides some, and numbers do not match
        return [
            replace(mine, driver=other.driver, celsius=other.celsius)
            for mine, other in zip(ours, theirs)
        ]
    return ours


def _gpus_of_paddle(paddle: Any, notes: list[str]) -> list[Gpu]:
    if not getattr(paddle, "is_compiled_with_cuda", bool)():
        return []  # also while Paddle is being imported
    found = []
    try:
        for index in range(paddle.device.cuda.device_count()):
            known = paddle.device.cuda.get_device_properties(index)
            capability = (int(known.major), int(known.minor))
            found.append(Gpu(index, str(known.name), capability, int(known.total_memory), True))
    except (RuntimeError, OSError, AttributeError, *_NO_ANSWER) as error:  # a broken driver
        notes.append(f"Paddle cannot list its GPUs: {_why(error)}")
    return found


def find_npus(paddle: Any, seconds: float, notes: list[str], ask: Ask = run_child) -> list[Npu]:
    """Custom devices registered with Paddle, with what ``npu-smi`` knows of them; else the chips
    that it alone knows."""
    ours = _npus_of_paddle(paddle, notes)
    tool = shutil.which("npu-smi")
    if tool is None:
        return ours
    try:
        theirs = parse_npu_smi(ask([tool, "info"], seconds))
    except (OSError, subprocess.SubprocessError, *_NO_ANSWER) as error:
        notes.append(f"npu-smi gave no answer: {_why(error)}")
        return ours
    if len(ours) == len(theirs):
        return [
            replace(other, index=mine.index, kind=mine.kind) for mine, other in zip(ours, theirs)
        ]
    return ours or theirs


def _npus_of_paddle(paddle: Any, notes: list[str]) -> list[Npu]:
    listed = getattr(getattr(paddle, "device", None), "get_available_custom_device", None)
    try:
        places = () if listed is None else listed() or ()
    except (RuntimeError, OSError) as error:  # a broken plug-in
        notes.append(f"Paddle cannot list its custom devices: {_why(error)}")
        return []
    found = []
    for place in places:  # "npu:0", or "npu" where there is one
        kind, _, index = str(place).partition(":")
        found.append(Npu(int(index) if index.isdigit() else 0, kind, kind))
    return found


#: What reading an answer raises that is of another form than expected.
_NO_ANSWER = (ValueError, TypeError, LookupError, ArithmeticError)
_CHIP = re.compile(r"\|\s*\d+\s+(\S+)\s*\|\s*(\w+)\s*\|\s*(\S+)\s+(\S+)")
_BUS = re.compile(r"\|[^|]*\|\s*[0-9A-Fa-f]{4}:[^|]*\|.*?(\d+)\s*\|\s*$")


def parse_npu_smi(table: str) -> list[Npu]:
    """The chips in what ``npu-smi info`` prints: two lines for each, the second with its bus."""
    found: list[Npu] = []
    chip = None
    for line in table.splitlines():
        bus = _BUS.match(line)
        if bus and chip:
            heat = float(chip[4]) if re.fullmatch(r"\d+(\.\d+)?", chip[4]) else None
            memory = int(bus[1]) << 20  # of the last column, "used / total" in MB
            found.append(Npu(len(found), "", chip[1], memory or None, heat, chip[2]))
        chip = None if bus else _CHIP.match(line)
    return found


def _why(error: Exception) -> str:
    """One line about what went wrong with a question."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"nothing within {error.timeout:.2g} s"
    said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
    return said[-1] if said else type(error).__name__
