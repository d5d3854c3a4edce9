"""Builds what the engines offer for a program, keeps what is right, and takes the fastest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError, UnsupportedPaddleError
from ..options import options
from .base import Engine, Executable
from .compare import differences
from .registry import engine_names, make_engine

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

    Args:
        captured: the program; its outputs correspond to ``want``.
        inputs: dense eager tensors of the captured shapes, which nobody else writes to.
        want: what eager returned for them.
        eager_seconds: what one eager call costs.
        pause: called with the seconds a run took, between runs: some engines hold the interpreter
            while they run, and the user's thread must get its turn.
    """
    choice = Choice(eager=eager_seconds)
    for label, executable in _right_ones(captured, inputs, want, choice.tried):
        seconds = _time(executable, inputs, pause)
        choice.tried.append((label, f"{_ms(seconds)} against {_ms(eager_seconds)} eager"))
        if choice.executable is None or seconds < choice.compiled:
            if choice.executable is not None:
                choice.executable.close()
            choice.executable, choice.compiled = executable, seconds
        else:
            executable.close()
        if choice.compiled * _CLEAR_GAIN <= eager_seconds:
            break
    return choice


def _right_ones(
    captured: CapturedProgram,
    inputs: Sequence[Any],
    want: Sequence[Any],
    tried: list[tuple[str, str]],
) -> Iterator[tuple[str, Executable]]:
    """Every candidate of every engine that can be built and gives eager's result."""
    for name in engine_names():
        try:
            engine = make_engine(name)
            reason = engine.unavailable()
        except UnsupportedPaddleError as error:  # it needs a name that this Paddle lacks
            reason = str(error)
        if reason:
            tried.append((name, f"unavailable: {reason}"))
            continue
        for settings in engine.candidates(captured):
            label = f"{engine.name} {settings}" if settings else engine.name
            outcome = _build(engine, captured, settings, inputs, want)
            if isinstance(outcome, str):
                log.info("%s: %s", label, outcome)
                tried.append((label, outcome))
            else:
                yield label, outcome


def _build(
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


def _time(executable: Executable, inputs: Sequence[Any], pause: Callable[[float], None]) -> float:
    """Seconds of the quickest of a few runs: the user's thread competes for the processor, which
    adds to some of them.  ``Policy.review`` judges a version by its calls in use."""
    times: list[float] = []
    while len(times) < _RUNS and (len(times) < 2 or sum(times) < _SECONDS):
        pause(times[-1] if times else 0.0)
        started = time.perf_counter()
        executable(inputs)
        times.append(time.perf_counter() - started)
    return min(times)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
