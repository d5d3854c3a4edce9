"""Target ``onnx``: rewrite, Paddle2ONNX in a child process, polish, compare in ONNX Runtime."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from typing import Any

from ..capture.lock import STATIC_LOCK
from ..errors import ExportError
from .cases import Case
from .job import Job
from .onnx_support import refuse_unsupported
from .paddle_target import STEM, write
from .report import Artefact
from .rewrites import rewrite_program
from .runtimes import call_child, run_in_child
from .source import Captured
from .spec import Signature
from .targets import by_name, version
from .verify import Accuracy, check

_CHILD = os.path.join(os.path.dirname(__file__), "child_onnx.py")


def make_onnx(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> Artefact:
    """Writes ``model.onnx``; raises what :func:`onnx_once` does."""
    path, artefact = onnx_once(job, captured, signature, cases)
    shutil.copyfile(path, os.path.join(job.folder, f"{STEM}.onnx"))
    return artefact


def onnx_once(
    job: Job, captured: Captured, signature: Signature, cases: list[Case]
) -> tuple[str, Artefact]:
    """A verified ONNX file among the job's scratch files, made once for each captured program.

    Raises:
        ExportError: something needed is missing, the model cannot be converted, or ONNX Runtime
            gives other results.
    """
    key = (str(signature.inputs), captured.way)
    if key not in job.converted:
        target = os.path.join(job.scratch, f"{len(job.converted)}.onnx")
        try:
            job.converted[key] = target, _make(job, captured, signature, cases, target)
        except ExportError as error:
            job.converted[key] = target, str(error)
    target, made = job.converted[key]
    if isinstance(made, str):
        raise ExportError(made)
    return target, replace(made, notes=list(made.notes))


def _make(
    job: Job, captured: Captured, signature: Signature, cases: list[Case], target: str
) -> Artefact:
    missing = by_name("onnx").missing()
    if missing:
        raise ExportError(f"needs {', '.join(missing)}: {by_name('onnx').how}")
    names = captured.output_names
    with tempfile.TemporaryDirectory(prefix="pfb-onnx-", dir=job.scratch) as work:
        job.progress.step("onnx", "convert")
        raw, rewritten = _convert(captured, work, names, job.opset)
        job.progress.step("onnx", "simplify")
        spec = _spec(captured, signature, names, work)
        made, notes = _polished(job, raw, spec, signature, cases, names, work)
        shutil.move(made.path, target)
    if rewritten:
        notes.insert(0, "rewritten first: " + ", ".join(f"{n} x{c}" for n, c in rewritten.items()))
    notes.insert(0, f"opset {made.opset}")
    return Artefact(
        target="onnx",
        files={f"{STEM}.onnx": os.path.getsize(target)},
        shapes=[str(one) for one in signature.inputs],
        inputs=[one.name for one in signature.inputs],
        outputs=names,
        ops=made.ops,
        accuracy=made.accuracy,
        latency_ms=made.latency_ms,
        notes=notes,
    )


def _convert(
    captured: Captured, work: str, names: list[str], opset: int
) -> tuple[str, dict[str, int]]:
    rewritten: dict[str, int] = {}

    def edit(program: Any) -> None:
        rewritten.update(rewrite_program(program))
        refuse_unsupported(program)

    with STATIC_LOCK:
        model, params = write(captured, work, names, edit)
    raw = os.path.join(work, "raw.onnx")
    convert = [_CHILD, "convert", model, params, raw, str(opset)]
    call_child(convert, about="Paddle2ONNX", scratch=work)
    if not os.path.isfile(raw):
        raise ExportError("Paddle2ONNX claimed success, but wrote no file")
    return raw, rewritten


def _spec(captured: Captured, signature: Signature, names: list[str], work: str) -> str:
    path = os.path.join(work, "spec.json")
    ranks = [len(slot.shape) for slot in captured.program.outputs]
    with open(path, "w") as file:
        json.dump(
            {
                "inputs": {one.name: list(one.dims) for one in signature.inputs},
                "outputs": list(zip(names, ranks)),
            },
            file,
        )
    return path


class _Polished:
    """A polished and verified file."""

    def __init__(self, path: str, said: str, accuracy: Accuracy, latency_ms: float | None) -> None:
        facts = json.loads(said.strip().splitlines()[-1])
        self.path, self.accuracy, self.latency_ms = path, accuracy, latency_ms
        self.ops, self.opset = int(facts["ops"]), int(facts["opset"])


def _polished(
    job: Job,
    raw: str,
    spec: str,
    signature: Signature,
    cases: list[Case],
    names: list[str],
    work: str,
) -> tuple[_Polished, list[str]]:
    """Simplified if onnxslim is there and keeps the model right, else as it is."""
    notes: list[str] = []
    slims = ["1", "0"] if version("onnxslim") else ["0"]
    if slims == ["0"]:
        notes.append("not simplified: pip install onnxslim")
    for slim in slims:
        path = os.path.join(work, f"polished{slim}.onnx")
        try:
            polish = [_CHILD, "polish", raw, path, spec, slim]
            said = call_child(polish, about="ONNX checks", scratch=work)
            job.progress.step("onnx", "verify")
            result = run_in_child(
                "onnx",
                path,
                cases=[case.inputs for case in cases],
                names=[one.name for one in signature.inputs],
                timed=True,
                scratch=job.scratch,
            )
            accuracy = check(cases, result.outputs, names, rtol=job.rtol)
            return _Polished(path, said, accuracy, result.latency_ms), notes
        except ExportError as error:
            if slim == slims[-1]:
                raise
            notes.append(f"not simplified: with onnxslim, {error}")
    raise AssertionError("unreachable: the last turn returns or raises")
