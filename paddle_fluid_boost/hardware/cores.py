"""How many threads may compute at once: the cores that this process may run on, and its quota.

A container usually sees all cores of its host; what it may use is a quota of processor time
(``docker run --cpus=2``).  With a thread for every core it would spend its quota within a fraction
of each period and then stand still until the next one.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from .control_groups import folders


def usable_cores() -> int:
    """At least 1; asks anew each time, as affinity and quota may be changed from outside."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of processor time that this process may use, None without a limit.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    quotas = [quota for group in folders(root, "cpu") if (quota := _quota_of(group)) is not None]
    return min(quotas, default=None)


def _quota_of(group: Path) -> float | None:
    """The quota of one group: ``cpu.max`` of version 2, ``cpu.cfs_*`` of version 1."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text(errors="replace").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        if quota == "max" or int(quota) <= 0 or int(period) <= 0:
            return None
        return int(quota) / int(period)
    except (OSError, ValueError, OverflowError):  # no such file, not ours to read, no numbers
        return None
