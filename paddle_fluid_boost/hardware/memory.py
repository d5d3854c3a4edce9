"""Main memory: what there is, what is free, and what the process may take of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import files
from .control_groups import folders


@dataclass(frozen=True)
class Memory:
    """Bytes; None where it cannot be read.

    limit: of the control groups (``docker run --memory=...``), None without one.
    """

    total: int | None
    available: int | None
    limit: int | None

    @property
    def usable(self) -> int | None:
        """What the process may use at most."""
        known = [size for size in (self.total, self.limit) if size is not None]
        return min(known, default=None)


def read_memory(root: Path = Path("/")) -> Memory:
    """Asks ``/proc/meminfo`` and the control groups below ``root``."""
    sizes: dict[str, int] = {}
    for line in files.text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and files.is_number(words[0]):
            sizes[name] = int(words[0]) << 10  # the kernel counts in KiB
    total = sizes.get("MemTotal")
    return Memory(total, sizes.get("MemAvailable"), _limit(root, total))


def _limit(root: Path, total: int | None) -> int | None:
    limits = []
    for group in folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):  # versions 2 and 1
            limit = files.number(group / name)  # "max" is no number
            # Version 1 says "no limit" with a number beyond all memory.
            if limit is not None and limit > 0 and (total is None or limit < total):
                limits.append(limit)
    return min((limit for limit in limits if limit < 1 << 60), default=None)
