"""Placement for concurrent branches: nothing that may be in use at once ever shares memory."""

from __future__ import annotations

import itertools
import random

import pytest

from paddle_fluid_boost.memory import planner, streams
from paddle_fluid_boost.memory.placement import ALIGNMENT, aligned
from paddle_fluid_boost.memory.streams import SharedBuffer, Signal, Span, Streams

Step = tuple[int, int]
Case = tuple[list[int], list[Signal], list[SharedBuffer]]


def _random_case(choose: random.Random, most_buffers: int) -> Case:
    """Signals go forward in a hidden order of all steps, so that they make no circle."""
    lengths = [choose.randint(1, 7) for _ in range(choose.randint(1, 4))]
    rank = {(s, i): i + choose.random() for s, n in enumerate(lengths) for i in range(n)}
    signals = []
    for _ in range(choose.randint(0, 3 * len(lengths))):
        one, other = choose.choice(list(rank)), choose.choice(list(rank))
        if one[0] == other[0]:
            continue
        one, other = sorted((one, other), key=lambda step: rank[step])
        signals.append(Signal(*one, *other))
    buffers = []
    for _ in range(choose.randint(1, most_buffers)):
        spans = []
        for stream in choose.sample(range(len(lengths)), choose.randint(1, min(2, len(lengths)))):
            first = choose.randrange(lengths[stream])
            spans.append(Span(stream, first, choose.randrange(first, lengths[stream])))
        buffers.append(SharedBuffer(choose.choice([0, 1, 64, 100, 640, 4096]), tuple(spans)))
    return lengths, signals, buffers


def _reachable(lengths: list[int], signals: list[Signal]) -> dict[Step, set[Step]]:
    """The steps that run after each step, by walking: nothing of vector clocks."""
    after: dict[Step, set[Step]] = {(s, i): set() for s, n in enumerate(lengths) for i in range(n)}
    for stream, step in after:
        if (stream, step + 1) in after:
            after[stream, step].add((stream, step + 1))
    for signal in signals:
        after[signal.signals, signal.before].add((signal.waits, signal.after))
    found: dict[Step, set[Step]] = {}
    for start in after:
        seen: set[Step] = set()
        pending = list(after[start])
        while pending:
            step = pending.pop()
            if step not in seen:
                seen.add(step)
                pending.extend(after[step])
        found[start] = seen
    return found


def _ordered(one: SharedBuffer, other: SharedBuffer, after: dict[Step, set[Step]]) -> bool:
    return all(
        (b.stream, b.first) in after[a.stream, a.last] for a in one.spans for b in other.spans
    )


def test_thousands_of_random_cases_never_share_what_is_not_ordered() -> None:
    choose = random.Random(5)
    shared = 0
    for _ in range(2500):
        lengths, signals, buffers = _random_case(choose, 14)
        order = Streams(lengths, signals)
        placement = streams.plan(buffers, order)
        streams.verify(buffers, order, placement)
        assert placement.lower_bound <= placement.size
        after = _reachable(lengths, signals)
        where = [(o, o + b.size) for o, b in zip(placement.offsets, buffers)]
        for (i, one), (j, other) in itertools.combinations(enumerate(buffers), 2):
            overlap = where[i][0] < where[j][1] and where[j][0] < where[i][1]
            if overlap and one.size and other.size:
                shared += 1
                assert _ordered(one, other, after) or _ordered(other, one, after)
    assert shared > 1000  # memory was used again, or nothing was tested


