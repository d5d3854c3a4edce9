"""What planners hand back, and the placement that they build on: best fit, in some order."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

#: Offsets are multiples of this many bytes: a cache line, and the widest vector register.
ALIGNMENT = 64


def aligned(size: int) -> int:
    """``size`` bytes rounded up to ALIGNMENT."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@dataclass(frozen=True)
class Placement:
    """offsets: one per buffer, multiples of ALIGNMENT.  size: bytes of the arena.

    lower_bound: bytes that any placement needs.  strategy: the order that won.
    """

    offsets: list[int]
    size: int
    lower_bound: int
    strategy: str

    @property
    def ratio(self) -> float:
        """Size over lower bound, 1.0 at best."""
        return self.size / self.lower_bound if self.lower_bound else 1.0


class BestFit:
    """Buffers of ``sizes`` bytes, of which each must lie apart from its ``peers``."""

    def __init__(
        self, sizes: Sequence[int], peers: Sequence[Sequence[int]], lower_bound: int
    ) -> None:
        self._sizes = [aligned(size) for size in sizes]
        self._peers = peers
        self._bound = lower_bound

    def place(self, order: Sequence[int], strategy: str) -> Placement:
        """Each buffer, in ``order``, in the smallest gap between its peers that were placed."""
        offsets = [-1] * len(self._sizes)
        top = 0
        for i in order:
            size = self._sizes[i]
            taken: list[tuple[int, int]] = []
            for j in self._peers[i]:
                if offsets[j] >= 0:
                    insort(taken, (offsets[j], offsets[j] + self._sizes[j]))
            offsets[i] = _best_gap(taken, size)
            top = max(top, offsets[i] + size)
        return Placement(offsets, top, self._bound, strategy)


def _best_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap of at least ``size`` bytes; above everything if none is."""
    best = -1
    best_gap = 0
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = end, gap
        end = max(end, stop)
    return end if best < 0 else best
