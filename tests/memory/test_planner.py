"""The planner: never overlapping, close to the bound, quick enough."""

from __future__ import annotations

import random
import statistics

import pytest

from paddle_fluid_boost.memory import library, planner
from paddle_fluid_boost.memory.planner import Buffer


def _random_buffers(rng: random.Random, count: int) -> list[Buffer]:
    steps = rng.randint(1, 2 * count + 1)
    buffers = []
    for _ in range(count):
        first = rng.randrange(steps)
        last = min(steps - 1, first + int(rng.expovariate(1 / 4)))
        buffers.append(Buffer(int(rng.paretovariate(0.8) * 100) % 10**7, first, last))
    return buffers


def test_thousands_of_random_lifetimes_never_overlap() -> None:
    rng = random.Random(5)
    for _ in range(1500):
        buffers = _random_buffers(rng, rng.randint(0, 24))
        placement = planner.plan(buffers, search_ms=1)
        planner.verify(buffers, placement)
        assert placement.size >= placement.lower_bound == planner.lower_bound(buffers)


def test_chain_needs_two_largest_neighbours() -> None:
    sizes = [640, 128, 1280, 64, 320]
    buffers = [Buffer(size, i, i + 1) for i, size in enumerate(sizes)]
    assert planner.plan(buffers).size == 1280 + 128


def test_net_like_lifetimes_meet_the_bound() -> None:
    rng = random.Random(3)
    buffers = []
    for i in range(120):
        buffers.append(Buffer(64 * rng.randint(100, 4000), i, i + 1))
        if i % 3 == 0:
            buffers.append(Buffer(64 * rng.randint(100, 4000), i, i + 3))
    placement = planner.plan(buffers, search_ms=2000)
    planner.verify(buffers, placement)
    assert placement.ratio <= 1.01


def test_hard_instance_is_better_than_greedy_by_size() -> None:
    rng = random.Random(11)
    buffers = _random_buffers(rng, 150)
    assert planner.plan(buffers, search_ms=300).size <= planner.greedy(buffers, "size").size


def test_sizes_are_aligned() -> None:
    placement = planner.plan([Buffer(1, 0, 1), Buffer(65, 0, 1)])
    assert sorted(placement.offsets)[0] == 0
    assert all(offset % planner.ALIGNMENT == 0 for offset in placement.offsets)
    assert placement.size == 3 * planner.ALIGNMENT


def test_nothing_to_place() -> None:
    placement = planner.plan([])
    assert (placement.size, placement.offsets, placement.ratio) == (0, [], 1.0)


def test_verifier_sees_overlap() -> None:
    buffers = [Buffer(64, 0, 2), Buffer(64, 2, 3)]
    with pytest.raises(ValueError, match="overlap"):
        planner.verify(buffers, planner.Placement([0, 0], 64, 128, "wrong"))
    with pytest.raises(ValueError, match="does not fit"):
        planner.verify(buffers, planner.Placement([0, 64], 64, 128, "wrong"))


def test_bad_lifetime_is_named() -> None:
    with pytest.raises(ValueError, match="buffer 1 is not a lifetime"):
        planner.plan([Buffer(1, 0, 0), Buffer(1, 3, 2)])


def _perfect_packing(seed: int) -> list[Buffer]:
    """150 to 450 buffers that fill a square of memory and time without a gap, cut at random.

    The shape of MiniMalloc's hard instances (Moffitt, 2023): the lower bound is the capacity.
    """
    rng = random.Random(seed)
    rectangles = [(0, 1024, 0, 1024)]
    count = rng.randint(150, 450)
    while len(rectangles) < count:
        few = rng.sample(range(len(rectangles)), min(3, len(rectangles)))
        largest = max(few, key=lambda k: _area(rectangles[k]))
        first, end, low, high = rectangles[largest]
        if rng.random() < 0.5 and end - first > 1:
            cut = rng.randint(first + 1, end - 1)
            rectangles[largest] = (first, cut, low, high)
            rectangles.append((cut, end, low, high))
        elif high - low > 1:
            cut = rng.randint(low + 1, high - 1)
            rectangles[largest] = (first, end, low, cut)
            rectangles.append((first, end, cut, high))
    rng.shuffle(rectangles)
    return [Buffer((high - low) * 1024, first, end - 1) for first, end, low, high in rectangles]


def _area(rectangle: tuple[int, int, int, int]) -> int:
    first, end, low, high = rectangle
    return (end - first) * (high - low)


@pytest.mark.skipif(library.missing() is not None, reason="the search was not built")
def test_search_comes_close_where_greedy_does_not() -> None:
    ratios, greedy = [], []
    for seed in (1, 4, 8, 13, 14):
        buffers = _perfect_packing(seed)
        greedy.append(planner.greedy(buffers, "size").ratio)
        placement = planner.plan(buffers, search_ms=1000)
        planner.verify(buffers, placement)
        ratios.append(placement.ratio)
    assert statistics.median(greedy) > 1.25
    assert statistics.median(ratios) <= 1.10


@pytest.mark.long
@pytest.mark.skipif(library.missing() is not None, reason="the search was not built")
def test_many_hard_instances() -> None:
    """How far the search comes depends on the machine: on a busy one a few stay above 1.10."""
    ratios = []
    for seed in range(100, 120):
        buffers = _perfect_packing(seed)
        placement = planner.plan(buffers, search_ms=12_000)
        planner.verify(buffers, placement)
        ratios.append(placement.ratio)
    assert statistics.median(ratios) <= 1.05
    assert max(ratios) <= 1.25
