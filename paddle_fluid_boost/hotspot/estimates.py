"""What a compile is expected to cost and to gain, learned from the compiles that were measured.

Three quantities, each with a prior that is soon outweighed.  ``docs/policy.md`` derives the numbers
and shows how wrong each may be before the policy misses its bound.
"""

from __future__ import annotations

import math
from typing import Any

from ..hardware.cores import usable_cores
from .monitor import FunctionStats

#: Share of eager time that compiling saves: prior, and the range the process-wide mean may reach.
#: Below the floor a new function would hardly ever be tried on the evidence of other functions.
SAVING_PRIOR = 0.5
SAVING_FLOOR = 0.25
SAVING_CEILING = 0.95
#: A function's own versions are better evidence: lower floor.
OWN_SAVING_FLOOR = 0.05

#: Weight of a new measurement in the process-wide means and in those of one function.
PROCESS_WEIGHT = 0.2
FUNCTION_WEIGHT = 0.5

#: (eager seconds, compile seconds) of a toy and of a large net: two pseudo-measurements that the
#: log-log line of compile cost over eager time starts from.
COST_ANCHORS = ((50e-6, 0.05), (0.2, 2.0))
#: Real measurements fade by this factor with every new one; the anchors stay.
COST_FADE = 0.9

#: Share of its running time that a compile takes from the caller: prior with a core to spare and
#: without (there every second of a compile is the caller's), and the range of the learned value.
INTERFERENCE_PRIOR = 0.05
INTERFERENCE_PRIOR_ONE_CORE = 0.9
INTERFERENCE_FLOOR = 0.01
INTERFERENCE_CEILING = 0.9


class CompileCost:
    """``log(compile seconds) = a + b log(eager seconds)`` by weighted least squares."""

    def __init__(self) -> None:
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)

    def learn(self, eager: float, seconds: float) -> None:
        """Takes in that a function of ``eager`` seconds a call took ``seconds`` to compile."""
        if eager > 0.0 and seconds > 0.0:
            self._sums = _plus(self._sums, COST_FADE, math.log(eager), math.log(seconds))

    def expect(self, eager: float) -> float:
        """Expected seconds of compiling a function of ``eager`` seconds a call."""
        sums = self._sums
        for anchor_eager, anchor_seconds in COST_ANCHORS:
            sums = _plus(sums, 1.0, math.log(anchor_eager), math.log(anchor_seconds))
        weight, x, y, xx, xy = sums
        slope = (weight * xy - x * y) / (weight * xx - x * x)
        slope = min(max(slope, 0.0), 1.0)
        return math.exp((y - slope * x) / weight + slope * math.log(max(eager, 1e-7)))


def _plus(
    sums: tuple[float, float, float, float, float], fade: float, x: float, y: float
) -> tuple[float, float, float, float, float]:
    """The least-squares sums (1, x, y, xx, xy), faded, with one more point."""
    weight, sum_x, sum_y, sum_xx, sum_xy = sums
    return (
        weight * fade + 1.0,
        sum_x * fade + x,
        sum_y * fade + y,
        sum_xx * fade + x * x,
        sum_xy * fade + x * y,
    )


class Estimates:
    """What this process has learned; every method is a few float operations.

    Written by the thread that compiles; a reader in another thread sees the old or the new value.
    """

    def __init__(self, cores: int | None = None) -> None:
        cores = usable_cores() if cores is None else cores
        self.saving_share = SAVING_PRIOR
        self.interference = INTERFERENCE_PRIOR if cores > 1 else INTERFERENCE_PRIOR_ONE_CORE
        self.cost = CompileCost()

    def saving(self, function: FunctionStats) -> float:
        """Expected share of eager time that a version of ``function`` saves, failures counted."""
        if function.saving_share is not None:
            return max(function.saving_share, OWN_SAVING_FLOOR)
        return min(max(self.saving_share, SAVING_FLOOR), SAVING_CEILING)

    def compile_seconds(self, function: FunctionStats, eager: float) -> float:
        """Expected seconds that the worker needs for a version of ``function``."""
        if function.compile_cost is not None:
            return function.compile_cost
        return self.cost.expect(eager)

    def learn_saving(self, function: FunctionStats, share: float) -> None:
        """Takes in a measured share of saved time; 0.0 for a version that was rejected."""
        share = max(share, 0.0)
        self.saving_share += PROCESS_WEIGHT * (share - self.saving_share)
        before = self.saving_share if function.saving_share is None else function.saving_share
        function.saving_share = before + FUNCTION_WEIGHT * (share - before)

    def learn_cost(self, function: FunctionStats, eager: float, seconds: float) -> None:
        """Takes in what a compile took."""
        self.cost.learn(eager, seconds)
        before = seconds if function.compile_cost is None else function.compile_cost
        function.compile_cost = before + FUNCTION_WEIGHT * (seconds - before)

    def learn_interference(self, share: float) -> None:
        """Takes in by what share the caller was slowed while a compile ran."""
        mixed = self.interference + PROCESS_WEIGHT * (share - self.interference)
        self.interference = min(max(mixed, INTERFERENCE_FLOOR), INTERFERENCE_CEILING)

    def to_dict(self) -> dict[str, Any]:
        """The learned values, for ``pfb.stats()``."""
        return {
            "saving_share": self.saving_share,
            "interference": self.interference,
            "compile_seconds_at_1ms": self.cost.expect(1e-3),
            "compile_seconds_at_100ms": self.cost.expect(0.1),
        }
