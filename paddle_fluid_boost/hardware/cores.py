"""How many threads may compute at once: the cores that this process may run on, and its quota.

A container usually sees all cores of its host; what it may use is a quota of processor time
(``docker run --cpus=2``).  With a thread for every core it would spend its quota within a fraction
of each period and then stand still until the next one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path


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
    quotas = [quota for group in _groups(root) if (quota := _quota_of(group)) is not None]
    return min(quotas, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups that limit processors, with those above them:
    the tightest limit counts."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux, or hidden from us
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base = mount  # version 2: one tree for all
        elif "cpu" in controllers.split(","):
            base = mount / "cpu"
        else:
            continue
        # Inside a container the path may be the host's, which is not there: the mount is its group.
        parts = Path(path.lstrip("/")).parts
        for depth in range(len(parts), -1, -1):
            yield base.joinpath(*parts[:depth])


def _quota_of(group: Path) -> float | None:
    """The quota of one group: ``cpu.max`` of version 2, ``cpu.cfs_*`` of version 1."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        if quota == "max" or int(quota) <= 0 or int(period) <= 0:
            return None
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or not ours to read
        return None
