"""A caller, a background worker and a clock: what a compile policy costs on a stream of calls.

Time in calls is what counts (gaps between calls are free).  A compile runs at full speed on its own
core and makes the caller's calls slower by the share ``interference`` while it runs, one at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from paddle_fluid_boost.hotspot.estimates import Estimates
from paddle_fluid_boost.hotspot.monitor import FunctionStats, SignatureStats
from paddle_fluid_boost.hotspot.policy import Policy


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


@dataclass
class Clock:
    """Wall time, and the worker's queue of (signature, seconds of work left)."""

    world: World
    now: float = 0.0
    queue: list[list[float]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)

    def idle(self, seconds: float) -> None:
        """The caller is away; the worker goes on."""
        self.now += seconds
        while self.queue and seconds > 0.0:
            step = min(seconds, self.queue[0][1])
            seconds -= step
            self._work(step)

    def call(self, work: float) -> float:
        """The caller needs ``work`` seconds of processor time; returns the seconds it took."""
        start = self.now
        while work > 0.0:
            if not self.queue:
                self.now += work
                break
            speed = 1.0 - self.world.interference
            step = min(work / speed, self.queue[0][1])
            work -= step * speed
            self.now += step
            self._work(step)
            if work < 1e-12:
                break
        return self.now - start

    def _work(self, seconds: float) -> None:
        self.queue[0][1] -= seconds
        if self.queue[0][1] <= 1e-12:
            self.done.append(int(self.queue.pop(0)[0]))


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
            clock.queue.append([call.signature, world.compile])
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


def with_policy(
    world: World, calls: Iterable[Call], seed: int, policy: Policy | None = None
) -> tuple[float, Policy, FunctionStats]:
    """Seconds in calls under the policy, which starts with its priors when none is given."""
    rng, clock, spent = random.Random(seed), Clock(world), 0.0
    policy = policy or Policy(Estimates(cores=2))
    function = FunctionStats("simulated")
    flying: dict[int, SignatureStats] = {}
    for call in calls:
        clock.idle(call.gap)
        _settle(world, clock, policy, function, flying)
        stats = function.signatures.get(call.signature)
        noise = _noise(world, rng)
        if stats is not None and stats.state == "compiled":
            stats.sample_due()
            took = clock.call(world.eager * world.ratio * noise)
            stats.record_compiled(took, clock.now)
            spent += took
            continue
        stats = function.signature(call.signature)
        took = clock.call(world.eager * noise)
        spent += took
        _settle(world, clock, policy, function, flying)
        if stats.record_eager(took, clock.now):
            decision = policy.decide(function, stats, clock.now)
            if decision.action == "compile":
                flying[call.signature] = stats
                clock.queue.append([call.signature, world.compile])
                if len(clock.queue) == 1:
                    stats.start_compile()
            elif decision.action == "compile_generic":
                function.generic.start_compile()
                policy.rejected(
                    function, function.generic, "no generic version", cost=0.0, permanent=True
                )
    return spent, policy, function


def _settle(
    world: World,
    clock: Clock,
    policy: Policy,
    function: FunctionStats,
    flying: dict[int, SignatureStats],
) -> None:
    """Publishes or rejects what the worker has finished."""
    for key in [k for k in clock.done if k in flying]:
        stats = flying.pop(key)
        clock.done.remove(key)
        if world.ratio < 0.95:
            policy.published(
                function,
                stats,
                eager=world.eager,
                compiled=world.eager * world.ratio,
                cost=world.compile,
            )
        else:
            policy.rejected(
                function, stats, "not faster than eager", cost=world.compile, now=clock.now
            )
    if clock.queue and (stats := flying.get(int(clock.queue[0][0]))) and stats.state == "queued":
        stats.start_compile()


def _noise(world: World, rng: random.Random) -> float:
    return rng.lognormvariate(0.0, world.noise) if world.noise else 1.0
