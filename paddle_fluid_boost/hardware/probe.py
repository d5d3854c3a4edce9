"""What this machine is: the one place that asks.

Every answer is optional: what cannot be read is left out, and ``Machine.notes`` says why where
that is worth knowing.  Questions go from harmless to risky, the risky ones to child processes.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .accelerators import Gpu, Npu, find_gpus, find_npus
from .cpu import Cpu, read_cpu
from .memory import Memory, read_memory
from .sensors import Sensors, read_sensors

#: Seconds that a child process has to answer: a probe stays under 0.3 s.
_CHILD_SECONDS = 0.25


@dataclass(frozen=True)
class Machine:
    """notes: what could not be asked, and why."""

    cpu: Cpu
    memory: Memory
    sensors: Sensors
    gpus: tuple[Gpu, ...] = ()
    npus: tuple[Npu, ...] = ()
    notes: tuple[str, ...] = ()

    def identity(self) -> str:
        """A text that is the same on machines for which the same choices are right: for keys of
        what was measured.  Without what changes by itself (heat, free memory)."""
        cpu = self.cpu
        parts = [
            *(cpu.architecture, cpu.vendor, cpu.name, cpu.microarchitecture),
            f"{cpu.usable} of {cpu.physical} cores",
            " ".join(sorted(cpu.features)),
            *(f"L{cache.level}{cache.kind[:1]} {cache.size}" for cache in cpu.caches),
            *(f"GPU {gpu.name} {gpu.memory}" for gpu in self.gpus if gpu.usable),
            *(f"NPU {npu.kind} {npu.name}" for npu in self.npus if npu.usable),
        ]
        return "; ".join(parts)


@functools.cache
def probe() -> Machine:
    """This machine.  Asked once in a process; sensors are as they were then."""
    return ask_machine(child_seconds=_CHILD_SECONDS)


def ask_machine(
    root: Path = Path("/"),
    *,
    architecture: str = "",
    paddle: Any = None,
    child_seconds: float = _CHILD_SECONDS,
) -> Machine:
    """Asks anew.

    Args:
        root: where ``proc`` and ``sys`` are.
        architecture: of the machine below ``root``; default: that of this process.
        paddle: who is asked for devices; default: Paddle, where this process has imported it
            (importing it for a probe would take seconds).
        child_seconds: time for each question to a child process.
    """
    notes: list[str] = []
    paddle = paddle if paddle is not None else sys.modules.get("paddle")
    if paddle is None:
        notes.append("Paddle is not imported: it was not asked for devices")
    return Machine(
        cpu=read_cpu(root, architecture),
        memory=read_memory(root),
        sensors=read_sensors(root),
        gpus=tuple(find_gpus(paddle, child_seconds, notes)),
        npus=tuple(find_npus(paddle, child_seconds, notes)),
        notes=tuple(notes),
    )
