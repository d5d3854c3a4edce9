"""What the bridges had to copy, and why: on a good hot path, nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Copies:
    """Copies by the bridges since the start or the last :func:`reset_copies`.

    count, nbytes: how many, and their bytes; reasons: how many for each reason.
    """

    count: int = 0
    nbytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


_lock = threading.Lock()
_nbytes = 0
_reasons: dict[str, int] = {}


def copies() -> Copies:
    """The counts so far."""
    with _lock:
        return Copies(sum(_reasons.values()), _nbytes, dict(_reasons))


def reset_copies() -> None:
    """Starts counting anew."""
    global _nbytes
    with _lock:
        _nbytes = 0
        _reasons.clear()


def note_copy(reason: str, nbytes: int) -> None:
    """Counts one copy of ``nbytes`` bytes."""
    global _nbytes
    with _lock:
        _nbytes += nbytes
        _reasons[reason] = _reasons.get(reason, 0) + 1
