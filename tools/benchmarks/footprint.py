"""What a process's memory looks like from outside (Linux): resident, peak, page faults."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Footprint:
    """resident, peak: MiB; faults: page faults served without a disk, so far."""

    resident: float
    peak: float
    faults: int


def footprint() -> Footprint:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Footprint(
        resident=pages * os.sysconf("SC_PAGESIZE") / 2**20,
        peak=used.ru_maxrss / 2**10,
        faults=used.ru_minflt,
    )
