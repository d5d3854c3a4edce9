"""Targets ``mobile`` (ONNX Runtime's ``.ort``), ``mnn`` and ``ncnn``, by way of ONNX.

And why there is no Paddle-Lite.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from typing import Any

from ..errors import ExportError
from .cases import Case
from .job import Job
from .onnx_target import onnx_once
from .paddle_target import STEM
from .report import Artefact
from .runtimes import RuntimeResult, call_child, run_in_child
from .source import Captured
from .spec import Signature
from .targets import by_name
from .verify import check

_CHILD = os.path.join(os.path.dirname(__file__), "child_mobile.py")
#: These runtimes compute some functions by approximations of their own.
_MOBILE_RTOL = 1e-3
_MNN_DTYPES = ("float32", "int32", "int64")


def make_ort(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> Artefact:
    """``model.ort`` for ONNX Runtime on Android and iOS; run in ONNX Runtime here."""

    def convert(onnx: str, base: str) -> list[str]:
        about = "ONNX Runtime's converter"
        call_child([_CHILD, "ort", onnx, f"{base}.ort"], about=about, scratch=job.scratch)
        return [f"{base}.ort"]

    def run(files: list[str], names: list[str]) -> RuntimeResult:
        return _run(job, "onnx", files[0], cases, names)

    return _made("mobile", job, captured, signature, cases, convert, run)


def make_mnn(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> Artefact:
    """``model.mnn`` for MNN; run in MNN here."""
    for one in signature.inputs:
        if one.dtype not in _MNN_DTYPES:
            raise ExportError(
                f"MNN takes inputs of {', '.join(_MNN_DTYPES)} only, '{one.name}' is {one.dtype}"
            )

    def convert(onnx: str, base: str) -> list[str]:
        about = "MNN's converter"
        call_child([_CHILD, "mnn", onnx, f"{base}.mnn"], about=about, scratch=job.scratch)
        return [f"{base}.mnn"]

    def run(files: list[str], names: list[str]) -> RuntimeResult:
        settings = {"outputs": captured.output_names}
        return _run(job, "mnn", files[0], cases, names, settings=settings)

    return _made("mnn", job, captured, signature, cases, convert, run)


def make_ncnn(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> Artefact:
    """``model.param`` and ``model.bin`` for ncnn, of one image each call; run in ncnn here."""
    shapes = [array.shape for array in cases[0].inputs]
    if any(not shape or shape[0] != 1 for shape in shapes):
        raise ExportError(
            "ncnn has no batch dimension: every input needs a first size of 1, e.g. "
            "--shape x=1,3,224,224"
        )
    if signature.names:
        raise ExportError("ncnn needs fixed sizes")
    ops = captured.program.program.global_block().ops
    if any(op.name() in ("pd_op.if", "pd_op.while") for op in ops):
        raise ExportError("ncnn has no branches or loops that depend on values")
    if any(array.dtype != "float32" for array in cases[0].inputs):
        raise ExportError("ncnn takes float32 inputs only")
    spelled = ",".join(f"[{','.join(map(str, shape))}]f32" for shape in shapes)

    def convert(onnx: str, base: str) -> list[str]:
        arguments = [_CHILD, "ncnn", onnx, f"{base}.param", spelled]
        call_child(arguments, about="pnnx", scratch=job.scratch)
        return [f"{base}.param", f"{base}.bin"]

    def run(files: list[str], names: list[str]) -> RuntimeResult:
        settings = {"outputs": len(captured.program.outputs)}
        return _run(job, "ncnn", files[0], cases, names, params=files[1], settings=settings)

    return _made("ncnn", job, captured, signature, cases, convert, run)


def make_paddle_lite(
    job: Job, captured: Captured, signature: Signature, cases: list[Case]
) -> Artefact:
    """Always an error: the newest Paddle-Lite reads no program of Paddle 3."""
    raise ExportError(
        "Paddle-Lite's last release (2.12, November 2022) does not read the programs of Paddle 3. "
        "Use --to mobile (ONNX Runtime), mnn or ncnn"
    )


def _made(
    target: str,
    job: Job,
    captured: Captured,
    signature: Signature,
    cases: list[Case],
    convert: Any,
    run: Any,
) -> Artefact:
    """Converts by way of ONNX, runs, compares; the files go to the folder only then."""
    missing = by_name(target).missing()
    if missing:
        raise ExportError(f"needs {', '.join(missing)}: {by_name(target).how}")
    with tempfile.TemporaryDirectory(prefix="pfb-mobile-", dir=job.scratch) as work:
        onnx, by_way = onnx_once(job, captured, signature, cases)
        job.progress.step(target, "mobile")
        files = convert(onnx, os.path.join(work, STEM))
        absent = [os.path.basename(path) for path in files if not os.path.isfile(path)]
        if absent:
            raise ExportError(f"the converter claimed success, but wrote no {', '.join(absent)}")
        job.progress.step(target, "verify")
        result = run(files, by_way.inputs)
        rtol = job.rtol or (None if target == "mobile" else _MOBILE_RTOL)
        accuracy = check(
            cases, result.outputs, by_way.outputs, rtol=rtol, narrow=target != "mobile"
        )
        sizes = {os.path.basename(path): os.path.getsize(path) for path in files}
        for path in files:
            shutil.move(path, os.path.join(job.folder, os.path.basename(path)))
    notes = [note for note in by_way.notes if note.startswith("rewritten")]
    return replace(
        by_way,
        target=target,
        files=sizes,
        accuracy=accuracy,
        latency_ms=result.latency_ms,
        notes=notes,
    )


def _run(
    job: Job, runtime: str, model: str, cases: list[Case], names: list[str], **more: Any
) -> RuntimeResult:
    inputs = [case.inputs for case in cases]
    return run_in_child(
        runtime, model, cases=inputs, names=names, timed=True, scratch=job.scratch, **more
    )
