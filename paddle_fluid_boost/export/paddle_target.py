"""Target ``paddle``: ``NAME.json`` and ``NAME.pdiparams`` for Paddle Inference.

The writer is the package's own (see ``engines/paddle_inference_export.py`` for what goes wrong in
Paddle's).  Paddle Inference optimises when it loads; left out here is what it would carry along:
ops that nothing reads, and the source paths of this machine.
"""

from __future__ import annotations

import os
from typing import Any

from ..engines.paddle_inference_export import write_model
from ..errors import ExportError
from . import _paddle as pd
from .cases import Case
from .job import Job
from .report import Artefact
from .runtimes import run_in_child
from .source import Captured
from .spec import Signature
from .structure import output_names
from .verify import check

STEM = "model"
_ONEDNN_NOTE = (
    "oneDNN, which Paddle Inference switches on by default, {what}: call "
    "config.disable_onednn() (before 3.3: disable_mkldnn) when you load it"
)


def make_paddle(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> Artefact:
    """Writes the model and runs it in Paddle Inference, with and without oneDNN.

    Only the run without oneDNN must agree; what the other does is noted.

    Raises:
        ExportError: it cannot be written or run, or a result differs.
    """
    job.progress.step("paddle", "write")
    names = output_names(captured.template, len(captured.program.outputs))
    model, params = write(captured, job.folder, names)
    job.progress.step("paddle", "verify")
    arrays = [case.inputs for case in cases]
    inputs = [one.name for one in signature.inputs]
    plain = run_in_child("paddle", model, params=params, cases=arrays, names=inputs, timed=True)
    accuracy = check(cases, plain.outputs, names, rtol=job.rtol)
    latency, notes = plain.latency_ms, []
    try:
        default = run_in_child(
            "paddle",
            model,
            params=params,
            cases=arrays,
            names=inputs,
            settings={"onednn": True},
            timed=True,
        )
        check(cases, default.outputs, names, rtol=job.rtol)
        latency = min(filter(None, (plain.latency_ms, default.latency_ms)), default=None)
    except ExportError as error:
        notes.append(_ONEDNN_NOTE.format(what=f"fails on this model ({error})"))
    return Artefact(
        target="paddle",
        files={os.path.basename(path): os.path.getsize(path) for path in (model, params) if path},
        shapes=[str(one) for one in signature.inputs],
        inputs=inputs,
        outputs=names,
        ops=count_ops(captured.program.program),
        accuracy=accuracy,
        latency_ms=latency,
        notes=notes,
    )


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
        pd.remove_dead_ops(program)
        pd.forget_source_lines(program)

    write_model(captured.program, model, params, names, edit=prepared)
    return model, params if os.path.exists(params) else ""


def count_ops(program: Any) -> int:
    """Operations of a program, without constants, parameters, inputs and outputs."""
    own = ("builtin.", "pd_op.data", "pd_op.full", "pd_op.fetch")
    return sum(not op.name().startswith(own) for op in program.global_block().ops)
