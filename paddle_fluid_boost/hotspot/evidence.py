"""What the counters say for and against another compile.

Each function answers one question of the policy from the counters alone; none changes anything.
"""

from __future__ import annotations

import math

from ..options import options
from .monitor import FunctionStats
from .signature_stats import COMPILED, SignatureStats

#: A version has this many times its signature's age and its compile time to pay back its compile
#: before it counts as one that did not.
PATIENCE = 4
#: With every version slot of a function taken, a newcomer must be this many times as valuable as
#: the least valuable version, or the two would take the slot from each other for ever.
DISPLACE = 2.0


def busy_share(stats: SignatureStats, now: float, horizon: float) -> float:
    """Share of the time since the first call that went into calls; a compile beside an idle caller
    is free.  The prior is a caller that stays busy for one ``horizon`` (seconds)."""
    if not stats.eager_calls:
        return 1.0
    elapsed = max(now - stats.first_call, stats.eager_seconds)
    return (stats.eager_seconds + horizon) / (elapsed + horizon)


def pay_rate(function: FunctionStats, charge: float, now: float) -> float:
    """Chance that a version of ``function`` pays back ``charge`` seconds, as far as is known.

    Versions that have not had their time yet do not count; the prior is one that paid.
    """
    known, paid = function.versions_lost, function.versions_paid
    for stats in list(function.signatures.values()):
        if stats.state != COMPILED:
            continue
        if saved(stats) >= charge:
            known, paid = known + 1, paid + 1
        else:
            age = stats.decided_time - stats.first_call + stats.compile_seconds
            known += now - stats.decided_time > PATIENCE * age
    return (paid + 1) / (known + 1)


def saved(stats: SignatureStats) -> float:
    """Seconds that the present version has saved, at the times measured side by side."""
    calls = stats.compiled_calls - stats.published_at
    return calls * (stats.measured_eager - stats.measured_compiled)


def slot_taken(function: FunctionStats, rate: float, now: float) -> bool:
    """True when every version slot is held by a version that is worth about ``rate`` or more."""
    held = [s for s in list(function.signatures.values()) if s.in_flight or s.state == COMPILED]
    if len(held) < options.max_versions:
        return False
    return rate < DISPLACE * min(value(stats, now) for stats in held)


def value(stats: SignatureStats, now: float) -> float:
    """Seconds that a version saves of every second; without bound until it has had some time."""
    age = now - stats.published_time
    if stats.state != COMPILED or age <= stats.compile_seconds:
        return math.inf
    return saved(stats) / age


def dominates(function: FunctionStats, stats: SignatureStats) -> bool:
    """True for a signature that alone takes one slot's share of the look-ups since it appeared."""
    since = function.lookups - stats.first_lookup + 1
    enough = stats.eager_calls >= options.megamorphic_signatures
    return enough and stats.eager_calls * options.max_versions >= since


def slowed_share(stats: SignatureStats) -> float | None:
    """Share of the caller's time that a compile took while it ran; None without evidence."""
    calls, seconds, median = stats.eager_before_compile
    during = stats.eager_calls - calls
    if calls < 4 or during < 3:
        return None
    mean = (stats.eager_seconds - seconds) / during
    return min(max(1.0 - median / mean, 0.0), 0.9) if mean > 0.0 else None
