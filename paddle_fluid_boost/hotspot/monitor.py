"""What is known of every call signature: how often it came, and what it cost.

The counters sit on the path of every eager call, so they are plain attributes without a lock:
``calls += 1`` from several threads may lose a count, which moves a decision by a call and does no
other harm.  Everything that is not on that path is derived when somebody asks.
"""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from collections.abc import Hashable
from statistics import median_low
from time import perf_counter
from typing import Any

from ..options import options
from .totals import Totals, register

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

#: Weight of one look-up in the running share of look-ups that met a new signature.
CHURN_WEIGHT = 1 / 64

_NOTHING = object()


class SignatureStats:
    """The counters of one call signature of one function.  Times are in seconds.

    key: the hashable that dispatch knows the signature by.
    first_call / last_call: ``time.perf_counter()`` at the first and the last recorded call.
    next_check: number of eager calls at which the policy wants to be asked next.
    counted_from: eager calls before this one no longer count for the expectation.
    decided_time: when the policy last asked for a compile.
    published_at / published_time: compiled calls and time when the version came into use.
    backoff: every version that failed or did not pay back doubles what the next one must promise.
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
        return self.eager_calls + self.compiled_calls

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


class FunctionStats:
    """The signatures of one function, at most ``options.max_signatures``, least recent out first.

    signatures: by key, the most recently looked up last.  Signatures that are compiled or being
        compiled go last, because a compiled version is reported through its counters.
    created: signatures ever made; one that was evicted and came back counts again.
    new_share: running share (over some 64 look-ups) of look-ups that met a new signature.
    generic: the counters of the one shape-generic version that a megamorphic function may have.
    versions_lost / versions_paid: compiled versions that are gone, and those of them that had
        paid back their compile.
    refused: why no signature of this function is compiled, "" when nothing stands against it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.signatures: OrderedDict[Hashable, SignatureStats] = OrderedDict()
        self.created = 0
        self.evicted = 0
        self.lookups = 0
        self.new_share = 0.0
        self.generic = SignatureStats("shape-generic")
        self.refused = ""
        #: Learned from measured versions of this function; None until there is one.
        self.saving_share: float | None = None
        self.compile_cost: float | None = None
        self.versions_lost = 0
        self.versions_paid = 0
        self._retired = Totals()
        register(self, self.signatures, self.generic, self._retired)

    def signature(self, key: Hashable) -> SignatureStats:
        """The counters of ``key``, made when new.  Called once for every eager call."""
        self.lookups += 1
        self.new_share -= self.new_share * CHURN_WEIGHT
        stats = self.signatures.get(key)
        if stats is None:
            return self._create(key)
        stats.last_lookup = self.lookups
        try:
            self.signatures.move_to_end(key)
        except KeyError:  # evicted by another thread since the line above
            self.signatures[key] = stats
        return stats

    def _create(self, key: Hashable) -> SignatureStats:
        stats = SignatureStats(key, self.lookups)
        if self.refused:
            stats.next_check = NEVER
        stats = self.signatures.setdefault(key, stats)
        self.created += 1
        self.new_share += CHURN_WEIGHT
        while len(self.signatures) > options.max_signatures:
            self._evict(keep=key)
        return stats

    def _evict(self, keep: Hashable) -> None:
        """Drops the least recent signature that is not compiled or in flight, else the oldest."""
        stats = self.signatures.pop(self._least_recent_idle(keep), None)
        if stats is None:
            _, stats = self.signatures.popitem(last=False)
        self.evicted += 1
        self._retired.add(stats)

    def _least_recent_idle(self, keep: Hashable) -> Hashable:
        """The key of the signature to drop, ``_NOTHING`` when none is idle."""
        with contextlib.suppress(RuntimeError):  # another thread changed the order meanwhile
            for key, stats in self.signatures.items():
                if stats.state in (COLD, REJECTED) and key != keep:
                    return key
        return _NOTHING

    def live_signatures(self, window: int, most: int) -> int:
        """Signatures looked up within the last ``window`` look-ups, counted up to ``most``."""
        oldest = self.lookups - window
        live = 0
        with contextlib.suppress(RuntimeError):  # another thread changed the order meanwhile
            for stats in reversed(self.signatures.values()):
                if stats.last_lookup <= oldest or live == most:
                    break
                live += 1
        return live

    def version_lost(self, paid: bool) -> None:
        """A compiled version is gone, having paid back its compile or not.  Old ones fade."""
        if self.versions_lost >= 32:
            self.versions_lost, self.versions_paid = 16, self.versions_paid // 2
        self.versions_lost += 1
        self.versions_paid += paid

    def refuse(self, reason: str) -> None:
        """No signature of this function is compiled until :meth:`reopen`, and this is why."""
        self.refused = reason
        for stats in list(self.signatures.values()):
            if stats.state == COLD:
                stats.next_check = NEVER

    def reopen(self, reason: str = "something it depends on changed") -> None:
        """Something changed: refusals are lifted, permanent ones too, and are tried again."""
        self.refused = ""
        for stats in [*self.signatures.values(), self.generic]:
            if stats.state in (COLD, REJECTED):
                stats.enter(COLD, reason)
                stats.permanent = False
                stats.next_check = stats.eager_calls + 1

    def totals(self) -> Totals:
        """Sums over all signatures, those evicted included."""
        total = self._retired.copy()
        for stats in list(self.signatures.values()):
            total.add(stats)
        total.add(self.generic)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Stable fields for ``pfb.explain``."""
        return {
            "name": self.name,
            "created": self.created,
            "evicted": self.evicted,
            "live": len(self.signatures),
            "new_share": self.new_share,
            "refused": self.refused,
            "signatures": [s.to_dict() for s in list(self.signatures.values())],
            "generic": self.generic.to_dict(),
            "totals": self.totals().to_dict(),
        }
