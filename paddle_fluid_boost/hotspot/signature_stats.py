"""What is known of one call signature: how often it came, and what it cost.

The counters sit on the path of every eager call, so they are plain attributes without a lock:
``calls += 1`` from several threads may lose a count, which moves a decision by a call and does no
other harm.  Everything that is not on that path is derived when somebody asks.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from statistics import median_low
from time import perf_counter
from typing import Any

COLD = "cold"
QUEUED = "queued"
COMPILING = "compiling"
COMPILED = "compiled"
REJECTED = "rejected"
STATES = (COLD, QUEUED, COMPILING, COMPILED, REJECTED)

#: A count that no counter reaches: "do not ask the policy again".
NEVER = sys.maxsize

#: Times kept per signature and kind for a median; a power of two, as the ring is indexed by a mask.
SAMPLE = 16
_MASK = SAMPLE - 1

#: A compiled call is timed always until this many, and then once in as many.
TIMED_FIRST = 32


class SignatureStats:
    """The counters of one call signature of one function.  Times are in seconds.

    key: the hashable that dispatch knows the signature by.
    first_call / last_call: ``time.perf_counter()`` at the first and the last recorded call.
    next_check: number of eager calls at which the policy wants to be asked next.
    counted_from: eager calls before this one no longer count for the expectation.
    decided_time: when the policy last asked for a compile.
    published_at / published_time: compiled calls and time when the version came into use.
    backoff: every version that failed or did not pay back doubles what the next one must promise.
    warm_up_calls / warm_up_seconds: first calls on an accelerator, left out of all the others.
    measured_eager / measured_compiled: medians that the worker measured side by side.
    retry_at: for a rejected signature the eager call at which it may be tried again, ``NEVER``
        when only a change of the code or its surroundings can lift the refusal.
    """

    __slots__ = (
        "__weakref__",
        "_compiled_ring",
        "_eager_ring",
        "backoff",
        "compile_seconds",
        "compiled_calls",
        "compiled_timed",
        "compiled_timed_seconds",
        "compiles",
        "counted_from",
        "decided_time",
        "eager_before_compile",
        "eager_calls",
        "eager_seconds",
        "first_call",
        "first_lookup",
        "key",
        "last_call",
        "last_lookup",
        "measured_compiled",
        "measured_eager",
        "next_check",
        "next_review",
        "permanent",
        "published_at",
        "published_time",
        "reason",
        "rejections",
        "state",
        "timed_until",
        "warm_up_calls",
        "warm_up_seconds",
    )

    def __init__(self, key: Hashable = None, lookup: int = 0) -> None:
        self.key = key
        self.eager_calls = 0
        self.eager_seconds = 0.0
        self.compiled_calls = 0
        self.compiled_timed = 0
        self.compiled_timed_seconds = 0.0
        self.compiles = 0
        self.compile_seconds = 0.0
        self.rejections = 0
        self.state = COLD
        self.reason = ""
        self.permanent = False
        self.first_call = 0.0
        self.last_call = 0.0
        self.first_lookup = self.last_lookup = lookup
        self.next_check = 1
        self.next_review = TIMED_FIRST
        self.timed_until = TIMED_FIRST
        self.counted_from = 0
        self.decided_time = 0.0
        self.published_at = 0
        self.published_time = 0.0
        self.backoff = 0
        self.measured_eager = 0.0
        self.measured_compiled = 0.0
        self.eager_before_compile: tuple[int, float, float] = (0, 0.0, 0.0)
        self.warm_up_calls = 0
        self.warm_up_seconds = 0.0
        self._eager_ring = [0.0] * SAMPLE
        self._compiled_ring = [0.0] * SAMPLE

    # -- the hot path ------------------------------------------------------------------------------

    def record_eager(self, seconds: float, now: float | None = None) -> bool:
        """Counts an eager call of ``seconds``; True when the policy should be asked now."""
        calls = self.eager_calls + 1
        self.eager_calls = calls
        self.eager_seconds += seconds
        self._eager_ring[calls & _MASK] = seconds
        self.last_call = now = perf_counter() if now is None else now
        if calls == 1:
            self.first_call = now - seconds
        return calls >= self.next_check

    def record_warm_up(self, seconds: float) -> None:
        """Counts a call in which an accelerator compiled its kernels: its time tells nothing of
        the calls to come, and takes no part in any decision."""
        self.warm_up_calls += 1
        self.warm_up_seconds += seconds

    def sample_due(self) -> bool:
        """Counts a compiled call (call it once for each); True when this one should be timed."""
        calls = self.compiled_calls + 1
        self.compiled_calls = calls
        return calls <= self.timed_until or not calls % TIMED_FIRST

    def record_compiled(self, seconds: float, now: float | None = None) -> bool:
        """Notes the time of a compiled call that :meth:`sample_due` asked for.

        Returns True when ``Policy.review`` should look whether the version still pays.
        """
        timed = self.compiled_timed + 1
        self.compiled_timed = timed
        self.compiled_timed_seconds += seconds
        self._compiled_ring[timed & _MASK] = seconds
        self.last_call = perf_counter() if now is None else now
        return timed >= self.next_review

    # -- what they add up to -----------------------------------------------------------------------

    @property
    def calls(self) -> int:
        """All calls, eager and compiled."""
        return self.warm_up_calls + self.eager_calls + self.compiled_calls

    def eager_median(self) -> float:
        """Median seconds of the last eager calls (at most ``SAMPLE``); 0.0 before the first."""
        return _recent_median(self._eager_ring, self.eager_calls)

    def compiled_median(self) -> float:
        """Median seconds of the last timed compiled calls; 0.0 before the first."""
        return _recent_median(self._compiled_ring, self.compiled_timed)

    def compiled_seconds(self) -> float:
        """All time in compiled calls, the untimed ones taken at the mean of the timed ones."""
        if not self.compiled_timed:
            return 0.0
        return self.compiled_timed_seconds / self.compiled_timed * self.compiled_calls

    def saved_seconds(self) -> float:
        """Time that the compiled calls saved against eager, the compile cost not taken off."""
        if not self.compiled_timed:
            return 0.0
        eager = self.measured_eager or self.eager_median()
        return self.compiled_calls * eager - self.compiled_seconds()

    @property
    def in_flight(self) -> bool:
        """True from the decision to compile until the version is published or rejected."""
        return self.state in (QUEUED, COMPILING)

    @property
    def retry_at(self) -> int:
        """The eager call at which a rejected signature may be tried again."""
        return NEVER if self.permanent else self.next_check

    # -- changes of state, off the hot path --------------------------------------------------------

    def enter(self, state: str, reason: str = "") -> None:
        """Moves to ``state`` (one of ``STATES``) with the reason a person will read."""
        if state not in STATES:
            raise ValueError(f"state must be one of {', '.join(STATES)}, got {state!r}")
        self.state, self.reason = state, reason

    def start_compile(self) -> None:
        """The worker has taken the job; remembers what eager costs while nobody compiles."""
        self.eager_before_compile = (self.eager_calls, self.eager_seconds, self.eager_median())
        self.enter(COMPILING, "compiling in the background")

    def abandoned(self) -> None:
        """The compile job was lost (a fork, a full queue, exit); it may be asked for again."""
        if self.in_flight:
            self.enter(COLD, "the compile was dropped before it ran; it may be queued again")
            self.next_check = self.eager_calls + 1

    def to_dict(self) -> dict[str, Any]:
        """Stable fields for ``pfb.explain``; times in seconds, ``retry_at`` None for never."""
        return {
            "key": self.key,
            "state": self.state,
            "reason": self.reason,
            "calls": self.calls,
            "eager_calls": self.eager_calls,
            "eager_seconds": self.eager_seconds,
            "eager_median": self.eager_median(),
            "warm_up_calls": self.warm_up_calls,
            "warm_up_seconds": self.warm_up_seconds,
            "compiled_calls": self.compiled_calls,
            "compiled_seconds": self.compiled_seconds(),
            "compiled_median": self.compiled_median(),
            "compiles": self.compiles,
            "compile_seconds": self.compile_seconds,
            "saved_seconds": self.saved_seconds(),
            "rejections": self.rejections,
            "backoff": self.backoff,
            "permanent": self.permanent,
            "retry_at": None if self.retry_at == NEVER else self.retry_at,
            "first_call": self.first_call,
            "last_call": self.last_call,
        }


def _recent_median(ring: list[float], recorded: int) -> float:
    """Lower median of what a ring holds after ``recorded`` entries (entry n is at ``n & _MASK``).

    The lower one, as the second of two calls is the typical one: the first has warmed up.
    """
    if recorded >= SAMPLE:
        return median_low(ring)
    return median_low(ring[1 : recorded + 1]) if recorded else 0.0
