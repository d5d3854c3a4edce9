"""A race between candidates for one program: those in it, how they run, and who is out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from . import openmp
from .base import Executable
from .probe_client import PROBE
from .registry import make_engine
from .select import build_right, label_of, run_seconds

#: Runs of a block that wake the threads, and those that count.
_WAKING, _COUNTED = 2, 6
#: A run that takes longer (seconds) is followed by a pause.
_LONG = 2e-3
#: Blocks are cut short after so many seconds, two runs at least.
_BLOCK_SECONDS = 0.2


@dataclass(eq=False)
class Runner:
    """A candidate in the race.  times: seconds of the runs that count.  blocks: how many there
    were.  failed: it was right once, but a later run of it failed."""

    label: str
    engine: str
    settings: dict[str, Any]
    executable: Executable
    times: list[float] = field(default_factory=list)
    blocks: int = 0
    failed: bool = False

    @property
    def seconds(self) -> float:
        """What a run takes that little disturbs: the lower quartile, as all disturbance only adds.
        The very quickest run may have met an odd moment."""
        return math.inf if self.failed else sorted(self.times)[len(self.times) // 4]

    @property
    def threads(self) -> int:
        return int(self.settings.get("threads", 0))


@dataclass
class Race:
    """What a race needs to know, and what time it may take.

    inputs / want: as for :func:`select.choose`.
    pause: called with the seconds of work just done, so that the user's thread gets its turn.
    budget: seconds of building and running; pauses, and waiting for the child process that tries
        what may crash, do not count.
    """

    captured: CapturedProgram
    inputs: Sequence[Any]
    want: Sequence[Any]
    pause: Callable[[float], None]
    budget: float
    spent: float = 0.0
    tried: list[tuple[str, str]] = field(default_factory=list)
    entered: list[Runner] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the budget is used up."""
        return self.spent >= self.budget

    def enter(self, engine: str, settings: dict[str, Any]) -> Runner | None:
        """A candidate that is built and right, or None."""
        made = make_engine(engine)
        label = label_of(made, settings)
        started, waited = time.perf_counter(), PROBE.waited
        outcome = build_right(made, self.captured, settings, self.inputs, self.want)
        # A child process works for itself; TensorRT may do so for minutes.
        self._did(max(0.0, time.perf_counter() - started - (PROBE.waited - waited)))
        if isinstance(outcome, str):
            self.tried.append((label, outcome))
            return None
        self.entered.append(Runner(label, engine, settings, outcome))
        return self.entered[-1]

    def close(self) -> None:
        """Frees all candidates: the race was broken off."""
        for runner in self.entered:
            runner.executable.close()

    def block(self, runner: Runner) -> None:
        """Runs a candidate a few times in a row; one that fails is out."""
        try:
            self._block(runner)
        except EngineError as error:  # an accelerator may run out of memory at any run
            runner.failed = True
            runner.executable.close()
            self.tried.append((runner.label, f"failed in a later run: {error}"))

    def _block(self, runner: Runner) -> None:
        """Where a run is long, with a pause after each: a call of the user that has begun beside it
        must find an end."""
        begun = self.spent
        with openmp.team_awake_for(openmp.WHILE_TIMED_MS):
            for number in range(_WAKING + _COUNTED):
                started = time.perf_counter()
                seconds = run_seconds(runner.executable, self.inputs)
                took = time.perf_counter() - started
                if number >= _WAKING:
                    runner.times.append(seconds)
                if took > _LONG:
                    self._did(took)
                else:
                    self.spent += took
                if len(runner.times) > 1 and self.spent - begun > _BLOCK_SECONDS:
                    break
        runner.blocks += 1
        self.pause(self.spent - begun)

    def _did(self, seconds: float) -> None:
        self.spent += seconds
        self.pause(seconds)
