"""Sums over signatures, functions and the whole process; what ``pfb.stats()`` shows.

A function that is collected leaves its sums behind, so the totals of the process never shrink.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .monitor import FunctionStats
    from .signature_stats import SignatureStats


@dataclass
class Totals:
    """Sums of counters; times in seconds.

    signatures: those that were called.
    saved_seconds: time that compiled calls saved against eager, compile cost not taken off.
    """

    signatures: int = 0
    eager_calls: int = 0
    eager_seconds: float = 0.0
    compiled_calls: int = 0
    compiled_seconds: float = 0.0
    compiles: int = 0
    compile_seconds: float = 0.0
    rejections: int = 0
    saved_seconds: float = 0.0

    def add(self, stats: SignatureStats) -> None:
        """Adds the counters of one signature."""
        self.signatures += stats.calls > 0
        self.eager_calls += stats.eager_calls
        self.eager_seconds += stats.eager_seconds
        self.compiled_calls += stats.compiled_calls
        self.compiled_seconds += stats.compiled_seconds()
        self.compiles += stats.compiles
        self.compile_seconds += stats.compile_seconds
        self.rejections += stats.rejections
        self.saved_seconds += stats.saved_seconds()

    def merge(self, other: Totals) -> None:
        """Adds other sums to these."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def copy(self) -> Totals:
        return replace(self)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_live: weakref.WeakSet[FunctionStats] = weakref.WeakSet()
_collected = Totals()
#: What finalizers leave.  A finalizer runs wherever the collector happens to run, so it only
#: appends, which is atomic, and takes no lock; others add it up later.
_pending: deque[tuple[Mapping[Any, SignatureStats], SignatureStats, Totals]] = deque()


def register(
    function: FunctionStats,
    signatures: Mapping[Any, SignatureStats],
    generic: SignatureStats,
    retired: Totals,
) -> None:
    """Counts ``function`` in the totals of the process, also after it is gone."""
    _absorb()
    _live.add(function)
    left = (signatures, generic, retired)
    weakref.finalize(function, _pending.append, left).atexit = False


def _absorb() -> None:
    """Adds what collected functions left to the sums of the process."""
    while _pending:
        try:
            signatures, generic, retired = _pending.popleft()
        except IndexError:  # another thread was quicker
            return
        for stats in (*signatures.values(), generic):
            retired.add(stats)
        _collected.merge(retired)


def process_totals() -> Totals:
    """Sums over every function of this process, collected ones included."""
    _absorb()
    total = _collected.copy()
    for function in list(_live):
        total.merge(function.totals())
    return total
