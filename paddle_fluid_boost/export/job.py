"""One export under way: what the targets share, and the search for sizes that can stay open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import CaptureRefused, EngineError, ExportError
from .cases import Case, CaseMaker
from .messages import say
from .output import check_space
from .progress import Progress
from .report import Artefact
from .source import Captured, Source
from .spec import BATCH_NAMES, Signature

#: Single names that are tried fixed before everything but the batch is.
_MOST_SINGLE = 3


@dataclass
class Job:
    """source: what is exported.  cases: what artefacts are compared on.  folder: where they go.

    scratch: a folder for files on the way.  written: folders there with Paddle models, converted:
    ONNX files there, or why there is none, by signature and way of capture.

    rtol: allowed relative error, None for the default of each dtype.
    strict: a size that cannot stay open is a failure.
    """

    source: Source
    cases: CaseMaker
    folder: str
    scratch: str
    progress: Progress
    rtol: float | None = None
    strict: bool = False
    opset: int = 17
    written: dict[tuple[str, str], tuple[str, Artefact] | str] = field(default_factory=dict)
    converted: dict[tuple[str, str], tuple[str, Artefact | str]] = field(default_factory=dict)
    _captures: dict[tuple[str, str], Captured | str] = field(default_factory=dict)

    def capture(self, signature: Signature, way: str) -> Captured:
        """The program, captured once for each signature and way.  Raises ExportError."""
        key = (str(signature.inputs), way)
        if key not in self._captures:
            try:
                example = self.cases.cases(signature)[0].inputs
                self._captures[key] = self.source.capture(signature, example, way)
            except CaptureRefused as error:
                self._captures[key] = str(error)
        found = self._captures[key]
        if isinstance(found, str):
            raise ExportError(found)
        return found


#: Makes and verifies one artefact from one program; raises ExportError where that fails.
Maker = Callable[[Job, Captured, Signature, "list[Case]"], Artefact]


def make(job: Job, target: str, maker: Maker) -> Artefact:
    """The artefact with as many sizes open as work.

    Raises:
        ExportError: not even fixed sizes work, the disk is full, or ``job.strict`` and not all can
            stay open.
    """
    wanted = job.source.signature
    first: str | None = None
    last = ""
    for signature in ladder(wanted):
        for way in job.source.ways(signature):
            try:
                job.progress.step(target, "capture")
                captured = job.capture(signature, way)
                artefact = maker(job, captured, signature, job.cases.cases(signature))
            except (ExportError, EngineError) as error:
                check_space(job.scratch)
                last = str(error)
                # The reason of the preferred way tells most.
                first = first or last
                continue
            if signature.names != wanted.names:
                fixed = [name for name in wanted.names if name not in signature.names]
                artefact.notes.insert(0, _fixed_note(fixed, first or "", signature))
                if job.strict:
                    raise ExportError(artefact.notes[0])
            return artefact
    raise ExportError(last if first in (None, last) else f"{first}; and at last: {last}")


def _fixed_note(fixed: list[str], why: str, signature: Signature) -> str:
    return say("fixed", names=", ".join(fixed), why=why, works=signature.arguments())


def ladder(signature: Signature) -> Iterator[Signature]:
    """``signature``, then with more and more names fixed: one, all but the batch, all."""
    yield signature
    names = signature.names
    others = [name for name in names if name not in BATCH_NAMES]
    seen = [names]
    choices = [[name] for name in others[:_MOST_SINGLE]] if len(others) > 1 else []
    for fixed in (*choices, others, names):
        made = signature.fixed(fixed)
        if made.names not in seen:
            seen.append(made.names)
            yield made
