"""``pfb.explain`` and ``pfb.stats``: reports made from what the units have recorded."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from dataclasses import asdict
from typing import Any

from ..capture import _paddle as pd
from ..hotspot.signature_stats import SignatureStats
from ..hotspot.totals import process_totals
from ..report.explain import Report, SignatureReport, gain, overall_state
from . import hooks, layer_call, static_function
from .cache import total_versions
from .promotion import POLICY, WORKER
from .unit import Unit, all_units
from .watch import watched_count


def find_unit(target: Any) -> Unit | None:
    """The unit behind a layer, a boosted function or a bound ``forward``; None when there is none.

    Raises:
        TypeError: ``target`` is nothing that could have one.
    """
    if isinstance(target, pd.paddle.nn.Layer):
        forward = target.__dict__.get("forward", None) or getattr(target, "forward", None)
        if isinstance(forward, pd.StaticFunction):
            return static_function.unit_of(forward)
        return layer_call.unit_of(target)
    if isinstance(target, pd.StaticFunction):
        return static_function.unit_of(target)
    if inspect.isroutine(target):
        return None
    raise TypeError(
        "argument 'target' must be a paddle.nn.Layer or a function under to_static, "
        f"got {type(target).__name__}"
    )


def explain(target: Any, *, coverage: bool = False) -> Report:
    """What the plugin did with a layer or function, what it gained, what it refused and why.

    Args:
        target: a ``paddle.nn.Layer`` or a function under ``to_static``.
        coverage: also what each op of a compiled version costs, and which of them are native; runs
            the version a few times on zeros.

    Raises:
        TypeError: ``target`` is something else.
    """
    reporter = _Reporter(coverage)
    unit = find_unit(target)
    if unit is not None:
        return reporter.report(unit)
    name = getattr(target, "__name__", None) or type(target).__name__
    parts = reporter.parts(target) if isinstance(target, pd.paddle.nn.Layer) else []
    return Report(name, "not watched", 0, [], [], [], parts)


class _Reporter:
    """Makes the reports of a unit and its parts, each unit once."""

    def __init__(self, coverage: bool) -> None:
        self._coverage = coverage
        self._seen: set[int] = set()

    def report(self, unit: Unit) -> Report:
        self._seen.add(id(unit))
        signatures = [
            self._signature(unit, key, stats) for key, stats in list(unit.stats.signatures.items())
        ]
        refusals = list(unit.journal.refusals.values())
        owner = unit.owner
        state = overall_state(signatures, refusals)
        calls = unit.stats.totals()
        return Report(
            unit.name,
            state,
            calls.eager_calls + calls.compiled_calls,
            sorted(signatures, key=lambda s: -s.calls),
            refusals,
            list(unit.journal.events),
            self.parts(owner) if owner is not None and state != "compiled" else [],
        )

    def parts(self, layer: Any) -> list[Report]:
        """The reports of the watched layers inside ``layer``."""
        reports = []
        for part in layer.sublayers():
            unit = layer_call.unit_of(part)
            if unit is not None and id(unit) not in self._seen:
                reports.append(self.report(unit))
        return reports

    def _signature(self, unit: Unit, key: Hashable, stats: SignatureStats) -> SignatureReport:
        versions = unit.cache.versions.get(key, ())
        choice = unit.journal.choices.get(key)
        # What eager cost before the compile competed with it for the processor.
        eager = stats.eager_before_compile[2] or stats.eager_median()
        compiled = stats.compiled_median()
        report = SignatureReport(
            call=unit.journal.descriptions.get(key, ""),
            state=stats.state,
            reason=stats.reason,
            calls=stats.calls,
            eager_median=eager,
            compiled_median=compiled,
            gain=gain(eager, compiled),
            compile_seconds=stats.compile_seconds,
        )
        if versions:
            executable = versions[0].executable
            report.engine = executable.engine
            report.notes = list(executable.notes)
            report.guards = versions[0].snapshot.call_facts
            report.coverage = executable.coverage() if self._coverage else []
        if choice is not None:
            report.tried = list(choice.tried)
        return report


def stats() -> dict[str, Any]:
    """Counters of the whole process: calls, times (seconds), versions, the worker, the policy."""
    units = all_units()
    return {
        **asdict(process_totals()),
        "units": len(units),
        "versions": total_versions(),
        "pending_compiles": WORKER.pending(),
        "watched_objects": watched_count(),
        "watching": hooks.watching,
        "policy": POLICY.to_dict(),
    }
