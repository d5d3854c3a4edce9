"""Measures what the hardware library proposes for a program, and takes the fastest.

:func:`select.choose` takes the first version that is clearly faster than eager, so that the user
gets it soon.  For a program that turns out to be worth more, this looks at all candidates: every
engine, in each of its settings, then the best of them with fewer threads.

Times are compared in interleaved blocks: in each round every candidate that is still in the race
runs a few times in a row, so that a slow moment of the machine meets all, and none is measured
while the threads of another are still awake.  Who is clearly behind leaves the race.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..cache import store
from ..cache.programs import program_key
from ..cache.surroundings import key, surroundings
from ..capture.program import CapturedProgram
from ..hardware.advice import cpu_advice, thread_counts
from ..hardware.probe import probe
from ..options import options
from .race import Race, Runner
from .remembered import TRUSTED
from .select import Choice, offers

_KIND = "tuned"

#: Rounds: after the first a candidate this much slower than the best is out, after the second
#: one slower by the second factor, and so on.
_TOLERANCE = (1.5, 1.3, 1.2, 1.12, 1.08, 1.06, 1.05, 1.05, 1.05, 1.05)
#: Those within this factor count as equal: then fewer threads, which leave cores to others.
_EQUAL = 1.02


class Memory(Protocol):
    """Where choices are remembered: by a key, as plain values that go through JSON."""

    def read(self, key: str) -> dict[str, Any] | None: ...

    def write(self, key: str, value: dict[str, Any]) -> None: ...


class Remembering:
    """Remembers the last choices of this process, and on the disk where there is a cache."""

    def __init__(self, size: int = 256, on_disk: bool = True) -> None:
        self._size = size
        self._on_disk = on_disk
        self._choices: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def read(self, key: str) -> dict[str, Any] | None:
        """What was written under the key and may still be trusted, or None."""
        if key in self._choices or not self._on_disk:
            return self._choices.get(key)
        value = store.read(_KIND, key) or {}
        made = value.get("made")
        return value if isinstance(made, float) and 0 <= time.time() - made < TRUSTED else None

    def write(self, key: str, value: dict[str, Any]) -> None:
        """Remembers; the oldest goes where there are too many."""
        self._choices[key] = value
        while len(self._choices) > self._size:
            self._choices.popitem(last=False)
        if self._on_disk:
            store.write(_KIND, key, {**value, "made": time.time()}, {"tuned": str(value)})


REMEMBERED: Memory = Remembering()


def tune(
    captured: CapturedProgram,
    inputs: Sequence[Any],
    want: Sequence[Any],
    eager_seconds: float,
    pause: Callable[[float], None],
    *,
    budget: float,
    memory: Memory | None = None,
) -> Choice:
    """The fastest candidate found within ``budget`` seconds of work, or none that is right.

    Arguments as for :func:`select.choose`.  A choice that ``memory`` has for this program on this
    machine is built and not measured again against others.
    """
    memory = REMEMBERED if memory is None else memory
    race = Race(captured, inputs, want, pause, budget)
    name = fingerprint(captured)
    known = memory.read(name)
    try:
        winner = _remembered(race, known)
        if winner is None:
            winner, known = _find(race), None
    except BaseException:  # the worker is to stop
        race.close()
        raise
    choice = Choice(eager=eager_seconds, tried=race.tried)
    if winner is not None:
        choice.executable, choice.compiled = winner.executable, winner.seconds
        if known is None:
            memory.write(name, {"engine": winner.engine, "settings": winner.settings})
    return choice


def fingerprint(captured: CapturedProgram) -> str:
    """The same for a like program where the same choice is right: on a like machine, with the same
    software, options and hardware library."""
    return key(_KIND, program_key(captured), surroundings(), probe().identity(), repr(cpu_advice()))


def _remembered(race: Race, known: dict[str, Any] | None) -> Runner | None:
    """The remembered choice, built and timed; None where it is none of today's candidates, cannot
    be built or is not right."""
    if not known or not _like_an_offer(race.captured, known):
        return None
    runner = race.enter(known["engine"], known["settings"])
    if runner is not None:
        race.block(runner)
        if runner.failed:
            return None
        race.tried.append((runner.label, f"{_ms(runner.seconds)}, remembered"))
    return runner


def _like_an_offer(captured: CapturedProgram, known: dict[str, Any]) -> bool:
    """Whether an engine offers settings of the same form: what was remembered may come from a file
    that somebody else wrote."""
    form = _form(known.get("settings"))
    return any(
        engine == known.get("engine") and _form(settings) == form
        for engine, settings in offers(captured, [])
    )


def _form(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return None
    return {name: value if name != "threads" else type(value) for name, value in settings.items()}


def _find(race: Race) -> Runner | None:
    runners: list[Runner] = []
    fallback = cpu_advice().fallback
    offered = list(offers(race.captured, race.tried))
    for engine, settings in sorted(offered, key=lambda offer: offer[0] in fallback):
        why = "the time was up" if race.over else "a fallback" if engine in fallback else ""
        if runners and why:
            race.tried.append((f"{engine} {settings}", f"not tried: {why}"))
            continue
        runner = race.enter(engine, settings)
        if runner is not None:
            race.block(runner)
            runners.append(runner)
            runners = _still_in(race, runners, _TOLERANCE[0])
    runners = _with_fewer_threads(race, runners)
    for tolerance in _TOLERANCE:
        if len(runners) < 2 or race.over:
            break
        for runner in runners:
            race.block(runner)
        runners = _still_in(race, runners, tolerance)
    if not runners:
        return None
    best = min(runner.seconds for runner in runners)
    equal = [runner for runner in runners if runner.seconds <= _EQUAL * best]
    winner = min(equal, key=lambda runner: (runner.threads, runner.seconds))
    for runner in runners:
        if runner is not winner:
            _leave(race, runner, "lost")
    race.tried.append((winner.label, f"{_ms(winner.seconds)}, the fastest"))
    return winner


def _with_fewer_threads(race: Race, runners: list[Runner]) -> list[Runner]:
    """Adds the best candidates with fewer threads, as long as that does no harm: beyond the knee
    of the curve further threads only wait for each other."""
    if options.threads:
        return runners  # the user's number
    for leader in list(runners):
        current = leader
        for count in thread_counts()[1:]:
            if race.over or "threads" not in current.settings or count >= current.threads:
                break
            runner = race.enter(current.engine, {**current.settings, "threads": count})
            if runner is None:
                break
            race.block(runner)
            if runner.seconds > _TOLERANCE[0] * current.seconds:
                if not runner.failed:
                    _leave(race, runner, "lost")
                break
            runners.append(runner)
            current = runner
    return _still_in(race, runners, _TOLERANCE[0])


def _still_in(race: Race, runners: list[Runner], tolerance: float) -> list[Runner]:
    running = [runner for runner in runners if not runner.failed]
    best = min((runner.seconds for runner in running), default=0.0)
    staying = [runner for runner in running if runner.seconds <= tolerance * best]
    for runner in runners:
        if runner not in staying and not runner.failed:
            _leave(race, runner, "lost")
    return staying


def _leave(race: Race, runner: Runner, why: str) -> None:
    race.tried.append((runner.label, f"{_ms(runner.seconds)}, {why} after {runner.blocks} blocks"))
    runner.executable.close()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
