"""``inspect``: what a model or an artefact holds, without running it on data of yours."""

from __future__ import annotations

import collections
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..capture.lock import STATIC_LOCK
from ..errors import BundleError, CaptureRefused, ExportError
from ..ir.flops import flops_by_op
from ..ir.graph import Graph, numpy_dtype
from ..ir.importer import import_program
from ..memory.planner import Buffer, lower_bound
from .artefacts import BUNDLE_FILES, ONNX_FILES, is_artefact
from .bundle_file import read_bundle
from .cases import random_array
from .graph_json import graph_from_dict
from .messages import say
from .onnx_inspection import inspect_onnx
from .report import aligned, size_text
from .source import Source
from .spec import Signature, TensorSpec


@dataclass
class Inspection:
    """What was found.

    kind: ``"python"``, ``"paddle"``, ``"onnx"`` or ``"bundle"``.  files: name -> bytes.
    inputs, outputs: as ``--shape`` says them; ops: name -> count.  parameters: numbers in the
    weights, and parameter_bytes their size.  flops: of one call at ``example``, products only.
    activation_bytes: what any run needs at one moment beside the weights, at ``example``.
    card: of a bundle.  notes: what else there is to know.
    """

    path: str
    kind: str
    files: dict[str, int] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    ops: dict[str, int] = field(default_factory=dict)
    parameters: int = 0
    parameter_bytes: int = 0
    example: list[list[int]] = field(default_factory=list)
    flops: int | None = None
    activation_bytes: int | None = None
    card: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return _render(self)


def inspect_model(
    model: Any,
    *,
    shapes: Sequence[str] | str = (),
    ranges: Sequence[str] | str = (),
    arguments: Mapping[str, Any] | None = None,
    weights: str | None = None,
) -> Inspection:
    """What ``model`` takes, gives and consists of.

    Args:
        model: what :func:`~.api.export` takes, or the path of an ``.onnx``, ``.ort`` or ``.pfb``
            file.  Of a bundle nothing is built.
        shapes, ranges, arguments, weights: as :func:`~.api.export` has them, for a model from
            Python.

    Raises:
        ExportError: there is no such model, or it cannot be read.
        BundleError: the bundle is damaged.
    """
    from .api import listed, open_source

    if isinstance(model, (str, os.PathLike)) and is_artefact(os.fspath(model)):
        path = os.fspath(model)
        if path.endswith(BUNDLE_FILES):
            return _bundle(path)
        assert path.endswith(ONNX_FILES)
        return Inspection(
            path, "onnx", {os.path.basename(path): os.path.getsize(path)}, **(inspect_onnx(path))
        )
    STATIC_LOCK.open()
    source = open_source(model, listed(shapes), listed(ranges), arguments, weights)
    return _source(source)


def _source(source: Source) -> Inspection:
    files = [getattr(source, name, "") for name in ("model", "params")]
    found = Inspection(
        source.label,
        "paddle" if files[0] else "python",
        {os.path.basename(path): os.path.getsize(path) for path in files if path},
        inputs=[str(one) for one in source.signature.inputs],
        notes=list(source.warnings),
    )
    sizes = source.signature.example()
    random = np.random.default_rng(0)
    example = [
        random_array(random, one.shape(sizes), one.dtype, 2) for one in source.signature.inputs
    ]
    graph, names = _graph(source, source.signature, example)
    closed = source.signature.at([array.shape for array in example])
    try:
        fixed, _ = _graph(source, closed, example)
    except (CaptureRefused, ExportError) as error:
        found.notes.append(say("inspect.unknown_cost", why=error))
        fixed = None
    _describe(found, graph, names, fixed)
    return found


def _graph(
    source: Source, signature: Signature, example: Sequence[np.ndarray]
) -> tuple[Graph, list[str]]:
    """The graph, and the names of its outputs; raises CaptureRefused of the first way."""
    first: CaptureRefused | None = None
    for way in source.ways(signature):
        try:
            captured = source.capture(signature, example, way)
        except CaptureRefused as error:
            first = first or error
            continue
        names = captured.output_names
        return import_program(captured.program), names
    raise ExportError(str(first))


