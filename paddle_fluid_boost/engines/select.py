"""Builds what the engines offer for a program, keeps what is right, and takes the fastest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..options import options
from .base import Engine, Executable
from .compare import differences
from .registry import engine_names, make_engine

log = logging.getLogger("paddle_fluid_boost.compiles")

#: Each candidate and eager are timed in so many turns ...
_TURNS = 3
#: ... of up to so many runs, but not longer than this in all.
_RUNS_PER_TURN = 5
_SECONDS_PER_TURN = 0.1


@dataclass
class Choice:
    """The outcome: an executable, or none and the reasons.

    eager / compiled: median seconds of one run, measured in turn in this thread.
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
    eager: Callable[[], Any],
) -> Choice:
    """Builds every candidate, verifies it on ``inputs`` against ``want``, times it beside eager.

    Args:
        captured: the program; its outputs correspond to ``want``.
        inputs: dense eager tensors of the captured shapes, which nobody else writes to.
        want: what eager returned for them.
        eager: runs the original call once on the same inputs.
    """
    choice = Choice()
    kept: list[tuple[str, Executable]] = []
    for name in engine_names():
        engine = make_engine(name)
        reason = engine.unavailable()
        if reason:
            choice.tried.append((name, f"unavailable: {reason}"))
            continue
        kept += _right_ones(engine, captured, inputs, want, choice.tried)
    if kept:
        _take_fastest(choice, kept, inputs, eager)
    return choice


def _right_ones(
    engine: Engine,
    captured: CapturedProgram,
    inputs: Sequence[Any],
    want: Sequence[Any],
    tried: list[tuple[str, str]],
) -> list[tuple[str, Executable]]:
    right = []
    for settings in engine.candidates(captured):
        label = f"{engine.name} {settings}" if settings else engine.name
        try:
            executable = engine.build(captured, settings)
        except EngineError as error:
            tried.append((label, f"not built: {error}"))
            continue
        try:
            reason = differences(executable(inputs), want, options.rtol)
        except EngineError as error:
            reason = str(error)
        if reason:
            log.info("%s: wrong result: %s", label, reason)
            tried.append((label, f"wrong result: {reason}"))
            executable.close()
        else:
            right.append((label, executable))
    return right


def _take_fastest(
    choice: Choice,
    kept: list[tuple[str, Executable]],
    inputs: Sequence[Any],
    eager: Callable[[], Any],
) -> None:
    times: dict[str, list[float]] = {label: [] for label, _ in kept}
    eager_times: list[float] = []
    for _ in range(_TURNS):
        eager_times += _time(eager)
        for label, executable in kept:
            times[label] += _time(lambda run=executable: run(inputs))  # type: ignore[misc]
    choice.eager = median(eager_times)
    medians = {label: median(values) for label, values in times.items()}
    best = min(medians, key=medians.__getitem__)
    for label, executable in kept:
        outcome = f"{medians[label] * 1e3:.3g} ms against {choice.eager * 1e3:.3g} ms eager"
        if label == best:
            choice.executable, choice.compiled = executable, medians[label]
        else:
            executable.close()
        choice.tried.append((label, outcome))


def _time(run: Callable[[], Any]) -> list[float]:
    """Seconds of a few runs after one that warms up."""
    run()
    times: list[float] = []
    while len(times) < _RUNS_PER_TURN and sum(times) < _SECONDS_PER_TURN:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return times
