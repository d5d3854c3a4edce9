"""Builds what the engines offer for a program, keeps what is right, and takes the fastest."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError, UnsupportedPaddleError
from ..options import options
from . import openmp
from .base import Engine, Executable
from .compare import differences
from .registry import engine_names, make_engine
from .remembered import Remembered, keep, recall

resource: Any = None
with contextlib.suppress(ImportError):  # there is none on Windows
    import resource

log = logging.getLogger("paddle_fluid_boost.compiles")

#: A candidate is timed in so many runs after those that verify it and warm it up ...
_RUNS = 5
#: ... but not longer than this (seconds) once it has two.
_SECONDS = 0.3
#: A candidate this many times faster than eager is taken at once: building and running the others
#: would cost the user's thread more than they could still gain.
_CLEAR_GAIN = 1.2


@dataclass
class Choice:
    """The outcome: an executable, or none and the reasons.

    eager / compiled: seconds of one run.
    tried: (engine and settings, what came of it) of every candidate, for ``explain``.
    """

    executable: Executable | None = None
    eager: float = 0.0
    compiled: float = 0.0
    tried: list[tuple[str, str]] = field(default_factory=list)


def choose(
    captured: CapturedProgram,
    inputs: Sequence[Any],
    want: Sequence[Any],
    eager_seconds: float,
    pause: Callable[[float], None],
) -> Choice:
    """Builds candidates until one is right and clearly faster than eager; else the best of all.

    The winner of an earlier process comes first: it is verified like any other, but one run tells
    that it is still clearly faster, and that it is faster at all is enough.

    Args:
        captured: the program; its outputs correspond to ``want``.
        inputs: dense eager tensors of the captured shapes, which nobody else writes to.
        want: what eager returned for them.
        eager_seconds: what one eager call costs.
        pause: called with the seconds a run took, between runs: some engines hold the interpreter
            while they run, and the user's thread must get its turn.
    """
    choice, best, known = Choice(eager=eager_seconds), "", recall(captured)
    for label, executable in _right_ones(captured, inputs, want, choice.tried, known):
        try:
            seconds = _time(executable, inputs, pause, 1) if label == known.best else math.inf
            if seconds * _CLEAR_GAIN > eager_seconds:
                seconds = _time(executable, inputs, pause)
        except EngineError as error:  # an accelerator may run out of memory at any run
            executable.close()
            choice.tried.append((label, f"failed in a later run: {error}"))
            continue
        except BaseException:  # the worker is to stop
            for built in (executable, choice.executable):
                if built is not None:
                    built.close()
            raise
        choice.tried.append((label, f"{_ms(seconds)} against {_ms(eager_seconds)} eager"))
        if choice.executable is None or seconds < choice.compiled:
            if choice.executable is not None:
                choice.executable.close()
            choice.executable, choice.compiled, best = executable, seconds, label
        else:
            executable.close()
        enough = options.min_gain if best == known.best else _CLEAR_GAIN
        if choice.compiled * enough <= eager_seconds:
            break
    if best and choice.compiled * options.min_gain <= eager_seconds:
        keep(known, captured, best, eager_seconds, choice.compiled)
    return choice


def _right_ones(
    captured: CapturedProgram,
    inputs: Sequence[Any],
    want: Sequence[Any],
    tried: list[tuple[str, str]],
    known: Remembered,
) -> Iterator[tuple[str, Executable]]:
    """Every candidate of every engine that can be built and gives eager's result; the one that won
    in an earlier process comes first."""
    for name, settings in offers(captured, tried, known.best):
        engine = make_engine(name)
        label = label_of(engine, settings)
        outcome = build_right(engine, captured, settings, inputs, want)
        if isinstance(outcome, str):
            log.info("%s: %s", label, outcome)
            tried.append((label, outcome))
        else:
            yield label, outcome


def offers(
    captured: CapturedProgram, tried: list[tuple[str, str]], best: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of an engine, settings) of every candidate, the one with the label ``best`` first;
    ``tried`` takes the engines that cannot be used here, and why."""
    names = engine_names(captured.device)
    if not names:
        tried.append((captured.device, "no engine serves programs on this device"))
    for name in sorted(names, key=lambda name: best.split(" ")[0] != name):
        try:
            engine = make_engine(name)
            reason = engine.unavailable()
        except UnsupportedPaddleError as error:  # it needs a name that this Paddle lacks
            reason = str(error)
        if reason:
            tried.append((name, f"unavailable: {reason}"))
            continue
        candidates = engine.candidates(captured)
        for settings in sorted(candidates, key=lambda one: label_of(engine, one) != best):
            yield name, settings


def label_of(engine: Engine, settings: dict[str, Any]) -> str:
    """How a candidate is called in ``Choice.tried`` and on the disk."""
    return f"{engine.name} {settings}" if settings else engine.name


def build_right(
    engine: Engine,
    captured: CapturedProgram,
    settings: dict[str, Any],
    inputs: Sequence[Any],
    want: Sequence[Any],
) -> Executable | str:
    """A verified executable, or why there is none."""
    try:
        executable = engine.build(captured, settings)
    except EngineError as error:
        return f"not built: {error}"
    try:
        reason = differences(executable(inputs), want, options.rtol)
    except EngineError as error:
        reason = str(error)
    if reason is None:
        return executable
    executable.close()
    return f"wrong result: {reason}"


def _time(
    executable: Executable,
    inputs: Sequence[Any],
    pause: Callable[[float], None],
    runs: int = _RUNS,
) -> float:
    """Seconds of the quickest of ``runs``.  ``Policy.review`` judges a version by its calls in
    use."""
    times: list[float] = []
    while len(times) < runs and (len(times) < 2 or sum(times) < _SECONDS):
        pause(times[-1] if times else 0.0)
        with openmp.team_awake_for(openmp.WHILE_TIMED_MS):
            times.append(run_seconds(executable, inputs))
    return min(times)


def run_seconds(executable: Executable, inputs: Sequence[Any]) -> float:
    """Wall time; the processor time of this thread where others took the processor from it.

    The worker has a low priority beside a user's thread that may use all cores: a run of one
    millisecond then takes thirty.  A user's call meets no such neighbour.
    """
    before, cpu, started = _times_preempted(), time.thread_time(), time.perf_counter()
    executable(inputs)
    wall, cpu = time.perf_counter() - started, time.thread_time() - cpu
    return cpu if _times_preempted() > before else wall


def _times_preempted() -> int:
    """How often the calling thread has lost the processor to another one; 0 where unknown."""
    if resource is None or not hasattr(resource, "RUSAGE_THREAD"):
        return 0
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
