"""Target ``bundle``: one file that ``pfb.load`` starts warm.

It holds, for a few sizes, the graph as our passes left it with the layout that was fastest here;
the Paddle model for all other sizes and for machines without the native engine; and, where the
converter is installed, the ONNX model.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..engines.native.engine import NativeEngine, build_plan
from ..errors import CaptureRefused, EngineError, ExportError
from ..ir.importer import import_program
from ..passes.pipeline import optimise
from . import _paddle as pd
from .bundle_file import write_bundle
from .cases import Case
from .graph_json import ConstantWriter, graph_to_dict
from .job import Job
from .machine import machine, tuning_key
from .onnx_target import onnx_once
from .paddle_target import STEM, paddle_once
from .report import Artefact
from .runtimes import run_bundle
from .source import Captured
from .spec import Signature
from .targets import by_name, versions
from .verify import check

#: Sizes that get a plan of their own.
_MOST_PLANS = 4
_RUNS = 7
NAME = f"{STEM}.pfb"
_CONSTANTS = "graphs/constants.bin"


def make_bundle(job: Job, captured: Captured, signature: Signature, cases: list[Case]) -> Artefact:
    """Writes ``model.pfb``, loads it in a fresh process and runs every case there.

    Raises:
        ExportError: the Paddle model in it cannot be written or is wrong, or a result differs.
    """
    names = captured.output_names
    path = os.path.join(job.folder, NAME)
    with tempfile.TemporaryDirectory(prefix="pfb-bundle-", dir=job.scratch) as work:
        folder, written = paddle_once(job, captured, signature, cases)
        job.progress.step("bundle", "native")
        plans, notes, graphs, spans = _plans(job, signature, cases, captured.template, work)
        onnx, said = _onnx(job, captured, signature, cases)
        notes += said
        job.progress.step("bundle", "pack")
        manifest = {
            "card": _card(job),
            "inputs": [_input(one, captured) for one in signature.inputs],
            "outputs": names,
            "template": captured.template,
            "plans": plans,
            "example": [list(array.shape) for array in cases[0].inputs],
            "ranges": {name: list(signature.sizes(name)) for name in signature.names},
        }
        models = {f"paddle/{name}": os.path.join(folder, name) for name in written.files}
        files = {**models, **graphs, **onnx}
        write_bundle(path, manifest, files, _weights(captured, files, spans))
    job.progress.step("bundle", "verify")
    result = run_bundle(path, [case.inputs for case in cases], job.scratch)
    accuracy = check(cases, result.outputs, names, rtol=job.rtol)
    notes.append(
        f"loads in {result.load_ms:.0f} ms; first call {result.first_ms:.3g} ms, then "
        f"{result.latency_ms:.3g} ms, and {result.rested_ms:.3g} ms after a pause"
    )
    return Artefact(
        target="bundle",
        files={NAME: os.path.getsize(path)},
        shapes=[str(one) for one in signature.inputs],
        inputs=[one.name for one in signature.inputs],
        outputs=names,
        ops=written.ops,
        accuracy=accuracy,
        latency_ms=result.latency_ms,
        notes=notes,
    )


def _weights(
    captured: Captured, files: Mapping[str, str], spans: Sequence[tuple[int, int]]
) -> Iterator[bytes]:
    """What the models and the plans may have in common: the parameters, as they are and folded."""
    if _CONSTANTS in files:
        with open(files[_CONSTANTS], "rb") as file:
            for offset, count in spans:
                file.seek(offset)
                yield file.read(count)
    for tensor in captured.program.parameters.values():
        yield tensor.numpy().tobytes()


def _input(one: Any, captured: Captured) -> dict[str, Any]:
    return {"name": one.name, "dtype": one.dtype, "dims": list(one.dims)}


def _card(job: Job) -> dict[str, Any]:
    return {
        "model": job.source.label,
        "versions": versions(),
        "machine": machine(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _onnx(
    job: Job, captured: Captured, signature: Signature, cases: list[Case]
) -> tuple[dict[str, str], list[str]]:
    """The verified ONNX file where there can be one, else a note with the reason."""
    missing = by_name("onnx").missing()
    if missing:
        return {}, [f"holds no ONNX model: needs {', '.join(missing)}"]
    try:
        path, _ = onnx_once(job, captured, signature, cases)
    except ExportError as error:
        return {}, [f"holds no ONNX model: {error}"]
    return {"onnx/model.onnx": path}, []


# -- native plans ---------------------------------------------------------------------------------


def _plans(
    job: Job, signature: Signature, cases: Sequence[Case], template: Any, work: str
) -> tuple[list[dict[str, Any]], list[str], dict[str, str], list[tuple[int, int]]]:
    """Stored plans, notes, the files that hold them, and where in theirs the constants are."""
    reason = NativeEngine().unavailable()
    if reason is not None:
        return [], [f"no native plan: {reason}"], {}, []
    plans: list[dict[str, Any]] = []
    notes: list[str] = []
    files: dict[str, str] = {}
    constants = os.path.join(work, "constants.bin")
    with open(constants, "wb") as file:
        writer = ConstantWriter(file)
        for case in _distinct_shapes(cases)[:_MOST_PLANS]:
            shapes = [list(array.shape) for array in case.inputs]
            try:
                stored, settings, said = _plan(job, signature, case, template, writer)
            except (ExportError, EngineError, CaptureRefused) as error:
                notes.append(f"no native plan for {shapes}: {error}")
                continue
            name = f"graphs/{len(plans)}.json"
            path = os.path.join(work, f"graph{len(plans)}.json")
            with open(path, "w", encoding="utf-8") as graph_file:
                json.dump(stored, graph_file)
            files[name] = path
            tuned = {tuning_key(): settings}
            plans.append({"shapes": shapes, "graph": name, "tuned": tuned})
            notes.append(f"native plan for {shapes}: {said}")
    if plans:
        files[_CONSTANTS] = constants
    return plans, notes, files, writer.spans


def _distinct_shapes(cases: Sequence[Case]) -> list[Case]:
    found: dict[tuple[tuple[int, ...], ...], Case] = {}
    for case in cases:
        found.setdefault(tuple(array.shape for array in case.inputs), case)
    return list(found.values())


def _plan(
    job: Job, signature: Signature, case: Case, template: Any, writer: ConstantWriter
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The stored graph for the shapes of ``case``, its settings, and its time on this machine."""
    closed = signature.at([array.shape for array in case.inputs])
    reasons = []
    for way in job.source.ways(closed):
        try:
            captured = job.source.capture(closed, case.inputs, way)
        except CaptureRefused as error:
            reasons.append(str(error))
            continue
        if captured.template != template:
            reasons.append(f"{way}: the result is nested in another way")
            continue
        graph = import_program(captured.program)
        optimise(graph)
        tensors = [pd.paddle.to_tensor(array) for array in case.inputs]
        settings, seconds = _fastest(captured, graph, case, tensors)
        return graph_to_dict(graph, writer), settings, f"{seconds * 1e3:.3g} ms, {settings}"
    raise ExportError("; ".join(reasons))


def _fastest(
    captured: Captured, graph: Any, case: Case, tensors: list[Any]
) -> tuple[dict[str, Any], float]:
    """The settings whose plan is right, and the fastest here."""
    best: tuple[dict[str, Any], float] | None = None
    why = ""
    for settings in NativeEngine().candidates(captured.program):
        executable = build_plan(graph, settings)
        try:
            outputs: list[np.ndarray] = [one.numpy() for one in executable(tensors)]
            check([case], [outputs], [f"output {i}" for i in range(len(outputs))])
        except ExportError as error:
            why = str(error)
            continue
        seconds = _seconds(executable, tensors)
        if best is None or seconds < best[1]:
            best = settings, seconds
        executable.close()
    if best is None:
        raise ExportError(f"the plan gives other results: {why}")
    # The number of threads is the loading machine's affair.
    return {name: value for name, value in best[0].items() if name != "threads"}, best[1]


def _seconds(executable: Any, tensors: list[Any]) -> float:
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        executable(tensors)
        times.append(time.perf_counter() - started)
    return statistics.median(times)
