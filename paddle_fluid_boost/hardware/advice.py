"""What the library says about this machine: the answers that engines ask for."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import LibraryError
from ..options import options
from .accelerators import Gpu, Npu
from .cores import usable_cores
from .cpu import Cpu
from .devices import Device
from .library import Family, Fault, Library, load
from .probe import Machine, probe

log = logging.getLogger("paddle_fluid_boost.compiles")


@dataclass(frozen=True)
class Advice:
    """What a chain of families states together.

    families: their names, the most general first.
    precisions: data type -> pays, works, slow or no.
    engines: in the order in which they are worth trying.
    fallback: those that are raced only where no other engine is right.
    threads: ``most`` (a rule), ``least``, ``small_operations``.
    memory: ``pool_mb``, what Paddle's allocator takes of a GPU at first.
    tensorrt: ``workspace_mb``, ``smallest_part`` (ops).
    avoid: Paddle's passes to leave out.
    """

    families: tuple[str, ...] = ()
    precisions: dict[str, str] = field(default_factory=dict)
    engines: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()
    threads: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    tensorrt: dict[str, int] = field(default_factory=dict)
    avoid: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    def pays(self) -> list[str]:
        """The data types that are faster than float32, float32 included."""
        return [name for name, verdict in self.precisions.items() if verdict == "pays"]

    def faults_of(self, engine: str, when: str, version: str) -> list[Fault]:
        """The known faults of an engine with a setting, in Paddle ``version``."""
        return [
            fault
            for fault in self.faults
            if (fault.engine, fault.when) == (engine, when) and fault.in_version(version)
        ]


def combine(chain: Iterable[Family]) -> Advice:
    """The statements of a chain; what is more special wins, faults add up."""
    tables: dict[str, dict[str, Any]] = {}
    names: list[str] = []
    faults: list[Fault] = []
    for family in chain:
        names.append(family.name)
        faults += family.faults()
        for table in ("precisions", "engines", "threads", "memory", "tensorrt", "passes"):
            tables.setdefault(table, {}).update(family.content.get(table, {}))
    return Advice(
        families=tuple(names),
        precisions=tables.get("precisions", {}),
        engines=tuple(tables.get("engines", {}).get("order", ())),
        fallback=tuple(tables.get("engines", {}).get("fallback", ())),
        threads=tables.get("threads", {}),
        memory=tables.get("memory", {}),
        tensorrt=tables.get("tensorrt", {}),
        avoid=tuple(tables.get("passes", {}).get("avoid", ())),
        faults=tuple(faults),
    )


def for_cpu(library: Library, cpu: Cpu) -> Advice:
    """What the library says about a processor."""
    facts = {
        "architecture": cpu.architecture,
        "vendor": cpu.vendor,
        "microarchitecture": cpu.microarchitecture,
        "features": cpu.features,
        "name": cpu.name,
    }
    return combine(library.best("cpu", facts))


def for_gpu(library: Library, gpu: Gpu) -> Advice:
    """What the library says about a GPU."""
    return combine(library.best("gpu", {"capability": gpu.capability, "name": gpu.name}))


def for_npu(library: Library, npu: Npu) -> Advice:
    """What the library says about an NPU; one that Paddle does not have counts as an Ascend."""
    return combine(library.best("npu", {"device": npu.kind or "npu", "name": npu.name}))


@functools.lru_cache(maxsize=4)
def _library(folder: str) -> Library:
    """The library with the user's folder; without it, and with a warning, where a file of the
    user's is wrong: no call may fail for it."""
    try:
        return load(folder)
    except LibraryError as error:
        if not folder:
            raise
        log.warning("the hardware library goes without %s: %s", folder, error)
        return load()


@functools.lru_cache(maxsize=4)
def _cpu_advice(folder: str) -> Advice:
    return for_cpu(_library(folder), probe().cpu)


def cpu_advice() -> Advice:
    """What the library, with the user's files, says about the processor of this machine."""
    return _cpu_advice(options.hardware_dir)


@functools.lru_cache(maxsize=16)
def _accelerator_advice(folder: str, device: Device) -> Advice:
    library, machine = _library(folder), probe()
    if device.kind == "gpu":
        gpus = (gpu for gpu in machine.gpus if gpu.usable and gpu.index == device.number)
        return next((for_gpu(library, gpu) for gpu in gpus), Advice())
    npus = (npu for npu in machine.npus if (npu.kind, npu.index) == tuple(device))
    return next((for_npu(library, npu) for npu in npus), Advice())


def accelerator_advice(device: Device) -> Advice:
    """What the library, with the user's files, says about a GPU or custom device of this machine;
    nothing about one that the probe has not found or the library does not know."""
    return _accelerator_advice(options.hardware_dir, device)


def in_words() -> str:
    """What the library says about this processor, in one line, or what is wrong with a file of the
    user's."""
    try:
        load(options.hardware_dir)
    except LibraryError as error:
        return f"goes without your files: {error}"
    said = cpu_advice()
    return (
        f"{said.families[-1]}: {', '.join(said.pays())} pay; engines {', '.join(said.engines)}; "
        f"at most {most_threads()} threads; {len(said.faults)} known faults"
    )


def accelerators_in_words(machine: Machine) -> Iterator[tuple[str, str]]:
    """(which, what the library says about it) of every accelerator of ``machine``."""
    library = _library(options.hardware_dir)
    said = [(f"GPU {gpu.index}", for_gpu(library, gpu)) for gpu in machine.gpus]
    said += [(f"NPU {npu.index}", for_npu(library, npu)) for npu in machine.npus]
    for name, advice in said:
        words = "not in the library"
        if advice.families:
            words = f"{advice.families[-1]}: {', '.join(advice.pays()) or 'nothing'} pay"
        yield name, words


def most_threads() -> int:
    """The highest number of threads worth using now: by affinity and quota, and by the family's
    rule (one for each core, or only the fast cores)."""
    cpu, usable = probe().cpu, usable_cores()
    limits = {"usable": usable, "physical": cpu.physical, "big": cpu.big}
    threads = cpu_advice().threads
    return max(min(usable, limits[threads.get("most", "usable")]), threads.get("least", 1), 1)


def thread_counts() -> list[int]:
    """Numbers of threads worth measuring, the highest first: each half of the one before."""
    counts, least = [most_threads()], cpu_advice().threads.get("least", 1)
    while counts[-1] > least:
        counts.append(max(least, counts[-1] // 2))
    return counts
