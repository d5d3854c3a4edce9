"""The signatures of one function: which are known, how often new ones come, which must go."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from ..options import options
from .signature_stats import COLD, NEVER, REJECTED, SignatureStats
from .totals import Totals, register

#: Weight of one look-up in the running share of look-ups that met a new signature.
CHURN_WEIGHT = 1 / 64

_NOTHING = object()


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
