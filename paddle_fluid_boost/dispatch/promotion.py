"""From cold to compiled: the attempts of one unit, from the policy's word to the worker's job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ..hotspot.policy import COMPILE, COMPILE_GENERIC, Policy
from ..hotspot.signature_stats import COLD, QUEUED, SignatureStats
from ..hotspot.worker import Worker
from ..options import options
from ..report.records import Refusal
from .attempt import Attempt, Busy
from .branches import Branches
from .compile import CompileJob
from .signature import Call
from .tuning import TuneJob, confirm, worth_tuning
from .version import Version

if TYPE_CHECKING:
    from .unit import Unit

log = logging.getLogger("paddle_fluid_boost.policy")

#: One of each serves the process.
POLICY = Policy()
WORKER = Worker()


class Promotion:
    """The signatures of ``unit`` on their way to a compile.

    eager: the user's code, bound and ready to call.
    roots: returns (label, object) of what ``eager`` is made of, for guards.
    """

    def __init__(
        self,
        unit: Unit,
        eager: Callable[..., Any],
        roots: Callable[[], list[tuple[str, Any]]],
    ) -> None:
        self._unit = unit
        self._eager = eager
        self._roots = roots
        self._attempts: dict[Hashable, Attempt] = {}

    def forget(self) -> None:
        """Drops the snapshots, which hold parts of the unit's owner."""
        self._attempts = {}

    def attempt(self, key: Hashable, stats: SignatureStats) -> Attempt | None:
        """The attempt that the next call of this signature belongs to; None while it is cold."""
        attempt = self._attempts.get(key)
        if attempt is None and options.hot_calls and self._is_due_now(stats):
            attempt = self._attempts[key] = Attempt()
        return attempt

    def _is_due_now(self, stats: SignatureStats) -> bool:
        """``options.hot_calls`` asks for this call to be observed.  Where Paddle's ``to_static``
        runs cold calls it gets the first one, so that its program exists."""
        calls = stats.eager_calls + 1
        first = 1 if self._unit.cold is self._eager else 2
        return stats.state == COLD and calls >= max(options.hot_calls, first)

    def ask_policy(self, call: Call, stats: SignatureStats) -> None:
        """Lets the policy say whether this signature is hot."""
        unit = self._unit
        decision = unit.policy.decide(unit.stats, stats, time.perf_counter())
        log.info("%s: %s: %s", unit.name, decision.action, decision.reason)
        if decision.action == COMPILE:
            self._attempts.setdefault(call.key, Attempt())
            unit.journal.describe(call)
        elif decision.action == COMPILE_GENERIC:
            unit.policy.rejected(
                unit.stats,
                unit.stats.generic,
                "no shape-generic version: Python that computes with shapes cannot be shown to be "
                "the same for all of them",
                cost=0.0,
                permanent=True,
            )

    def observe(self, attempt: Attempt, call: Call, stats: SignatureStats) -> Any:
        """Runs the call, observed; its result."""
        try:
            result, refusals = attempt.observe(self._eager, self._roots, call)
        except Busy:
            return self._unit.cold(*call.args, **call.kwargs)
        if refusals:
            self._give_up(call.key, stats, refusals)
        return result

    def confirm(
        self, attempt: Attempt, call: Call, stats: SignatureStats, *, here: bool = False
    ) -> None:
        """After one more call: what is confirmed goes to the worker, or is compiled ``here``."""
        snapshot = attempt.snapshot
        outcome = attempt.confirm()
        if isinstance(outcome, Refusal):
            self._give_up(call.key, stats, [outcome])
        if outcome is not True or snapshot is None:
            return
        if self._attempts.pop(call.key, None) is not attempt:
            return  # another thread was quicker
        job = CompileJob(
            self._unit,
            call,
            stats,
            self._eager,
            snapshot,
            attempt.layers_touched,
            background=not (here or options.sync),
            rehearse=Branches(attempt.branching, self._roots) if attempt.branching else None,
        )
        if here:
            job.run()
        elif not WORKER.submit(job):
            self._unit.policy.deferred(stats)

    def review(self, version: Version, call: Call) -> None:
        """Looks at a version in use: the tuner may find a better one, or have found a worse one."""
        if version.before is not None:
            confirm(self._unit, version)
        elif worth_tuning(version):
            version.tuned = WORKER.submit(TuneJob(self._unit, call, version, self._eager))

    def compile_now(self, call: Call) -> None:
        """Compiles the signature of this call in the calling thread, whatever the policy says.

        Runs the user's code a few times.  The outcome is in the records; nothing is raised for a
        refusal.
        """
        unit = self._unit
        stats = unit.stats.signature(call.key)
        unit.stats.reopen("asked for by warmup")
        stats.enter(QUEUED, "asked for by warmup")
        unit.journal.describe(call)
        attempt = self._attempts[call.key] = Attempt()
        while attempt.snapshot is None and stats.in_flight:
            self.observe(attempt, call, stats)
            if attempt.snapshot is not None:
                unit.cold(*call.args, **call.kwargs)
                self.confirm(attempt, call, stats, here=True)

    def _give_up(self, key: Hashable, stats: SignatureStats, refusals: list[Refusal]) -> None:
        self._attempts.pop(key, None)
        self._unit.cannot_be_compiled(stats, refusals)
