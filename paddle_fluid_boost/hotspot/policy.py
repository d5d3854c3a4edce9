"""When to compile what: the rule of ski rental, with the worker's time charged at what it costs.

A compile in the background costs its caller only the share ``f`` of its running time ``C`` by which
it slows the caller down.  A signature that was called ``n`` times is expected to be called ``n``
times more; compile when those calls would save what the compile costs::

    n * eager * saving share  >=  EAGERNESS * f * C

Whatever the traffic does next, that loses at most about ``f`` against the better of never compiling
and compiling at first sight.  ``docs/policy.md`` derives the rule, its constants and the bound.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ..options import options
from .estimates import Estimates
from .evidence import busy_share, dominates, pay_rate, saved, slot_taken, slowed_share
from .monitor import FunctionStats
from .signature_stats import COLD, COMPILED, NEVER, QUEUED, REJECTED, TIMED_FIRST, SignatureStats

WAIT = "wait"
COMPILE = "compile"
COMPILE_GENERIC = "compile_generic"
REFUSE = "never"

#: Below 1 the rule compiles before break-even.  Starting too early costs at most the share ``f``;
#: starting too late costs in proportion to the delay.  A quarter leaves the estimates room to be
#: four times too pessimistic.
EAGERNESS = 0.25

#: The window, in look-ups per allowed signature, within which a signature counts as live.
LIVE_WINDOW = 8
#: A function more than this share of whose look-ups meet a new signature is megamorphic.
CHURN_SHARE = 0.5
#: Look-ups before churn is judged: every function meets new signatures at first.
CHURN_LOOKUPS = 64
#: Back-off doublings are counted to here; 2^20 times the cost is never in practice.
MAX_BACKOFF = 20

log = logging.getLogger("paddle_fluid_boost.policy")

#: Guards the step from "may be compiled" to "queued", so that two threads cannot both take it.
_transition = threading.Lock()


def _fresh_lock() -> None:
    """A forked child has one thread; a lock that another one held would stay locked for ever."""
    global _transition
    _transition = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


@dataclass(frozen=True)
class Decision:
    """What to do with a signature now.

    action: ``wait``, ``compile``, ``compile_generic`` or ``never``.  After ``compile`` the
        signature, after ``compile_generic`` the function's ``generic``, is already ``queued``.
    reason: a sentence for ``pfb.explain``.
    saving_per_second: what a version would save of every second, the worker's priority.
    """

    action: str
    reason: str
    saving_per_second: float = 0.0


class Policy:
    """Decides, and learns from what came of it.  One instance serves the process."""

    def __init__(self, estimates: Estimates | None = None) -> None:
        self.estimates = estimates or Estimates()

    # -- deciding ----------------------------------------------------------------------------------

    def decide(
        self, function: FunctionStats, stats: SignatureStats, now: float | None = None
    ) -> Decision:
        """What to do after ``stats.record_eager`` returned True; sets ``stats.next_check``.

        ``now`` is ``time.perf_counter()`` where not given.
        """
        now = perf_counter() if now is None else now
        decision = self._decide(function, stats, now)
        if decision.action in (COMPILE, COMPILE_GENERIC):
            target = stats if decision.action == COMPILE else function.generic
            if not self._queue(target, decision.reason, now):
                return Decision(WAIT, target.reason)
        elif stats.state == COLD:
            stats.reason = decision.reason
        log.debug("%s: %s: %s", function.name, decision.action, decision.reason)
        return decision

    def _decide(self, function: FunctionStats, stats: SignatureStats, now: float) -> Decision:
        if function.refused or (stats.state == REJECTED and stats.permanent):
            stats.next_check = NEVER
            return Decision(REFUSE, function.refused or stats.reason)
        if stats.in_flight or stats.state == COMPILED:
            stats.next_check = 2 * stats.eager_calls
            return Decision(WAIT, stats.reason)
        megamorphic = self.megamorphic(function)
        if megamorphic:
            decision = self._decide_megamorphic(function, stats, megamorphic, now)
            if decision is not None:
                return decision
        if options.hot_calls and stats.state != REJECTED:
            return self._at_fixed_count(stats)
        return self._by_cost(function, stats, now)

    def _at_fixed_count(self, stats: SignatureStats) -> Decision:
        calls, hot = stats.eager_calls - stats.counted_from, options.hot_calls
        if calls >= hot:
            self._check_later(stats, calls + 1)
            return Decision(COMPILE, f"called {_times(calls)}; hot_calls={hot} asks for a compile")
        stats.next_check = stats.counted_from + hot
        return Decision(
            WAIT, f"called {_times(calls)}; hot_calls={hot} asks for a compile at call {hot}"
        )

    def _by_cost(self, function: FunctionStats, stats: SignatureStats, now: float) -> Decision:
        calls, eager = stats.eager_calls - stats.counted_from, stats.eager_median()
        needed, compile_seconds = self._calls_needed(function, stats, eager, now)
        saving = self.estimates.saving(function)
        facts = f"called {_times(calls)} at {_time(eager)}; a compile of about "
        facts += f"{_time(compile_seconds)} is expected to save {saving:.0%} of that"
        self._check_later(stats, needed)
        if calls >= needed:
            rate = self.priority(function, stats, now)
            if slot_taken(function, rate, now):
                stats.next_check = 2 * stats.eager_calls
                slots = options.max_versions
                return Decision(WAIT, f"{facts}, but {slots} more valuable versions fill the cache")
            return Decision(COMPILE, facts, rate)
        return Decision(WAIT, f"{facts} and pays from call {stats.counted_from + needed}")

    def priority(
        self, function: FunctionStats, stats: SignatureStats, now: float | None = None
    ) -> float:
        """Seconds that a version would save of every second, from the calls so far.

        A job that waits should ask again: after many calls it is known better than after one.  A
        newcomer has not been called during one compile time before, lest its first call weigh most.
        """
        now = perf_counter() if now is None else now
        horizon = self.estimates.compile_seconds(function, stats.eager_median())
        elapsed = max(now - stats.first_call, stats.eager_seconds) + horizon
        return stats.eager_seconds / elapsed * self.estimates.saving(function)

    def _calls_needed(
        self, function: FunctionStats, stats: SignatureStats, eager: float, now: float
    ) -> tuple[int, float]:
        """Eager calls (since ``counted_from``) at which a compile pays; its expected seconds."""
        compile_seconds = self.estimates.compile_seconds(function, eager)
        busy = busy_share(stats, now, compile_seconds)
        charged = EAGERNESS * self.estimates.interference * busy * compile_seconds
        needed_seconds = charged / self.estimates.saving(function)
        if needed_seconds <= stats.eager_calls * eager:  # else it is too early in any case
            needed_seconds /= pay_rate(function, charged, now)
        if stats.backoff:
            needed_seconds = max(needed_seconds, compile_seconds) * 2.0**stats.backoff
        return max(1, round(needed_seconds / max(eager, 1e-7))), compile_seconds

    def _check_later(self, stats: SignatureStats, needed: int) -> None:
        """Asks again when the compile pays, or after a doubling as estimates may have changed."""
        calls = stats.eager_calls - stats.counted_from
        stats.next_check = stats.counted_from + max(calls + 1, min(needed, 2 * calls))

    # -- megamorphic functions ---------------------------------------------------------------------

    def megamorphic(self, function: FunctionStats) -> str:
        """Why the signatures of ``function`` are too many to compile one by one, or ""."""
        limit = options.megamorphic_signatures
        if len(function.signatures) > limit:
            window = LIVE_WINDOW * limit
            if function.live_signatures(window, limit + 1) > limit:
                return f"more than {limit} signatures within the last {window} eager calls"
        settled = function.lookups >= CHURN_LOOKUPS
        if not options.hot_calls and settled and function.new_share > CHURN_SHARE:
            return f"{function.new_share:.0%} of recent calls have a signature not seen before"
        return ""

    def _decide_megamorphic(
        self, function: FunctionStats, stats: SignatureStats, why: str, now: float
    ) -> Decision | None:
        """One shape-generic version; without it only signatures that dominate: None for those."""
        generic = function.generic
        stats.next_check = 2 * stats.eager_calls
        if generic.in_flight or generic.state == COMPILED:
            return Decision(WAIT, f"megamorphic ({why}): one shape-generic version serves all")
        if function.lookups >= generic.next_check:
            eager = stats.eager_median()
            needed, _ = self._calls_needed(function, generic, eager, now)
            generic.next_check = max(generic.counted_from + needed, function.lookups + 1)
            if function.lookups - generic.counted_from >= needed:
                rate = eager * self.estimates.saving(function)
                return Decision(COMPILE_GENERIC, f"megamorphic ({why})", rate)
        if generic.state == REJECTED and dominates(function, stats):
            return None
        reason = generic.reason if generic.state == REJECTED else "no version pays yet"
        return Decision(WAIT, f"megamorphic ({why}): {reason}")

    # -- what came of it ---------------------------------------------------------------------------

    def _queue(self, stats: SignatureStats, reason: str, now: float) -> bool:
        """Takes the step to ``queued``; False when another thread has taken it."""
        with _transition:
            if stats.state not in (COLD, REJECTED):
                return False
            stats.enter(QUEUED, reason)
            stats.decided_time = now
        return True

    def published(
        self,
        function: FunctionStats,
        stats: SignatureStats,
        *,
        eager: float,
        compiled: float,
        cost: float,
        now: float | None = None,
    ) -> None:
        """A version is in use; ``eager`` and ``compiled`` are seconds a call measured side by side,
        ``cost`` the seconds that the worker spent.  Call it after the version can be found."""
        self._learn(function, stats, eager, cost, 1.0 - compiled / eager)
        stats.compiles += 1
        stats.measured_eager, stats.measured_compiled = eager, compiled
        stats.published_at = stats.compiled_calls
        stats.published_time = perf_counter() if now is None else now
        stats.timed_until = stats.compiled_calls + TIMED_FIRST
        stats.next_review = stats.compiled_timed + TIMED_FIRST
        stats.enter(COMPILED, f"{eager / compiled:.2f} times faster than eager when measured")

    def rejected(
        self,
        function: FunctionStats,
        stats: SignatureStats,
        reason: str,
        *,
        cost: float,
        permanent: bool = False,
        now: float | None = None,
    ) -> None:
        """No version came of it after ``cost`` seconds, for ``reason``.

        It is tried again after a time that doubles with every rejection; when ``permanent``, only
        after ``FunctionStats.reopen``.
        """
        eager = stats.eager_median()
        self._learn(function, stats, eager, cost, 0.0)
        stats.rejections += 1
        stats.permanent = permanent
        self._back_off(function, stats, now)
        stats.enter(REJECTED, reason)

    def lost(
        self,
        function: FunctionStats,
        stats: SignatureStats,
        reason: str,
        now: float | None = None,
    ) -> None:
        """The compiled version is gone (evicted, or the code changed).

        The next one must promise twice as much if this one has not paid back what it cost.
        """
        cost = self.estimates.compile_seconds(function, stats.measured_eager)
        paid = saved(stats) >= self.estimates.interference * cost
        function.version_lost(paid)
        stats.enter(COLD, reason)
        if paid or options.hot_calls:
            stats.backoff = 0
            stats.counted_from = stats.eager_calls
            stats.next_check = stats.eager_calls + 1
        else:
            self._back_off(function, stats, now)

    def deferred(self, stats: SignatureStats) -> None:
        """The worker had no room for the job: asks again after a doubling."""
        stats.abandoned()
        stats.next_check = max(2 * stats.eager_calls, 1)

    def review(self, function: FunctionStats, stats: SignatureStats) -> str:
        """Looks at a compiled version in use; why it should be withdrawn, or "".

        Called when ``record_compiled`` returned True.  The caller withdraws the version and then
        calls :meth:`rejected` with the reason.
        """
        stats.next_review = 2 * stats.compiled_timed
        eager = stats.measured_eager or stats.eager_median()
        compiled = stats.compiled_median()
        if compiled <= eager:
            return ""
        return f"slower than eager in use ({_time(compiled)} against {_time(eager)})"

    def _back_off(self, function: FunctionStats, stats: SignatureStats, now: float | None) -> None:
        """Doubles what must happen before another try, counted from now."""
        stats.backoff = min(stats.backoff + 1, MAX_BACKOFF)
        generic = stats is function.generic
        stats.counted_from = function.lookups if generic else stats.eager_calls
        if stats.permanent:
            stats.next_check = NEVER
            return
        now = perf_counter() if now is None else now
        eager = stats.eager_median() or stats.measured_eager
        needed, _ = self._calls_needed(function, stats, eager, now)
        stats.next_check = stats.counted_from + needed

    def _learn(
        self,
        function: FunctionStats,
        stats: SignatureStats,
        eager: float,
        cost: float,
        share: float,
    ) -> None:
        stats.compile_seconds += cost
        self.estimates.learn_saving(function, share)
        self.estimates.learn_cost(function, eager, cost)
        slowed = slowed_share(stats)
        if slowed is not None:
            self.estimates.learn_interference(slowed)

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for ``pfb.stats()``."""
        return self.estimates.to_dict()


def _times(calls: int) -> str:
    return "once" if calls == 1 else f"{calls} times"


def _time(seconds: float) -> str:
    """Seconds as a person reads them: ``85 us``, ``1.2 ms``, ``0.31 s``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1.0:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.2f} s"
