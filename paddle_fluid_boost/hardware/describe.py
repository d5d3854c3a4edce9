"""A machine in words, for ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from .accelerators import Gpu, Npu
from .cpu import Cpu
from .memory import Memory
from .probe import Machine
from .sensors import Sensors

#: Features that engines ask for; the dozens of others only make the line long.
_TOLD = (
    *("avx", "avx2", "fma", "f16c", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)


def describe(machine: Machine) -> Iterator[tuple[str, str]]:
    """(what, words) of everything that is known."""
    yield from _cpu(machine.cpu)
    yield "memory", _memory(machine.memory)
    yield "sensors", _sensors(machine.sensors)
    for gpu in machine.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu)
    for npu in machine.npus:
        yield f"NPU {npu.index}", _npu(npu)
    if not machine.gpus and not machine.npus:
        yield "accelerators", "none found"
    for note in machine.notes:
        yield "note", note


def _cpu(cpu: Cpu) -> Iterator[tuple[str, str]]:
    known = [word for word in (cpu.architecture, cpu.vendor, cpu.microarchitecture) if word]
    yield "processor", f"{cpu.name} ({', '.join(known)})"
    told = [name for name in _TOLD if name in cpu.features]
    yield "features", " ".join(told) or "unknown"
    cores = f"{cpu.physical} cores, {cpu.logical} logical"
    if cpu.big != cpu.physical:
        cores += f", {cpu.big} of them fast"
    quota = "no quota" if cpu.quota is None else f"a quota of {cpu.quota:g}"
    yield "cores", f"{cores}; {cpu.usable} usable ({quota})"
    caches = [
        f"L{c.level} {c.kind.lower()} {c.size >> 10} KiB"
        + (f" for {c.shared_by}" if c.shared_by > 1 else "")
        for c in cpu.caches
    ]
    yield "caches", ", ".join(caches) or "unknown"


def _memory(memory: Memory) -> str:
    if memory.total is None:
        return "unknown"
    parts = [f"{memory.total / 2**30:.1f} GiB"]
    if memory.available is not None:
        parts.append(f"{memory.available / 2**30:.1f} GiB available")
    if memory.limit is not None:
        parts.append(f"limited to {memory.limit / 2**30:.1f} GiB")
    return ", ".join(parts)


def _sensors(sensors: Sensors) -> str:
    parts = [f"{name} {degrees:.0f} C" for name, degrees in sensors.celsius[:3]]
    if sensors.mhz:
        highest = f" of {sensors.max_mhz:.0f}" if sensors.max_mhz else ""
        parts.append(f"{sensors.mhz:.0f}{highest} MHz")
    if sensors.governor:
        parts.append(f"governor {sensors.governor}")
    if sensors.battery_percent is not None:
        state = "in use" if sensors.on_battery else "not in use"
        parts.append(f"battery {sensors.battery_percent}%, {state}")
    return ", ".join(parts) or "none can be read"


def _gpu(gpu: Gpu) -> str:
    parts = [gpu.name]
    if gpu.capability:
        parts.append("compute capability {}.{}".format(*gpu.capability))
    parts += _size_and_heat(gpu.memory, gpu.celsius)
    if gpu.driver:
        parts.append(f"driver {gpu.driver}")
    if not gpu.usable:
        parts.append("this build of Paddle cannot use it")
    return ", ".join(parts)


def _npu(npu: Npu) -> str:
    parts = [npu.name, *_size_and_heat(npu.memory, npu.celsius)]
    if npu.health:
        parts.append(f"health {npu.health}")
    parts.append(f"Paddle's device '{npu.kind}'" if npu.usable else "not registered with Paddle")
    return ", ".join(parts)


def _size_and_heat(memory: int | None, celsius: float | None) -> list[str]:
    parts = [] if memory is None else [f"{memory / 2**30:.1f} GiB"]
    return parts if celsius is None else [*parts, f"{celsius:.0f} C"]