def test_random_schedules_find_what_they_left() -> None:
    """Each buffer is written at its first use and must be whole at every later one, in whatever
    order the signals allow."""
    choose = random.Random(6)
    for _ in range(400):
        lengths, signals, buffers = _random_case(choose, 10)
        placement = streams.plan(buffers, Streams(lengths, signals))
        owner: dict[int, int] = {}
        begun: set[int] = set()
        uses_left = [sum(s.last - s.first + 1 for s in b.spans) for b in buffers]
        done = [0] * len(lengths)
        while any(d < n for d, n in zip(done, lengths)):
            ready = [
                stream
                for stream, step in enumerate(done)
                if step < lengths[stream]
                and all(
                    done[s.signals] > s.before
                    for s in signals
                    if (s.waits, s.after) == (stream, step)
                )
            ]
            stream = choose.choice(ready)
            step = done[stream]
            done[stream] += 1
            for i, buffer in enumerate(buffers):
                used = any(s.stream == stream and s.first <= step <= s.last for s in buffer.spans)
                if not used:
                    continue
                # In units of the alignment; a buffer of no bytes owns nothing.
                start = placement.offsets[i] // ALIGNMENT
                cells = range(start, start + aligned(buffer.size) // ALIGNMENT)
                if i not in begun:
                    begun.add(i)
                    owner.update(dict.fromkeys(cells, i))
                assert all(owner[cell] == i for cell in cells)
                uses_left[i] -= 1
        assert not any(uses_left)


def test_the_bound_is_the_heaviest_set_without_order() -> None:
    choose = random.Random(7)
    for _ in range(600):
        lengths, signals, buffers = _random_case(choose, 7)
        after = _reachable(lengths, signals)
        heaviest = 0
        for chosen in itertools.product([False, True], repeat=len(buffers)):
            kept = [buffer for buffer, taken in zip(buffers, chosen) if taken]
            if not any(_ordered(a, b, after) for a, b in itertools.permutations(kept, 2)):
                heaviest = max(heaviest, sum(aligned(buffer.size) for buffer in kept))
        assert streams.lower_bound(buffers, Streams(lengths, signals)) == heaviest


def test_one_stream_is_the_planner_of_steps() -> None:
    choose = random.Random(8)
    for _ in range(300):
        lives = []
        for _ in range(choose.randint(1, 25)):
            first = choose.randrange(12)
            lives.append((64 * choose.randint(0, 40), first, choose.randrange(first, 12)))
        plain = [planner.Buffer(*life) for life in lives]
        buffers = [SharedBuffer(size, (Span(0, first, last),)) for size, first, last in lives]
        placement = streams.plan(buffers, Streams([12]))
        planner.verify(plain, placement)
        assert placement.lower_bound == planner.lower_bound(plain)


def test_branches_share_only_after_a_signal() -> None:
    left = SharedBuffer(640, (Span(0, 0, 1),))
    right = SharedBuffer(640, (Span(1, 3, 4),))  # later by number, not by order
    apart = streams.plan([left, right], Streams([5, 5]))
    assert apart.size == apart.lower_bound == 1280
    together = streams.plan([left, right], Streams([5, 5], [Signal(0, 1, 1, 2)]))
    assert together.size == together.lower_bound == 640
    # Through a third stream, and only from the step on that waits.
    through = [Signal(0, 1, 2, 0), Signal(2, 0, 1, 3)]
    assert streams.plan([left, right], Streams([5, 5, 1], through)).size == 640
    early = SharedBuffer(640, (Span(1, 2, 4),))
    assert streams.plan([left, early], Streams([5, 5, 1], through)).size == 1280


def test_a_buffer_handed_over_is_held_by_both_streams() -> None:
    """Made on one stream, read on another: free again when both are done."""
    order = Streams([4, 4], [Signal(0, 0, 1, 0)])
    handed = SharedBuffer(640, (Span(0, 0, 0), Span(1, 0, 1)))
    next_here = SharedBuffer(640, (Span(0, 1, 3),))  # the reader may still be at it
    assert streams.plan([handed, next_here], order).size == 1280
    next_there = SharedBuffer(640, (Span(1, 2, 3),))
    assert streams.plan([handed, next_there], order).size == 640


def test_the_verifier_sees_faults() -> None:
    order = Streams([2, 2])
    buffers = [SharedBuffer(64, (Span(0, 0, 0),)), SharedBuffer(64, (Span(1, 1, 1),))]
    right = streams.plan(buffers, order)
    streams.verify(buffers, order, right)
    for offsets, size, fault in (
        ([0, 0], 128, "overlap"),
        ([0, 64], 64, "does not fit"),
        ([0, 32], 128, "does not fit"),
        ([0], 128, "offsets"),
    ):
        with pytest.raises(ValueError, match=fault):
            streams.verify(buffers, order, streams.Placement(offsets, size, 128, "by hand"))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="waits for itself"):
        Streams([2, 2], [Signal(0, 1, 1, 0), Signal(1, 1, 0, 0)])
    with pytest.raises(ValueError, match="none such"):
        Streams([2], [Signal(0, 0, 1, 0)])
    order = Streams([2, 2])
    for size, spans in (
        (-1, (Span(0, 0, 0),)),
        (64, ()),
        (64, (Span(0, 1, 0),)),
        (64, (Span(2, 0, 0),)),
        (64, (Span(0, 0, 0), Span(0, 1, 1))),
    ):
        with pytest.raises(ValueError, match="buffer 0"):
            streams.plan([SharedBuffer(size, spans)], order)
