"""A second look at versions that serve much: all candidates are raced in the background.

The first version of a signature is published as soon as one is clearly faster than eager.  One
that has served for a while is worth more: the tuner (``engines/tuner.py``) captures the call anew,
races all candidates, and puts the fastest in the place of the version.  A race beside a busy user's
thread may mislead, so the old version is kept until calls of the new one show which is faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..capture import _paddle as pd
from ..capture.program import CapturedProgram
from ..capture.yielding import Stopped
from ..engines.select import Choice
from ..engines.tuner import tune
from ..errors import CaptureRefused
from ..hotspot.signature_stats import SAMPLE
from ..options import options
from .compile import CompileJob
from .plainly import run_plainly
from .signature import Call
from .version import Version

if TYPE_CHECKING:
    from .unit import Unit

#: A version is tuned once it has served for so many times the time that the tuner may take.
_SERVED = 10
#: In use the new version may be this much slower than the old one: medians of calls vary so much.
_NOISE = 1.05

log = logging.getLogger("paddle_fluid_boost.compiles")


def worth_tuning(version: Version) -> bool:
    """Whether the tuner's work is little beside what the version has served.  In ``sync`` mode the
    work would be done in the user's call: never."""
    seconds = options.tune_seconds
    if version.tuned or not seconds or options.sync:
        return False
    return version.stats.compiled_seconds() >= _SERVED * seconds


def confirm(unit: Unit, version: Version) -> None:
    """Compares a tuned version with the one before it, by calls in use; the slower one goes."""
    assert version.before is not None
    old, before = version.before
    version.before = None
    after = version.stats.compiled_median()
    if after <= _NOISE * before:
        old.close()
        return
    reason = f"{old.executable.engine} again: {_ms(before)} in use, the tuner's {_ms(after)}"
    choice = Choice(old.executable, 0.0, before, [("in use", reason)])
    if unit.replace(version, old, choice, reason):
        version.close()


class TuneJob(CompileJob):
    """Races the candidates for the signature of a version in use."""

    def __init__(self, unit: Unit, call: Call, version: Version, eager: Callable[..., Any]) -> None:
        super().__init__(
            unit,
            call,
            version.stats,
            eager,
            version.snapshot,
            version.layers_touched,
            background=True,
        )
        self.key = (id(unit), call.key, "tune")
        self._serving = version

    @property
    def priority(self) -> float:
        """Below every first compile."""
        return 0.0

    def abandoned(self) -> None:
        """The worker dropped the job: a later review may ask again."""
        self._serving.tuned = False

    def run(self) -> None:
        """Races, and replaces the version or leaves it."""
        unit, old = self._unit, self._serving
        try:
            with run_plainly(), self._out_of_the_way(), pd.paddle.no_grad():
                new, choice = self._compile()
        except Stopped:
            self.abandoned()
            return
        except CaptureRefused as error:
            self._serving.tuned = error.permanent  # else a later review may ask again
            unit.journal.tell(f"not tuned: {error}")
            return
        except Exception as error:  # the version in use goes on
            log.warning("tuning of %s failed", unit.name, exc_info=True)
            unit.journal.tell(f"not tuned: {type(error).__name__}: {error}")
            return
        new.tuned = True
        new.before = (old, old.stats.compiled_median())
        # Soon, but when no call of the old version is left among those that the median is made of.
        old.stats.next_review = old.stats.compiled_timed + SAMPLE
        label, outcome = choice.tried[-1]
        if not unit.replace(old, new, choice, f"tuned: {label}, {outcome}"):
            new.before = None  # the old one was closed by whoever took it out
            new.close()

    def _choose(
        self, captured: CapturedProgram, inputs: list[Any], want: list[Any], eager_seconds: float
    ) -> Choice:
        return tune(captured, inputs, want, eager_seconds, self._pause, budget=options.tune_seconds)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
