"""What an export made, as data, as JSON and as a table."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .messages import say
from .verify import Accuracy


@dataclass
class Artefact:
    """One verified result.

    files: name (relative to the output folder) -> bytes.  shapes: the inputs as --shape says them.
    ops: number of operations.  latency_ms: of one call of the smallest case in its own runtime, the
    median.  notes: what its user should know.
    """

    target: str
    files: dict[str, int]
    shapes: list[str]
    inputs: list[str]
    outputs: list[str]
    ops: int
    accuracy: Accuracy
    latency_ms: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class Report:
    """Everything about one export.  ``failures``: target -> why; empty when all went well."""

    model: str
    folder: str
    artefacts: list[Artefact] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every target was made and verified."""
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        return render(self)


def render(report: Report) -> str:
    """The report as text for a terminal."""
    lines = []
    if report.artefacts:
        head = [say(f"table.{k}") for k in ("target", "file", "size", "ops", "error", "latency")]
        rows = [head]
        for one in report.artefacts:
            rows += _rows(one)
        lines += aligned(rows)
    for one in report.artefacts:
        lines.append("")
        lines.append(f"{one.target}: {'  '.join(one.shapes)}")
        lines += [f"  {note}" for note in one.notes]
    lines += [f"{say('warning')}: {text}" for text in report.warnings]
    lines += [f"{say('failed')}: {target}: {why}" for target, why in report.failures.items()]
    return "\n".join(lines)


def _rows(one: Artefact) -> list[list[str]]:
    latency = "-" if one.latency_ms is None else f"{one.latency_ms:.3g} ms"
    error = f"{one.accuracy.max_rel:.1e} ({one.accuracy.cases})"
    rows = []
    for number, (name, size) in enumerate(one.files.items()):
        first = number == 0
        rows.append(
            [
                one.target if first else "",
                name,
                size_text(size),
                str(one.ops) if first else "",
                error if first else "",
                latency if first else "",
            ]
        )
    return rows


def size_text(count: int) -> str:
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths)).rstrip()
        for row in rows
    ]


def _width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
