"""``pfb.export``: the whole way from a model to verified files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..capture.lock import STATIC_LOCK
from ..errors import ExportError, SpecError
from . import _paddle as pd
from .bundle_target import make_bundle
from .cases import CaseMaker
from .job import Job, Maker, make
from .learned import learned_signature
from .loading import load_object
from .mobile_targets import make_mnn, make_ncnn, make_ort, make_paddle_lite
from .onnx_target import make_onnx
from .output import REPORT, atomic_folder, scratch_folder
from .paddle_target import make_paddle
from .progress import Progress
from .report import Report
from .saved_model import SavedSource, model_files
from .source import PythonSource, Source
from .spec import Signature, parse_signature
from .targets import versions

#: In the order in which they are made.
TARGETS: dict[str, Maker] = {
    "paddle": make_paddle,
    "onnx": make_onnx,
    "bundle": make_bundle,
    "mobile": make_ort,
    "mnn": make_mnn,
    "ncnn": make_ncnn,
    "paddlelite": make_paddle_lite,
}


def export(
    model: Any,
    out: str,
    *,
    to: Sequence[str] | str = ("paddle",),
    shapes: Sequence[str] | str = (),
    ranges: Sequence[str] | str = (),
    arguments: Mapping[str, Any] | None = None,
    weights: str | None = None,
    samples: str | None = None,
    rtol: float | None = None,
    opset: int = 17,
    strict: bool = False,
    keep_going: bool = False,
    force: bool = False,
    progress: bool = False,
) -> Report:
    """Exports ``model`` to files that were run in their own runtimes and agree with it.

    Args:
        model: a ``paddle.nn.Layer``, a function of tensors, ``"module:attr"``, ``"file.py:attr"``
            (both called, where needed, to get a Layer), or the path of a saved model
            (``.json`` or ``.pdmodel``, its prefix, or its folder).
        out: the folder to make; it appears only when all is well.
        to: targets, of ``TARGETS``.
        shapes: the inputs, e.g. ``"x=batch,3,h,w"`` or ``"ids:int64=batch,seq"``.  Names stand for
            sizes that vary.  May be left out for a saved model, for a Layer under ``to_static``
            with ``input_spec``, and for one that was called under the plugin: what differed
            between its calls is left open.
        ranges: the sizes of names, e.g. ``"h=64..256:32"`` or ``"h=224,320"``; the first is what
            a name gets if it cannot stay open.
        arguments: keyword arguments for making the Layer.
        weights: a ``.pdparams`` file for it.
        samples: a folder of ``.npz`` files with inputs of your own, compared too.
        rtol: allowed error relative to the range of an output (1e-4; 5e-3 for float16).
        opset: of ONNX; raised where an op needs a newer one.
        strict: a size that cannot stay open is a failure, not a note.
        keep_going: keep what worked when a target fails.
        force: replace an earlier export at ``out``.
        progress: print the steps on standard error.

    Returns:
        The report; ``str()`` of it is a table.  With ``keep_going``, look at ``report.ok``.

    Raises:
        ExportError: something failed; nothing was written.
        SpecError: ``shapes`` or ``ranges`` cannot be read.
    """
    targets = _targets(to)
    if rtol is not None and not rtol > 0:
        raise ExportError(f"--rtol: needs a positive number, got {rtol}", usage=True)
    STATIC_LOCK.open()
    started = time.perf_counter()
    shown = Progress(len(targets) + 1, quiet=not progress)
    try:
        shown.step("", "load")
        source = open_source(model, listed(shapes), listed(ranges), arguments, weights)
        with atomic_folder(out, replace=force) as folder:
            report = Report(source.label, os.path.abspath(out), warnings=list(source.warnings))
            shown.step("", "reference")
            cases = CaseMaker(source, samples)
            cases.cases(source.signature)
            shown.done()
            scratch = scratch_folder(folder)
            job = Job(source, cases, folder, scratch, shown, rtol=rtol, strict=strict, opset=opset)
            _make_all(job, targets, report, keep_going)
            report.seconds = time.perf_counter() - started
            report.versions = versions()
            _write_report(report, folder)
    finally:
        shown.close()
    return report


def _targets(to: Sequence[str] | str) -> list[str]:
    wanted = [word.strip() for word in to.split(",")] if isinstance(to, str) else list(to)
    unknown = [name for name in wanted if name not in TARGETS]
    if unknown or not wanted:
        raise ExportError(
            f"--to: needs some of {', '.join(TARGETS)}, got {', '.join(wanted)!r}", usage=True
        )
    return [name for name in TARGETS if name in wanted]


def _make_all(job: Job, targets: list[str], report: Report, keep_going: bool) -> None:
    for target in targets:
        try:
            report.artefacts.append(make(job, target, TARGETS[target]))
        except ExportError as error:
            report.failures[target] = str(error)
            if not keep_going:
                raise ExportError(f"{target}: {error}") from error
        job.progress.done()
    if not report.artefacts:
        raise ExportError("; ".join(f"{name}: {why}" for name, why in report.failures.items()))


def _write_report(report: Report, folder: str) -> None:
    with open(os.path.join(folder, REPORT), "w", encoding="utf-8") as file:
        json.dump(report.to_dict(), file, indent=1, ensure_ascii=False)


# -- what is exported -----------------------------------------------------------------------------


def open_source(
    model: Any,
    shapes: list[str],
    ranges: list[str],
    arguments: Mapping[str, Any] | None,
    weights: str | None,
) -> Source:
    """What ``export`` was asked to export; the arguments are those of :func:`export`.

    Raises:
        ExportError: there is no such model.  SpecError: the shapes are missing or no shapes.
    """
    signature = parse_signature(shapes, ranges) if shapes else None
    if isinstance(model, (str, os.PathLike)):
        files = model_files(os.fspath(model))
        if files is not None:
            if arguments or weights:
                raise ExportError("--args and --weights are for models from Python, not for files")
            return SavedSource(*files, given=signature)
        label, (call, warnings) = str(model), load_object(str(model), arguments, weights)
    else:
        if arguments or weights:
            raise ExportError("arguments and weights are for models named by a string")
        label, call, warnings = _label(model), model, []
    if signature is None:
        signature = _declared(call, ranges)
    return PythonSource(label, call, signature, warnings)


def _label(model: Any) -> str:
    if not callable(model):
        raise ExportError(
            f"model: needs a Layer, a callable or a string, got {type(model).__name__}"
        )
    layer = isinstance(model, pd.paddle.nn.Layer)
    return type(model).__name__ if layer else str(getattr(model, "__qualname__", model))


def _declared(call: Any, ranges: list[str]) -> Signature:
    """The signature that the user gave to ``to_static``, or that calls had; SpecError without."""
    forward: Callable[..., Any] = call.forward if isinstance(call, pd.paddle.nn.Layer) else call
    specs = getattr(getattr(forward, "_function_spec", None), "input_spec", None)
    if not specs or not all(isinstance(one, pd.paddle.static.InputSpec) for one in specs):
        learned = learned_signature(call)
        if learned is not None:
            return learned
        raise SpecError(
            "--shape is missing: say what the model takes, e.g. --shape x=batch,3,224,224 "
            "(names for sizes that vary, --shape once per input)"
        )
    inputs = []
    for number, one in enumerate(specs):
        name = one.name or f"x{number}"
        dims = [
            int(size) if size is not None and size >= 0 else ("batch" if not axis else f"d{axis}")
            for axis, size in enumerate(one.shape)
        ]
        inputs.append(
            f"{name}:{str(one.dtype).rpartition('.')[2].lower()}={','.join(map(str, dims))}"
        )
    return parse_signature(inputs, ranges)


def listed(given: Sequence[str] | str) -> list[str]:
    """One text as a list of one."""
    return [given] if isinstance(given, str) else list(given)
