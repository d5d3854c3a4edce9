"""The processor: maker, micro-architecture, features, cores, caches."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import arm, files
from .cores import cpu_quota, usable_cores

_SUFFIX = {"K": 10, "M": 20, "G": 30}


@dataclass(frozen=True)
class Cache:
    """level: 1 is nearest.  kind: Data, Instruction or Unified.  size: bytes.
    shared_by: logical processors that share one."""

    level: int
    kind: str
    size: int
    shared_by: int


@dataclass(frozen=True)
class Cpu:
    """The processor; what cannot be read is "" or empty or None.

    architecture: ``"x86_64"``, ``"aarch64"``, ...
    microarchitecture: as archspec spells it, e.g. ``"zen4"``; a level such as ``"x86_64_v4"`` where
        the core is not in its list.
    features: the kernel's names, e.g. ``"avx512_vnni"``, ``"asimddp"``.
    logical / physical: processors and cores that exist; usable: threads that this process may run
        at once, by affinity and quota; quota: cores' worth of time, None without a limit.
    big: cores of the fastest kind (``physical`` where all are alike).
    """

    architecture: str
    vendor: str
    name: str
    microarchitecture: str
    features: frozenset[str]
    logical: int
    physical: int
    usable: int
    quota: float | None
    big: int
    caches: tuple[Cache, ...]


def read_cpu(
    root: Path = Path("/"),
    architecture: str = "",
    getauxval: Callable[[int], int] | None = None,
) -> Cpu:
    """Asks the files below ``root``, and the kernel.

    Args:
        architecture: default: what Python says of this process.
        getauxval: default: libc's, where ``root`` is the real one.
    """
    real = root == Path("/")
    architecture = _canonical(architecture or platform.machine())
    blocks = _cpuinfo(root)
    first = blocks[0] if blocks else {}
    if architecture == "aarch64":
        granted = arm.kernel_features(getauxval) if real or getauxval else frozenset()
        features = granted or frozenset(first.get("features", "").split())
        vendor, core = arm.vendor_and_core(*_fastest_kind(blocks))
    else:
        vendor, core = first.get("vendor_id", ""), ""
        features = frozenset(first.get("flags", "").split())
    logical, physical, big = _count_cores(root, blocks, real)
    return Cpu(
        architecture=architecture,
        vendor=vendor,
        name=first.get("model name") or first.get("hardware") or core or architecture,
        microarchitecture=core or _microarchitecture(architecture, vendor, features, real),
        features=features,
        logical=logical,
        physical=physical,
        usable=usable_cores() if real else _usable(root, logical),
        quota=cpu_quota(root),
        big=big,
        caches=_caches(root),
    )


def _canonical(machine: str) -> str:
    return {"arm64": "aarch64", "AMD64": "x86_64", "amd64": "x86_64"}.get(machine, machine)


def _usable(root: Path, logical: int) -> int:
    quota = cpu_quota(root)
    return logical if quota is None else max(1, min(logical, -int(-quota // 1)))


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """One dictionary for each processor in ``/proc/cpuinfo``, keys in lower case."""
    blocks = []
    for block in files.text(root / "proc/cpuinfo").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip().lower(): value.strip() for key, sep, value in pairs if sep}
        if fields:
            blocks.append(fields)
    return blocks


def _fastest_kind(blocks: list[dict[str, str]]) -> tuple[str, str]:
    """(implementer, part) of the core with the highest part number: of cores that are mixed in one
    chip, makers number the newer and faster ones higher."""
    kinds = [
        (b["cpu implementer"], b.get("cpu part", "")) for b in blocks if "cpu implementer" in b
    ]
    return max(kinds, key=lambda kind: (len(kind[1]), kind[1].lower()), default=("", ""))


def _count_cores(root: Path, blocks: list[dict[str, str]], real: bool) -> tuple[int, int, int]:
    """Logical processors, physical cores, cores of the fastest kind."""
    processors = files.numbered(root / "sys/devices/system/cpu", "cpu")
    logical = len(processors) or sum("processor" in block for block in blocks)
    if not logical:
        logical = (os.cpu_count() or 1) if real else 1
    places: dict[tuple[str, str], int] = {}  # package and core -> capacity
    for processor in processors:
        topology = processor / "topology"
        core = files.text(topology / "core_id")
        if core:
            place = (files.text(topology / "physical_package_id"), core)
            places[place] = files.number(processor / "cpu_capacity") or 0
    if not places:
        places = {
            (b.get("physical id", ""), b["core id"]): 0 for b in blocks if "core id" in b
        } or dict.fromkeys((("", str(i)) for i in range(logical)), 0)
    fastest = max(places.values())
    return logical, len(places), sum(capacity == fastest for capacity in places.values())


def _caches(root: Path) -> tuple[Cache, ...]:
    caches = []
    for index in files.numbered(root / "sys/devices/system/cpu/cpu0/cache", "index"):
        level, size = files.number(index / "level"), _size(files.text(index / "size"))
        if level and size:
            shared = _count(files.text(index / "shared_cpu_list"))
            caches.append(Cache(level, files.text(index / "type"), size, shared))
    return tuple(sorted(caches, key=lambda cache: (cache.level, cache.kind)))


def _size(text: str) -> int:
    """``"48K"`` -> 49152; 0 for what is no size."""
    match = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text)
    return int(match[1]) << _SUFFIX.get(match[2], 0) if match else 0


def _count(cpus: str) -> int:
    """``"0-3,8"`` -> 5; 1 for what is no list."""
    ranges = [part.split("-") for part in cpus.split(",")]
    try:
        return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
    except ValueError:
        return 1


def _microarchitecture(architecture: str, vendor: str, features: Iterable[str], real: bool) -> str:
    """archspec's closest name; "" where archspec is not installed."""
    try:
        from archspec import cpu as archspec_cpu
    except ImportError:
        return ""
    if not features:
        # Not Linux: archspec knows how to ask there.
        return str(archspec_cpu.host().name) if real else ""
    have = {*features, *("sse3" for name in features if name == "pni")}  # the kernel's old name
    fitting = [
        target
        for target in archspec_cpu.TARGETS.values()
        if str(target.family) == architecture
        and target.vendor in (vendor, "generic")
        and set(target.features) <= have
        and not getattr(target, "cpu_part", "")
    ]
    if not fitting:
        return ""
    # A chip that lacks one odd feature (a hypervisor may hide it) must not count as one of twenty
    # years ago: as in archspec, only what is above the best generic level is its name.
    level = max((t for t in fitting if t.vendor == "generic"), key=_depth, default=None)
    named = [t for t in fitting if level is None or level in t.ancestors]
    best = max(named, key=_depth, default=level)
    return "" if best is None else str(best.name)


def _depth(target: Any) -> tuple[int, int]:
    """How special a target of archspec is."""
    return len(target.ancestors), len(target.features)
