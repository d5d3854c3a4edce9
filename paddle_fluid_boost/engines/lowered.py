"""What Paddle makes of a program on a device: which ops run there, and what is copied.

Paddle chooses a kernel for every op when it lowers a program.  An op without a kernel for the
device falls back to the CPU; what it reads is copied to the host before it, and back for the next
op that runs on the device.  Ops behind a fallback stay on the CPU as long as all they read is
there, whether the device has a kernel or not.  The lowered program, which Paddle prints, says all
this exactly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

_OP = re.compile(
    r'^\s*\((?P<results>[^)]*)\) = "(?P<op>[^"]+)"(?: \[id:\d+\])? \((?P<operands>[^)]*)\)'
)
_KERNEL_NAME = re.compile(r'kernel_name:"(\w+)"')
_KERNEL_KEY = re.compile(r"kernel_key:<backend:(\w+)\|layout:[^|]*\|dtype:(\w+)>")
_RESULT_TYPE = re.compile(r"-> \w*tensor<(?P<dims>(?:-?\d+x)*)(?P<dtype>\w+)>")
_VALUE = re.compile(r"%\d+")
_START = "IR after lowering = {"
_BYTES = {
    "f64": 8,
    "i64": 8,
    "c64": 8,
    "c128": 16,
    "f32": 4,
    "i32": 4,
    "f16": 2,
    "bf16": 2,
    "i16": 2,
}
#: Ops that compute nothing: they name data or hand it out.
_NO_WORK = frozenset({"data", "feed", "fetch", "shadow_feed", "share_data", "full_int_array"})


@dataclass(frozen=True)
class LoweredOp:
    """One op with the kernel that Paddle chose.

    backend: ``"CPU"``, or the kind of the device (``"npu"``, ``"GPU"``).  dtype: numpy's name.
    nbytes: of its first result.  results / operands: names of values.
    """

    kernel: str
    backend: str
    dtype: str
    nbytes: int
    results: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def copies(self) -> str:
        """``"d2h"`` or ``"h2d"`` for a copy that Paddle has put in, else ``""``."""
        return {"memcpy_d2h": "d2h", "memcpy_h2d": "h2d"}.get(self.kernel, "")


def parse_lowered(text: str) -> list[LoweredOp]:
    """The ops of the last program that Paddle has printed (the ones before folded constants).

    Raises:
        ValueError: there is none in ``text``.
    """
    _, found, program = text.rpartition(_START)
    if not found:
        raise ValueError("Paddle printed no lowered program")
    ops = []
    for line in program.splitlines():
        head, name, key = _OP.match(line), _KERNEL_NAME.search(line), _KERNEL_KEY.search(line)
        if head is None or name is None or key is None:
            continue
        type_ = _RESULT_TYPE.search(line)
        nbytes = 0
        if type_ is not None:
            sizes = [int(size) for size in type_["dims"].split("x")[:-1]]
            nbytes = prod(sizes) * _BYTES.get(type_["dtype"], 1)
        values = (tuple(_VALUE.findall(head[part])) for part in ("results", "operands"))
        ops.append(LoweredOp(name[1], key[1], key[2], nbytes, *values))
    return ops


@dataclass
class Placement:
    """Where the ops of one program run, and what their falling back costs in copies.

    device: its kind.  on_device / on_cpu: kernel -> number of ops.
    reasons: kernel -> why it is on the CPU.
    copies: ``"d2h"``, ``"h2d"`` -> copies in one run; copied_bytes: of all of them.
    caused: kernel on the CPU -> bytes copied because it is there.
    """

    device: str
    on_device: Counter[str] = field(default_factory=Counter)
    on_cpu: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    copies: Counter[str] = field(default_factory=Counter)
    copied_bytes: int = 0
    caused: Counter[str] = field(default_factory=Counter)

    @property
    def device_share(self) -> float:
        """The share of the ops that run on the device; 1.0 for a program without work."""
        on_device, on_cpu = sum(self.on_device.values()), sum(self.on_cpu.values())
        return on_device / (on_device + on_cpu) if on_device + on_cpu else 1.0

    def caused_share(self, kernel: str) -> float:
        """The share of the copied bytes that ``kernel`` causes by running on the CPU."""
        return self.caused[kernel] / self.copied_bytes if self.copied_bytes else 0.0

    def notes(self) -> list[str]:
        """The same for a person, a line each."""
        on_device, on_cpu = sum(self.on_device.values()), sum(self.on_cpu.values())
        lines = [f"{on_device} of {on_device + on_cpu} ops run on {self.device}"]
        for kernel, count in self.on_cpu.most_common():
            lines.append(
                f"on the CPU: {kernel} x {count} ({self.reasons[kernel]}), "
                f"{self.caused_share(kernel):.0%} of the copied bytes"
            )
        if self.copies:
            lines.append(
                f"copied in each call: {self.copies['d2h']} times to the host, "
                f"{self.copies['h2d']} times back, {self.copied_bytes / 1024:.1f} KiB"
            )
        return lines


def placement(ops: list[LoweredOp], kind: str, registry: Mapping[str, frozenset[str]]) -> Placement:
    """Sorts the ops of a lowered program by where they run.

    Args:
        kind: of the device, e.g. ``"npu"``.
        registry: kernel -> dtypes for which the device has it (``_paddle_devices.kernel_dtypes``).
    """
    found = Placement(kind)
    made_by = {value: op for op in ops for value in op.results}
    read_by: dict[str, list[LoweredOp]] = {}
    for op in ops:
        for value in op.operands:
            read_by.setdefault(value, []).append(op)
    for op in ops:
        if op.copies:
            found.copies[op.copies] += 1
            found.copied_bytes += op.nbytes
            source = made_by.get(op.operands[0]) if op.operands else None
            readers = read_by.get(op.results[0], []) if op.results else []
            # To the host for a CPU op that reads it; back because a CPU op has made it.
            culprits = readers if op.copies == "d2h" else [source] if source is not None else []
            for culprit in culprits[:1]:
                found.caused[culprit.kernel] += op.nbytes
        elif op.kernel in _NO_WORK:
            continue
        elif op.backend.upper() == "CPU":
            found.on_cpu[op.kernel] += 1
            found.reasons[op.kernel] = _reason(op, kind, registry)
        else:
            found.on_device[op.kernel] += 1
    return found


def _reason(op: LoweredOp, kind: str, registry: Mapping[str, frozenset[str]]) -> str:
    dtypes = registry.get(op.kernel)
    if dtypes is None:
        return f"no {kind} kernel"
    if op.dtype not in dtypes:
        return f"no {kind} kernel for {op.dtype}"
    return "all it reads is on the CPU"
