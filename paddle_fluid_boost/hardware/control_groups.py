"""Linux's control groups: the folders in which the limits of this process stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's groups that ``controller`` limits, with those above them: the
    tightest limit counts.

    Args:
        root: where ``proc`` and ``sys`` are.
        controller: ``"cpu"`` or ``"memory"``.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(errors="replace").splitlines()
    except OSError:  # not Linux, or hidden from us
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        if line.count(":") < 2:
            continue  # not a line of the kernel's
        _, controllers, path = line.split(":", 2)
        if not controllers:
            bases = [mount]  # version 2: one tree for all
        elif controller in controllers.split(","):
            bases = [mount / controller]
            if controllers != controller and "/" not in controllers:
                bases.append(mount / controllers)  # "cpu,cpuacct", of which not all have links
        else:
            continue
        # Inside a container the path may be the host's, which is not there: the mount is its group.
        parts = Path(path.lstrip("/")).parts
        for base in bases:
            for depth in range(len(parts), -1, -1):
                yield base.joinpath(*parts[:depth])
