"""Where two models part: intermediate results are paired by what they hold, not by their names.

Converters rename, merge and reorder ops, so that names tell nothing.  But as long as two models
compute the same thing, most of what one computes on the way turns up in the other, number for
number.  The last result of the one that does, before the first after which none does any more, is
where they part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from ..errors import CaptureRefused, ExportError
from ..ir.graph import Graph, Value
from ..ir.importer import import_program
from ..ir.reference import constant_tensor, host_call
from .artefacts import BundleFile, OnnxFile
from .source import Source
from .spec import Signature

#: Results are the same that differ by less, relative to their range.
_SAME = 1e-3


@dataclass
class Layer:
    """One intermediate result: the op and value that it is called by, and its content."""

    name: str
    content: np.ndarray


@dataclass
class Parting:
    """rows: of each result of the first model its name, shape, the smallest relative error of any
    result of the second with that shape (None without one), and which that is.

    after, parts_at: the results of the first model between which they part; None if they do not.
    """

    rows: list[tuple[str, tuple[int, ...], float | None, str]]
    after: str | None = None
    parts_at: str | None = None


def part(first: Sequence[Layer], second: Sequence[Layer], agree: bool) -> Parting:
    """Pairs the results of two models, each in the order of computation.

    Args:
        agree: whether the outputs do; then nothing parts.
    """
    by_shape: dict[tuple[int, ...], list[Layer]] = {}
    for one in second:
        by_shape.setdefault(one.content.shape, []).append(one)
    found = Parting([])
    for one in first:
        errors = [
            (_error(other.content, one.content), other.name)
            for other in by_shape.get(one.content.shape, ())
        ]
        error, like = min(errors, default=(None, ""))
        found.rows.append((one.name, one.content.shape, error, like))
    if agree:
        return found
    same = [i for i, row in enumerate(found.rows) if row[2] is not None and row[2] <= _SAME]
    last = same[-1] if same else -1
    if last + 1 < len(found.rows):
        found.after = found.rows[last][0] if same else None
        found.parts_at = found.rows[last + 1][0]
    return found


def _error(got: np.ndarray, want: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        error = float(np.abs(got.astype("float64") - want).max())
        return error / (float(np.abs(want).max()) or 1.0) if np.isfinite(error) else np.inf


def values_of(source: Source, signature: Signature, inputs: Sequence[np.ndarray]) -> list[Layer]:
    """What ``source`` computes for ``inputs``, in the order of computation.

    Raises:
        ExportError: it does not show its ops.
    """
    if isinstance(source, OnnxFile):
        return _onnx_values(source, inputs)
    if isinstance(source, BundleFile):
        raise ExportError("a bundle does not show its ops; unpack it and compare the models in it")
    closed = signature.at([array.shape for array in inputs])
    reasons = []
    for way in source.ways(closed):
        try:
            return _graph_values(
                import_program(source.capture(closed, inputs, way).program), inputs
            )
        except CaptureRefused as error:
            reasons.append(str(error))
    raise ExportError("; ".join(reasons))


def _graph_values(graph: Graph, inputs: Sequence[np.ndarray]) -> list[Layer]:
    env: dict[Value, Any] = {one: constant_tensor(one) for one in graph.constants}
    env.update(zip(graph.inputs, (paddle.to_tensor(array) for array in inputs)))
    found = []
    with paddle.no_grad():
        for node in graph.nodes:
            results = host_call(node, [None if v is None else env[v] for v in node.inputs])
            env.update(zip(node.outputs, results))
            for value, result in zip(node.outputs[:1], results):
                if result is not None:
                    found += _layer(f"{node.op} {value.name}", result.numpy())
    return found


def _layer(name: str, content: np.ndarray) -> list[Layer]:
    """Nothing for what would match anything: single numbers and integers."""
    return [Layer(name, content)] if content.dtype.kind == "f" and content.size > 1 else []


def _onnx_values(source: OnnxFile, inputs: Sequence[np.ndarray]) -> list[Layer]:
    if not source.label.endswith(".onnx"):
        raise ExportError("ONNX Runtime's own format does not show its ops")
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise ExportError(f"needs the packages onnx and onnxruntime: {error}") from error
    model = onnx.load(source.label)
    names = {one.name for one in model.graph.output}
    ops = {}
    for node in model.graph.node:
        ops[node.output[0]] = f"{node.op_type} {node.output[0]}"
        if node.output[0] not in names:
            model.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    feeds = {one.name: array for one, array in zip(source.signature.inputs, inputs)}
    results = dict(zip(ops, session.run(list(ops), feeds)))
    return [
        made for name, value in results.items() for made in _layer(ops[name], np.asarray(value))
    ]
