"""A caller, a background worker and a clock: what a compile policy costs on a stream of calls.

Time in calls is what counts (gaps between calls are free).  A compile runs at full speed on its own
core and makes the caller's calls slower by the share ``interference`` while it runs, one at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddle_fluid_boost.hotspot.estimates import Estimates
from paddle_fluid_boost.hotspot.monitor import FunctionStats
from paddle_fluid_boost.hotspot.policy import COMPILE, COMPILE_GENERIC, Policy
from paddle_fluid_boost.hotspot.signature_stats import COMPILED, QUEUED, SignatureStats


@dataclass(frozen=True)
class World:
    """The truth, which the policy does not know.  Times in seconds.

    ratio: compiled time / eager time; a ratio above 1 is rejected by the worker's measurement.
    noise: relative spread of single call times.
    """

    eager: float
    compile: float
    ratio: float
    interference: float
    noise: float = 0.0


@dataclass
class Call:
    """One call: its signature, and the idle time before it."""

    signature: int
    gap: float = 0.0


class Clock:
    """Wall time, and a worker with one running compile and others that wait.

    choose: the signature of those that wait whose compile starts next; first come, first served
        where not given.
    """

    def __init__(self, world: World, choose: Callable[[list[int]], int] | None = None) -> None:
        self.world = world
        self.now = 0.0
        self.running: int | None = None
        self.left = 0.0
        self.waiting: list[int] = []
        self.done: set[int] = set()
        self.choose = choose or (lambda waiting: waiting[0])

    def submit(self, signature: int) -> None:
        self.waiting.append(signature)
        self._next()

    def idle(self, seconds: float) -> None:
        """The caller is away; the worker goes on."""
        end = self.now + seconds
        while self.running is not None and self.now < end:
            self._work(min(end - self.now, self.left))
        self.now = end

    def call(self, work: float) -> float:
        """The caller needs ``work`` seconds of processor time; returns the seconds it took."""
        start, speed = self.now, 1.0 - self.world.interference
        while self.running is not None and work > 1e-12:
            step = min(work / speed, self.left)
            work -= step * speed
            self._work(step)
        self.now += max(work, 0.0)
        return self.now - start

    def _work(self, seconds: float) -> None:
        self.now += seconds
        self.left -= seconds
        if self.left <= 1e-12 and self.running is not None:
            self.done.add(self.running)
            self.running = None
            self._next()

    def _next(self) -> None:
        if self.running is None and self.waiting:
            self.running = self.choose(self.waiting)
            self.waiting.remove(self.running)
            self.left = self.world.compile


def always_eager(world: World, calls: Iterable[Call], seed: int) -> float:
    rng = random.Random(seed)
    return sum(world.eager * _noise(world, rng) for _ in calls)


def compile_at_first_sight(world: World, calls: Iterable[Call], seed: int) -> float:
    """Always-compiled with the same worker: every signature is queued before its first call."""
    rng, clock, spent, seen = random.Random(seed), Clock(world), 0.0, set()
    for call in calls:
        clock.idle(call.gap)
        if call.signature not in seen:
            seen.add(call.signature)
            clock.submit(call.signature)
        ratio = world.ratio if call.signature in clock.done else 1.0
        spent += clock.call(world.eager * ratio * _noise(world, rng))
    return spent


def compile_and_wait(world: World, calls: Iterable[Call], seed: int) -> float:
    """Always-compiled as stock jit does it: the first call of a signature waits for its compile."""
    rng, spent, seen = random.Random(seed), 0.0, set()
    for call in calls:
        if call.signature not in seen:
            seen.add(call.signature)
            spent += world.compile
        spent += world.eager * world.ratio * _noise(world, rng)
    return spent


class PolicyRun:
    """A run of one stream of calls under the policy, which starts with its priors."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.policy = Policy(Estimates(cores=2))
        self.function = FunctionStats("simulated")
        self.flying: dict[int, SignatureStats] = {}
        self.clock = Clock(world, self._most_valuable)
        self.spent = 0.0
        self.compiles = 0

    def run(self, calls: Iterable[Call]) -> float:
        """Seconds in calls."""
        for call in calls:
            self.clock.idle(call.gap)
            self._settle()
            self.spent += self._call(call.signature)
        return self.spent

    def _call(self, signature: int) -> float:
        world, work = self.world, self.world.eager * _noise(self.world, self.rng)
        stats = self.function.signatures.get(signature)
        if stats is not None and stats.state == COMPILED:
            took = self.clock.call(work * world.ratio)
            if stats.sample_due():
                stats.record_compiled(took, self.clock.now)
            return took
        stats = self.function.signature(signature)
        took = self.clock.call(work)
        self._settle()
        if stats.record_eager(took, self.clock.now):
            self._decide(stats, signature)
        return took

    def _decide(self, stats: SignatureStats, signature: int) -> None:
        function = self.function
        decision = self.policy.decide(function, stats, self.clock.now)
        if decision.action == COMPILE:
            self.compiles += 1
            self.flying[signature] = stats
            self.clock.submit(signature)
        elif decision.action == COMPILE_GENERIC:
            self.policy.rejected(
                function, function.generic, "no generic version", cost=0.0, permanent=True
            )

    def _most_valuable(self, waiting: list[int]) -> int:
        def value(signature: int) -> float:
            return self.policy.priority(self.function, self.flying[signature], self.clock.now)

        return max(waiting, key=value)

    def _settle(self) -> None:
        """Publishes or rejects what the worker has finished; marks what it has begun."""
        world, now = self.world, self.clock.now
        for signature in sorted(self.clock.done):
            stats = self.flying.pop(signature)
            if world.ratio * 1.05 <= 1.0:
                self.policy.published(
                    self.function,
                    stats,
                    eager=world.eager,
                    compiled=world.eager * world.ratio,
                    cost=world.compile,
                    now=now,
                )
            else:
                self.policy.rejected(
                    self.function, stats, "not faster than eager", cost=world.compile, now=now
                )
        self.clock.done.clear()
        running = self.flying.get(self.clock.running) if self.flying else None
        if running is not None and running.state == QUEUED:
            running.start_compile()


def _noise(world: World, rng: random.Random) -> float:
    return rng.lognormvariate(0.0, world.noise) if world.noise else 1.0