def _describe(found: Inspection, graph: Graph, names: Sequence[str], fixed: Graph | None) -> None:
    """Enters what ``graph`` says, and what one of fixed sizes says about cost."""
    found.outputs = [
        str(TensorSpec(name, tuple("?" if n < 0 else n for n in value.shape), value.dtype))
        for name, value in zip(names, graph.outputs)
    ]
    counts = collections.Counter(op for one in _all_graphs(graph) for op in _ops(one))
    found.ops = dict(counts.most_common())
    # Single numbers are arguments of ops.
    constants = {
        c
        for one in _all_graphs(graph)
        for c in one.constants
        if c.tensor is not None or math.prod(c.shape) > 1
    }
    found.parameters = sum(math.prod(c.shape) for c in constants)
    found.parameter_bytes = sum(_bytes(c) for c in constants)
    if fixed is not None and all(-1 not in n.outputs[0].shape for n in fixed.nodes if n.outputs):
        found.example = [list(value.shape) for value in fixed.inputs]
        found.flops = sum(flops_by_op(fixed).values())
        found.activation_bytes = _activation_bytes(fixed)


def _ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def _all_graphs(graph: Graph) -> list[Graph]:
    found = [graph]
    for node in graph.nodes:
        for region in node.regions:
            found += _all_graphs(region)
    return found


def _bytes(value: Any) -> int:
    return int(math.prod(value.shape)) * int(numpy_dtype(value.dtype).itemsize)


def _activation_bytes(graph: Graph) -> int:
    """Every result counted for itself, whether an engine computes it in place or not."""
    last = {value: len(graph.nodes) for value in graph.outputs}
    for step, node in reversed(list(enumerate(graph.nodes))):
        for value in node.inputs:
            if value is not None:
                last.setdefault(value, step)
    buffers = [
        Buffer(_bytes(value), step, max(step, last.get(value, step)))
        for step, node in enumerate(graph.nodes)
        for value in node.outputs
        if -1 not in value.shape  # what training keeps, of a size of its own
    ]
    return lower_bound(buffers)


def _bundle(path: str) -> Inspection:
    manifest, contents = read_bundle(path)
    try:
        return _of_manifest(path, manifest, contents)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BundleError(f"{path}: the manifest is damaged: {error!r}") from error


def _of_manifest(path: str, manifest: dict[str, Any], contents: dict[str, bytes]) -> Inspection:
    found = Inspection(
        path,
        "bundle",
        {"manifest.json": len(json.dumps(manifest)), **{n: len(c) for n, c in contents.items()}},
        inputs=[
            str(TensorSpec(str(one["name"]), tuple(one["dims"]), str(one["dtype"])))
            for one in manifest["inputs"]
        ],
        outputs=[str(name) for name in manifest["outputs"]],
        card=dict(manifest["card"]),
    )
    constants = np.frombuffer(contents.get("graphs/constants.bin", b""), np.uint8)
    for number, plan in enumerate(manifest["plans"]):
        graph = graph_from_dict(json.loads(contents[plan["graph"]]), constants)
        if number == 0:
            _describe(found, graph, found.outputs, graph)
        found.notes += [
            say("inspect.plan", shapes=plan["shapes"], machine=key, settings=settings)
            for key, settings in plan["tuned"].items()
        ]
    return found


def _render(found: Inspection) -> str:
    rows = [[say("inspect.kind"), found.kind]]
    rows += [[say("inspect.file"), f"{n}  {size_text(s)}"] for n, s in found.files.items()]
    rows += [[say("inspect.input"), one] for one in found.inputs]
    rows += [[say("inspect.output"), one] for one in found.outputs]
    weights = f"{found.parameters:,}  {size_text(found.parameter_bytes)}"
    rows.append([say("inspect.parameters"), weights])
    if found.flops is not None and found.activation_bytes is not None:
        rows.append([say("inspect.flops"), f"{found.flops / 1e9:.3g} GFLOP"])
        rows.append([say("inspect.activations"), size_text(found.activation_bytes)])
        rows.append([say("inspect.example"), "  ".join(map(str, found.example))])
    rows += [[key, str(value)] for key, value in found.card.items()]
    ops = ", ".join(f"{name} x{count}" for name, count in found.ops.items())
    rows.append([say("inspect.ops"), f"{sum(found.ops.values())}: {ops}"])
    return "\n".join([*aligned(rows), *found.notes])
