"""What an ONNX file holds; of a file in ONNX Runtime's own format (``.ort``), what it takes."""

from __future__ import annotations

import collections
import math
from typing import Any

from ..errors import ExportError
from .artefacts import OnnxFile
from .messages import say
from .spec import TensorSpec


def inspect_onnx(path: str) -> dict[str, Any]:
    """inputs, outputs, ops, parameters, parameter_bytes and notes of an ``Inspection``.

    Raises:
        ExportError: the file cannot be read, or what reads it is not installed.
    """
    if path.endswith(".ort"):
        opened = OnnxFile(path, threads=1)
        return {
            "inputs": [str(one) for one in opened.signature.inputs],
            "outputs": opened.output_names,
            "notes": [say("inspect.ort")],
        }
    try:
        import onnx
    except ImportError as error:
        raise ExportError(f"{path}: needs the package onnx: pip install onnx") from error
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf's and the checker's own, which share no narrower base
        raise ExportError(f"{path} is no whole ONNX model: {error}") from error
    graph = model.graph
    weights = {one.name for one in graph.initializer}
    sizes = [
        (math.prod(one.dims), onnx.helper.tensor_dtype_to_np_dtype(one.data_type).itemsize)
        for one in graph.initializer
    ]
    counts = collections.Counter(node.op_type for node in graph.node)
    opsets = ", ".join(f"{one.domain or 'ai.onnx'} {one.version}" for one in model.opset_import)
    return {
        "inputs": [_text(onnx, one) for one in graph.input if one.name not in weights],
        "outputs": [_text(onnx, one) for one in graph.output],
        "ops": dict(counts.most_common()),
        "parameters": sum(count for count, _ in sizes),
        "parameter_bytes": sum(count * width for count, width in sizes),
        "notes": [f"opset {opsets}; {model.producer_name} {model.producer_version}".rstrip()],
    }


def _text(onnx: Any, value: Any) -> str:
    kind = value.type.tensor_type
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    dims = [
        one.dim_param or "?" if one.WhichOneof("value") != "dim_value" else one.dim_value
        for one in kind.shape.dim
    ]
    return str(TensorSpec(value.name, tuple(dims), dtype))
