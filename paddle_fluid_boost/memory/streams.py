"""Placement where branches run at the same time: several streams of steps instead of one.

The steps of one stream run one after the other; between streams only what is *signalled* is known:
a step that waits for a step of another stream runs after it, and after all that came before it
there.  What neither precedes nor follows may run at the same time.

Two buffers may share memory only where one is done with before the other begins: every last use of
the one *happens before* every first use of the other.  So buffers of branches that run at the same
time never share, whatever their steps are numbered.  Happening before is told by vector clocks
(Mattern, 1989): each step knows the last step of every stream that has ended when it starts.

"Done before" is a partial order of the buffers, so that no arena can be smaller than its heaviest
antichain, which is Dilworth's theorem with weights: :func:`lower_bound` finds it as a flow.

Today's native plans have one stream (their steps use all threads); this is what a scheduler of
branches would ask.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .placement import ALIGNMENT, BestFit, Placement, aligned

#: Orders tried at random after the greedy ones, where these do not meet the bound.
_TRIES = 64


@dataclass(frozen=True)
class Span:
    """stream; first, last: the steps of that stream, inclusive, between which it uses a buffer."""

    stream: int
    first: int
    last: int


@dataclass(frozen=True)
class SharedBuffer:
    """size: bytes.  spans: where it is used, at most one for each stream, not empty."""

    size: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Signal:
    """Step ``after`` of stream ``waits`` starts when step ``before`` of ``signals`` has ended."""

    signals: int
    before: int
    waits: int
    after: int


class Streams:
    """The steps of all streams and what is known of their order.

    Args:
        lengths: the number of steps of each stream.
        signals: between streams; any number.

    Raises:
        ValueError: a signal names no step, or steps wait for each other in a circle.
    """

    def __init__(self, lengths: Sequence[int], signals: Sequence[Signal] = ()) -> None:
        self.lengths = tuple(lengths)
        waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for signal in signals:
            before, after = (signal.signals, signal.before), (signal.waits, signal.after)
            for stream, step in (before, after):
                if not 0 <= stream < len(lengths) or not 0 <= step < lengths[stream]:
                    raise ValueError(f"{signal} names step {step} of stream {stream}: none such")
            waits.setdefault(after, []).append(before)
        self._clocks = _clocks(self.lengths, waits)

    def happens_before(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """Whether step ``one`` (stream, step) has always ended when ``other`` starts."""
        return self._clocks[other[0]][other[1]][one[0]] >= one[1]

    def done_before(self, one: SharedBuffer, other: SharedBuffer) -> bool:
        """Whether ``one`` is never used again once ``other`` is."""
        return all(
            self.happens_before((a.stream, a.last), (b.stream, b.first))
            for a in one.spans
            for b in other.spans
        )


def plan(buffers: Sequence[SharedBuffer], streams: Streams, seed: int = 0) -> Placement:
    """The smallest placement found.

    Args:
        seed: of the orders tried at random; the same seed gives the same placement.

    Raises:
        ValueError: a size is negative, or a span names no steps.
    """
    _check(buffers, streams)
    later = _later(buffers, streams)
    count = len(buffers)
    peers = [
        [j for j in range(count) if j != i and j not in later[i] and i not in later[j]]
        for i in range(count)
    ]
    sizes = [buffer.size for buffer in buffers]
    fit = BestFit(sizes, peers, _heaviest_antichain([aligned(size) for size in sizes], later))
    beside = [sum(sizes[j] for j in peers[i]) for i in range(count)]
    keys = {
        "size": [-size for size in sizes],
        "company": [-size - other for size, other in zip(sizes, beside)],
        "start": [-len(after) for after in later],
    }
    best: Placement | None = None
    for strategy, key in keys.items():
        candidate = fit.place(sorted(range(count), key=lambda i: (key[i], -sizes[i])), strategy)
        if best is None or candidate.size < best.size:
            best = candidate
    assert best is not None
    return _shuffled(fit, sizes, best, seed)


def lower_bound(buffers: Sequence[SharedBuffer], streams: Streams) -> int:
    """The most bytes, aligned, of buffers of which no two can ever share memory."""
    _check(buffers, streams)
    return _heaviest_antichain([aligned(b.size) for b in buffers], _later(buffers, streams))


def verify(buffers: Sequence[SharedBuffer], streams: Streams, placement: Placement) -> None:
    """Raises ValueError unless every buffer lies inside the arena, and apart from all that may be
    in use at the same time."""
    if len(placement.offsets) != len(buffers):
        raise ValueError(f"{len(buffers)} buffers, {len(placement.offsets)} offsets")
    for i, (one, start) in enumerate(zip(buffers, placement.offsets)):
        end = start + one.size
        if start < 0 or start % ALIGNMENT or end > placement.size:
            raise ValueError(f"buffer {i} at [{start}, {end}) does not fit the arena")
        for j, (other, begin) in enumerate(zip(buffers[:i], placement.offsets)):
            apart = end <= begin or begin + other.size <= start or not (one.size and other.size)
            if apart or streams.done_before(one, other) or streams.done_before(other, one):
                continue
            raise ValueError(f"buffers {j} and {i} overlap in memory and may do so in time")


# -- order -------------------------------------------------------------------------------------


def _clocks(
    lengths: Sequence[int], waits: dict[tuple[int, int], list[tuple[int, int]]]
) -> list[list[list[int]]]:
    """clocks[stream][step][other]: the last step of ``other`` that has ended when it starts."""
    clocks: list[list[list[int]]] = [[] for _ in lengths]
    left = sum(lengths)
    while left:
        before = left
        for stream, made in enumerate(clocks):
            while len(made) < lengths[stream]:
                step = len(made)
                awaited = waits.get((stream, step), [])
                if any(len(clocks[s]) <= at for s, at in awaited):
                    break
                clock = list(made[-1]) if made else [-1] * len(lengths)
                clock[stream] = step - 1
                for s, at in awaited:
                    clock = [max(pair) for pair in zip(clock, clocks[s][at])]
                    clock[s] = max(clock[s], at)
                made.append(clock)
                left -= 1
        if left == before:
            stuck = next(s for s, made in enumerate(clocks) if len(made) < lengths[s])
            raise ValueError(f"step {len(clocks[stuck])} of stream {stuck} waits for itself")
    return clocks


def _check(buffers: Sequence[SharedBuffer], streams: Streams) -> None:
    for i, buffer in enumerate(buffers):
        used = [span.stream for span in buffer.spans]
        right = all(
            0 <= span.stream < len(streams.lengths)
            and 0 <= span.first <= span.last < streams.lengths[span.stream]
            for span in buffer.spans
        )
        if buffer.size < 0 or not used or len(set(used)) < len(used) or not right:
            raise ValueError(f"buffer {i} is not used at steps of the streams: {buffer}")


def _later(buffers: Sequence[SharedBuffer], streams: Streams) -> list[set[int]]:
    """For each buffer those that begin after it is done with."""
    return [
        {j for j, other in enumerate(buffers) if j != i and streams.done_before(one, other)}
        for i, one in enumerate(buffers)
    ]


# -- search and bound --------------------------------------------------------------------------


def _shuffled(fit: BestFit, sizes: Sequence[int], best: Placement, seed: int) -> Placement:
    """The best of some orders that are by size but for a random factor of up to two."""
    choose = random.Random(seed)
    for _ in range(_TRIES):
        if best.size == best.lower_bound:
            break
        key = [-size * choose.uniform(1, 2) for size in sizes]
        candidate = fit.place(sorted(range(len(sizes)), key=key.__getitem__), "shuffled")
        if candidate.size < best.size:
            best = candidate
    return best


def _heaviest_antichain(weights: Sequence[int], later: Sequence[set[int]]) -> int:
    """The largest sum of weights of elements of which none is before another.

    By duality: the weights' sum less the largest flow from the elements through "is before" to the
    elements, where each gives and takes at most its weight.
    """
    gives, takes = list(weights), list(weights)
    flows: list[dict[int, int]] = [{} for _ in weights]  # flows[j][i]: what j takes from i
    for source in range(len(weights)):
        while gives[source]:
            way = _way(source, takes, later, flows)
            if not way:
                break
            amount = min(gives[source], takes[way[-1][1]])
            amount = min([amount, *(flows[j][i] for (_, j), (i, _) in zip(way, way[1:]))])
            gives[source] -= amount
            takes[way[-1][1]] -= amount
            for giver, taker in way:
                flows[taker][giver] = flows[taker].get(giver, 0) + amount
            for (_, taker), (giver, _) in zip(way, way[1:]):
                flows[taker][giver] -= amount
    return sum(gives)


def _way(
    source: int,
    takes: Sequence[int],
    later: Sequence[set[int]],
    flows: Sequence[dict[int, int]],
) -> list[tuple[int, int]]:
    """Steps (giver, taker) by which more can flow from ``source``, the shortest; empty if none.

    At each taker but the last one flow is withdrawn from the next step's giver.
    """
    came: dict[int, int] = {}  # taker -> giver
    reached: dict[int, int] = {source: -1}  # giver -> taker
    pending = deque([source])
    while pending:
        giver = pending.popleft()
        for taker in later[giver]:
            if taker in came:
                continue
            came[taker] = giver
            if takes[taker]:
                way = []
                while taker >= 0:
                    way.append((came[taker], taker))
                    taker = reached[came[taker]]
                return way[::-1]
            for other, amount in flows[taker].items():
                if amount and other not in reached:
                    reached[other] = taker
                    pending.append(other)
    return []
