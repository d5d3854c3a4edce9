"""``pfb.explain``: what happened to a layer or function, as a record that prints as a tree."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .records import Event, OpShare, Refusal


@dataclass
class SignatureReport:
    """One call signature.  Times in seconds; 0.0 where nothing was measured."""

    call: str
    state: str
    reason: str
    calls: int
    eager_median: float
    compiled_median: float
    gain: float
    compile_seconds: float
    engine: str = ""
    tried: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    guards: int = 0
    coverage: list[OpShare] = field(default_factory=list)


@dataclass
class Report:
    """What is known of one function or layer."""

    name: str
    state: str
    calls: int
    signatures: list[SignatureReport]
    refusals: list[Refusal]
    events: list[Event]
    parts: list[Report]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain, JSON-ready data."""
        return asdict(self)

    def to_html(self) -> str:
        """The same as one page of HTML, complete in itself (extra ``report``: jinja2).

        Raises:
            ReportError: jinja2 is missing.
        """
        from .page import render

        return render(self, lambda seconds: _time(seconds) if seconds else "-")

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(report: Report, indent: str = "") -> list[str]:
    lines = [f"{indent}{report.name}: {report.state} ({report.calls} calls)"]
    for signature in report.signatures:
        lines += [f"{indent}  {line}" for line in _signature_lines(signature)]
    for refusal in report.refusals:
        lines.append(f"{indent}  - stays dynamic: {refusal.reason}")
        if refusal.where:
            lines.append(f"{indent}      at {refusal.where}")
    for part in report.parts:
        lines += _lines(part, indent + "  | ")
    return lines


def _signature_lines(signature: SignatureReport) -> list[str]:
    head = f"{signature.call or 'call'}: {signature.state}, {signature.calls} calls"
    if signature.eager_median:
        head += f", eager {_time(signature.eager_median)}"
    if signature.compiled_median:
        head += f", compiled {_time(signature.compiled_median)} ({signature.gain:.2f}x)"
    lines = [head]
    if signature.engine:
        lines.append(
            f"  engine {signature.engine}, compiled in {signature.compile_seconds:.2f} s, "
            f"{signature.guards} guards"
        )
        lines += [f"  {note}" for note in signature.notes]
        lines += [f"  {line}" for line in coverage_lines(signature.coverage)]
    elif signature.reason:
        lines.append(f"  {signature.reason}")
    lines += [f"  tried {label}: {outcome}" for label, outcome in signature.tried]
    return lines


def coverage_lines(shares: list[OpShare]) -> list[str]:
    """A table of what each op costs, and the share that is native."""
    if not shares:
        return []
    native = sum(share.share for share in shares if share.native)
    lines = [f"{native:.1%} of the time is native"]
    for share in shares:
        kind = "native" if share.native else "Paddle"
        line = f"  {share.op:26}{share.steps:5} x {kind}{share.microseconds:10.1f} us"
        line += f"{share.share:7.1%}"
        lines.append(line + (f"{share.gflops:8.0f} GFLOP/s" if share.gflops else ""))
    return lines


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def overall_state(signatures: list[SignatureReport], refusals: list[Refusal]) -> str:
    """One word for a function: the state of its most advanced signature."""
    states = {signature.state for signature in signatures}
    for state in ("compiled", "compiling", "queued"):
        if state in states:
            return state
    if refusals and (not states or states == {"rejected"}):
        return "dynamic"
    return "cold"


def gain(eager: float, compiled: float) -> float:
    """How many times faster; 0.0 while unknown."""
    return eager / compiled if compiled else 0.0
