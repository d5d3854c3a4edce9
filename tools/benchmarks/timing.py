"""How everything here is timed: in blocks, interleaved, in an order that changes.

An OpenMP pool keeps its threads spinning for 200 ms after its last region, which takes a core from
whoever runs next.  Calls of several competitors must therefore not alternate one by one: each gets
a block (a pause longer than the spinning, warm-up calls, timed calls), and the rounds repeat so
that a slow phase of the machine meets all of them.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds; longer than the 0.2 s for which OpenMP threads spin (KMP_BLOCKTIME).
PAUSE = 0.3


@dataclass(frozen=True)
class Timing:
    """Times of single calls, in milliseconds, in the order in which they were taken."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def maximum(self) -> float:
        return max(self.samples)

    @property
    def spread(self) -> float:
        """Distance between the quartiles, relative to the median."""
        if len(self.samples) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.samples, n=4)
        return (third - first) / self.median

    def as_dict(self) -> dict[str, Any]:
        return {
            "median_ms": self.median,
            "minimum_ms": self.minimum,
            "maximum_ms": self.maximum,
            "spread": self.spread,
            "samples": len(self.samples),
        }


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def in_blocks(
    competitors: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 6,
    calls: int = 10,
    warm_up: int = 2,
    pause: float = PAUSE,
    seed: int = 0,
) -> dict[str, Timing]:
    """Times all competitors fairly; returns ``rounds * calls`` samples for each."""
    order = list(competitors)
    shuffle = random.Random(seed).shuffle
    samples: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            call = competitors[name]
            time.sleep(pause)
            for _ in range(warm_up):
                call()
            samples[name] += [timed(call) for _ in range(calls)]
    return {name: Timing(tuple(values)) for name, values in samples.items()}


@dataclass(frozen=True)
class QuickTiming:
    """Microseconds of one quick call: by the clock, and of the calling thread's processor time.

    On a machine that does other work the two part, and only the second can be compared; but it
    leaves out what other threads of an engine do.
    """

    wall_us: float
    cpu_us: float


def per_call_us(
    calls: Mapping[str, Callable[[], object]], repeats: int = 2000, rounds: int = 9
) -> dict[str, QuickTiming]:
    """The least mean of each one's turns, as noise only adds."""
    wall = dict.fromkeys(calls, float("inf"))
    cpu = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(repeats // 10 + 1):
                call()
            start, start_cpu = time.perf_counter(), time.thread_time()
            for _ in range(repeats):
                call()
            spent, spent_cpu = time.perf_counter() - start, time.thread_time() - start_cpu
            wall[name] = min(wall[name], spent / repeats * 1e6)
            cpu[name] = min(cpu[name], spent_cpu / repeats * 1e6)
    return {name: QuickTiming(wall[name], cpu[name]) for name in calls}
