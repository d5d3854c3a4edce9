"""Where each intermediate tensor lives in the arena: lifetimes in, offsets out.

Offline dynamic storage allocation: every buffer has a size and is alive from its first to its last
step; two buffers that are alive at the same step must not overlap; the arena should be small.  No
arena can be smaller than the *lower bound*, the largest sum of sizes alive at one step.  On real
networks a greedy placement meets that bound; on hard instances a bounded search over the order of
placement closes most of the gap.

A placement goes through the buffers in some order and puts each into the smallest gap between the
buffers already placed that are alive with it (best fit).  The order is everything:

* by size, large first: good where a few tensors dominate (convolution nets);
* by breadth: the buffers of the fullest step first, large first (Pisarchyk & Lee, 2020);
* by area (size x lifetime), by lifetime, and by start.

Where none of them meets the bound, a search goes on in C++: a skyline that is filled from below,
with annealed priorities (``csrc/memory/placement_search.cc``).

Where branches of a network run at the same time there is no one line of steps: ``streams.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import library
from .placement import ALIGNMENT, BestFit, Placement, aligned


@dataclass(frozen=True)
class Buffer:
    """size: bytes.  first, last: the steps, inclusive, between which the content matters."""

    size: int
    first: int
    last: int

    def overlaps(self, other: Buffer) -> bool:
        """True when both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


def plan(buffers: Sequence[Buffer], search_ms: float = 30.0, seed: int = 0) -> Placement:
    """The smallest placement found.

    Args:
        search_ms: time for the search, spent only where no greedy order meets the bound.
        seed: of the search's random choices; the same seed and enough time give the same result.

    Raises:
        ValueError: a size is negative or a lifetime ends before it starts.
    """
    for index, buffer in enumerate(buffers):
        if buffer.size < 0 or buffer.last < buffer.first:
            raise ValueError(f"buffer {index} is not a lifetime: {buffer}")
    fit = _best_fit(buffers)
    best: Placement | None = None
    for strategy, order in _ORDERS.items():
        candidate = fit.place(order(buffers), strategy)
        if best is None or candidate.size < best.size:
            best = candidate
        if best.size == best.lower_bound:
            return best
    assert best is not None
    return _search(buffers, best, search_ms / 1e3, seed)


def greedy(buffers: Sequence[Buffer], strategy: str) -> Placement:
    """Best fit in one of the orders "size", "breadth", "area", "lifetime" and "start"."""
    return _best_fit(buffers).place(_ORDERS[strategy](buffers), strategy)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The largest sum of (aligned) sizes alive at one step, in bytes."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        size = aligned(buffer.size)
        changes[buffer.first] = changes.get(buffer.first, 0) + size
        changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - size
    alive = highest = 0
    for step in sorted(changes):
        alive += changes[step]
        highest = max(highest, alive)
    return highest


def verify(buffers: Sequence[Buffer], placement: Placement) -> None:
    """Raises ValueError unless every buffer lies inside the arena and apart from its peers."""
    if len(placement.offsets) != len(buffers):
        raise ValueError(f"{len(buffers)} buffers, {len(placement.offsets)} offsets")
    placed = sorted(
        (i for i, buffer in enumerate(buffers) if buffer.size), key=lambda i: buffers[i].first
    )
    active: list[int] = []
    for i in placed:
        start, end = placement.offsets[i], placement.offsets[i] + buffers[i].size
        if start < 0 or start % ALIGNMENT or end > placement.size:
            raise ValueError(f"buffer {i} at [{start}, {end}) does not fit the arena")
        active = [j for j in active if buffers[j].last >= buffers[i].first]
        for j in active:
            other = placement.offsets[j]
            if start < other + buffers[j].size and other < end:
                raise ValueError(f"buffers {j} and {i} overlap in memory and in time")
        active.append(i)


def _best_fit(buffers: Sequence[Buffer]) -> BestFit:
    return BestFit([b.size for b in buffers], _peers(buffers), lower_bound(buffers))


def _peers(buffers: Sequence[Buffer]) -> list[list[int]]:
    """For each buffer those that are alive with it at some step."""
    peers: list[list[int]] = [[] for _ in buffers]
    active: list[int] = []
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
        active = [j for j in active if buffers[j].last >= buffers[i].first]
        for j in active:
            peers[i].append(j)
            peers[j].append(i)
        active.append(i)
    return peers


# -- orders ------------------------------------------------------------------------------------


def _by(key: Callable[[Buffer], tuple[int, ...]]) -> Callable[[Sequence[Buffer]], list[int]]:
    return lambda buffers: sorted(range(len(buffers)), key=lambda i: key(buffers[i]))


def _by_breadth(buffers: Sequence[Buffer]) -> list[int]:
    """Step by step from the fullest, each step's buffers by size."""
    steps = sorted({buffer.first for buffer in buffers})
    alive = {
        step: [i for i, b in enumerate(buffers) if b.first <= step <= b.last] for step in steps
    }
    fullest = sorted(steps, key=lambda step: -sum(buffers[i].size for i in alive[step]))
    order: dict[int, None] = {}
    for step in fullest:
        for i in sorted(alive[step], key=lambda i: -buffers[i].size):
            order.setdefault(i)
    return list(order)


_ORDERS: dict[str, Callable[[Sequence[Buffer]], list[int]]] = {
    "size": _by(lambda b: (-b.size, b.first)),
    "breadth": _by_breadth,
    "area": _by(lambda b: (-b.size * (b.last - b.first + 1), b.first)),
    "lifetime": _by(lambda b: (b.first - b.last, -b.size)),
    "start": _by(lambda b: (b.first, -b.size)),
}


# -- search ------------------------------------------------------------------------------------


def _search(buffers: Sequence[Buffer], best: Placement, seconds: float, seed: int) -> Placement:
    """What ``csrc/memory/placement_search.cc`` finds; ``best`` where it was not built."""
    if library.missing():
        return best
    kept = [i for i, buffer in enumerate(buffers) if buffer.size]
    count = len(kept)
    first, end, steps = _compressed([buffers[i] for i in kept])
    offsets = (ctypes.c_int64 * count)()
    size = library.load().pfb_search_placement(
        count,
        (ctypes.c_int64 * count)(*(aligned(buffers[i].size) for i in kept)),
        (ctypes.c_uint32 * count)(*first),
        (ctypes.c_uint32 * count)(*end),
        steps,
        best.lower_bound,
        seconds,
        seed,
        offsets,
    )
    if size >= best.size:
        return best
    everywhere = [0] * len(buffers)
    for i, offset in zip(kept, offsets):
        everywhere[i] = offset
    return Placement(everywhere, size, best.lower_bound, "search")


def _compressed(buffers: Sequence[Buffer]) -> tuple[list[int], list[int], int]:
    """Starts and ends of the lifetimes among those steps at which one starts or ends, and how many
    stretches there are between these."""
    steps = {b.first for b in buffers} | {b.last + 1 for b in buffers}
    number = {step: n for n, step in enumerate(sorted(steps))}
    starts, ends = [number[b.first] for b in buffers], [number[b.last + 1] for b in buffers]
    return starts, ends, len(number) - 1
