"""Target ``paddle``: ``NAME.json`` and ``NAME.pdiparams`` for Paddle Inference.

The writer is the package's own (see ``engines/paddle_inference_export.py`` for what goes wrong in
Paddle's).  Our passes are baked in as far as Paddle's ops can say them (``baked.py``); Paddle
Inference adds its own when it loads.  Left out is what it would carry along: ops that nothing
reads, and the source paths of this machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from typing import Any

from ..engines.paddle_inference_export import write_model
from ..errors import CaptureRefused, EngineError, ExportError
from . import _paddle as pd
from .baked import baked
from .cases import Case
from .job import Job
from .report import Artefact
from .runtimes import RuntimeResult, run_in_child
from .source import Captured
from .spec import Signature
from .verify import check

STEM = "model"
_ONEDNN_NOTE = (
    "oneDNN, which Paddle Inference switches on by default, {what}: call "
    "config.disable_onednn() (before 3.3: disable_mkldnn) when you load it"
)


def make_paddle(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> Artefact:
    """Writes the model and runs it in Paddle Inference; raises what :func:`paddle_once` does."""
    folder, artefact = paddle_once(job, captured, signature, cases)
    for name in artefact.files:
        shutil.copyfile(os.path.join(folder, name), os.path.join(job.folder, name))
    return artefact


def paddle_once(
    job: Job, captured: Captured, signature: Signature, cases: list[Case]
) -> tuple[str, Artefact]:
    """A folder among the job's scratch files with the verified model, made once for each program.

    Our passes are baked in where the result is right and as good with oneDNN.  Only the run without
    oneDNN must agree; what the other does is noted.

    Raises:
        ExportError: it cannot be written or run, or a result differs.
    """
    key = (str(signature.inputs), captured.way)
    if key not in job.written:
        try:
            job.written[key] = _best(job, captured, signature, cases)
        except (ExportError, EngineError) as error:
            job.written[key] = str(error)
    made = job.written[key]
    if isinstance(made, str):
        raise ExportError(made)
    folder, artefact = made
    return folder, replace(artefact, notes=list(artefact.notes))


def _best(
    job: Job, captured: Captured, signature: Signature, cases: list[Case]
) -> tuple[str, Artefact]:
    """The program after our passes, or as it was captured where that is better; notes say why."""
    refusal, after = "", None
    try:
        after = _baked(job, captured, signature, cases)
        if after.onednn_fault is None:
            return after.folder, after.artefact
    except (ExportError, EngineError, CaptureRefused) as error:
        refusal = str(error)
    before = _tried(job, captured, signature, cases)
    if after is None or before.onednn_fault is None:
        if after is not None:
            refusal = f"oneDNN fails on the result: {after.onednn_fault}"
        before.artefact.notes.append(f"our passes are not baked in: {refusal}")
        after = before
    if after.onednn_fault is not None:
        what = f"fails on this model ({after.onednn_fault})"
        after.artefact.notes.append(_ONEDNN_NOTE.format(what=what))
    return after.folder, after.artefact


@dataclass
class _Tried:
    """One form of the program, verified.  onednn_fault: why it is not right with oneDNN, if so."""

    folder: str
    artefact: Artefact
    onednn_fault: str | None = None


def _baked(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> _Tried:
    job.progress.step("paddle", "passes")
    program, records = baked(captured.program, cases[0].inputs)
    ops = [count_ops(one.program) for one in (captured.program, program)]
    if ops[1] > ops[0]:
        raise CaptureRefused(f"they would make {ops[1]} ops of {ops[0]}")
    tried = _tried(job, replace(captured, program=program), signature, cases)
    fired: dict[str, int] = {}
    for record in records:
        if record.fired:
            fired[record.name] = fired.get(record.name, 0) + record.fired
    if fired:
        said = ", ".join(f"{name} x{count}" for name, count in fired.items())
        tried.artefact.notes.append(f"baked in: {said}; {ops[0]} ops became {ops[1]}")
    return tried


def _tried(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> _Tried:
    """Writes one form and runs it in Paddle Inference, with and without oneDNN."""
    job.progress.step("paddle", "write")
    names = captured.output_names
    folder = tempfile.mkdtemp(prefix="paddle-", dir=job.scratch)
    model, params = write(captured, folder, names)
    job.progress.step("paddle", "verify")
    inputs = [one.name for one in signature.inputs]

    def run(onednn: bool) -> RuntimeResult:
        return run_in_child(
            "paddle",
            model,
            params=params,
            cases=[case.inputs for case in cases],
            names=inputs,
            settings={"onednn": onednn},
            timed=True,
            scratch=job.scratch,
        )

    plain = run(False)
    artefact = Artefact(
        target="paddle",
        files={os.path.basename(path): os.path.getsize(path) for path in (model, params) if path},
        shapes=[str(one) for one in signature.inputs],
        inputs=inputs,
        outputs=names,
        ops=count_ops(captured.program.program),
        accuracy=check(cases, plain.outputs, names, rtol=job.rtol),
        latency_ms=plain.latency_ms,
    )
    try:
        default = run(True)
        check(cases, default.outputs, names, rtol=job.rtol)
    except ExportError as error:
        return _Tried(folder, artefact, str(error))
    artefact.latency_ms = min(filter(None, (plain.latency_ms, default.latency_ms)), default=None)
    return _Tried(folder, artefact)


def write(captured: Captured, folder: str, names: list[str], edit: Any = None) -> tuple[str, str]:
    """Writes program and parameters into ``folder``; returns their paths, "" for no parameters.

    Args:
        edit: changes the copy that is written, in place.
    """
    model = os.path.join(folder, f"{STEM}.json")
    params = os.path.join(folder, f"{STEM}.pdiparams")

    def prepared(program: Any) -> None:
        if edit is not None:
            edit(program)
        pd.lift_parameters(program)
        pd.remove_dead_ops(program)
        pd.forget_source_lines(program)

    write_model(captured.program, model, params, names, edit=prepared)
    return model, params if os.path.exists(params) else ""


def count_ops(program: Any) -> int:
    """Operations of a program, without constants, parameters, inputs and outputs."""
    own = ("builtin.", "pd_op.data", "pd_op.full", "pd_op.fetch")
    return sum(not op.name().startswith(own) for op in program.global_block().ops)
