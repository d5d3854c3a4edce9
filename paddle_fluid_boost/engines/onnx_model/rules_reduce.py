"""Rules for normalisation, reduction, resampling and ordering."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Constant, Node, Value
from .conversion import Converter, Unsupported, axis_of, numbers, required, writes
from .rules_pointwise import as_type, plain_number


@writes("softmax", "log_softmax")
def softmax(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    op = "Softmax" if node.op == "softmax" else "LogSoftmax"
    return model.add(op, model.name(x), axis=axis_of(node, x))


@writes("layer_norm")
def layer_norm(model: Converter, node: Node) -> str:
    x, scale, bias = node.inputs[:3]
    if any(model.is_used(value) for value in node.outputs[1:]):
        raise Unsupported("the statistics are read")
    return _layer_norm(model, model.name(x), node, required(x), scale, bias)


@writes("add_layer_norm")
def add_layer_norm(model: Converter, node: Node) -> list[str]:
    x, y, scale, bias = node.inputs[:4]
    total = model.add("Add", model.name(x), model.name(y))
    return [_layer_norm(model, total, node, node.outputs[1], scale, bias), total]


@writes("embedding_layer_norm")
def embedding_layer_norm(model: Converter, node: Node) -> list[str]:
    count = 2 * node.attrs["tables"]
    lookups, addends = node.inputs[:count], node.inputs[count:-2]
    terms = [
        model.add("Gather", model.name(table), model.name(ids))
        for ids, table in zip(lookups[::2], lookups[1::2])
    ]
    total, *rest = [*terms, *(model.name(addend) for addend in addends)]
    for term in rest:
        total = model.add("Add", total, term)
    scale, bias = node.inputs[-2:]
    return [_layer_norm(model, total, node, node.outputs[1], scale, bias), total]


def _layer_norm(
    model: Converter, x: str, node: Node, like: Value, scale: Value | None, bias: Value | None
) -> str:
    axis = node.attrs.get("begin_norm_axis", like.rank - 1)
    shape = list(like.shape[axis:])
    scales = (
        model.constant(np.ones(shape, like.dtype))
        if scale is None
        else _shaped(model, scale, shape)
    )
    shift = "" if bias is None else _shaped(model, bias, shape)
    epsilon = float(node.attrs["epsilon"])
    return model.add("LayerNormalization", x, scales, shift, axis=axis, epsilon=epsilon)


def _shaped(model: Converter, value: Value, shape: list[int]) -> str:
    """``value`` in another shape, without an operator where it is a constant."""
    if list(value.shape) == shape:
        return model.name(value)
    if isinstance(value, Constant):
        return model.constant(value.compute().reshape(shape))
    return model.reshape(model.name(value), shape)


@writes("fused_rms_norm")
def rms_norm(model: Converter, node: Node) -> str:
    x, scale = required(node.inputs[0]), node.inputs[1]
    name, last = model.name(x), model.integers([len(x.shape) - 1])
    squares = model.add("ReduceMean", model.add("Mul", name, name), last, keepdims=1)
    shifted = model.add("Add", squares, model.scalar(float(node.attrs["epsilon"]), x.dtype))
    made = model.add("Div", name, model.add("Sqrt", shifted))
    return made if scale is None else model.add("Mul", made, model.name(scale))


@writes("batch_norm", "batch_norm_")
def batch_norm(model: Converter, node: Node) -> str:
    x, mean, variance, scale, bias = node.inputs[:5]
    if not (node.attrs.get("is_test") or node.attrs.get("use_global_stats")):
        raise Unsupported("batch statistics")
    if node.attrs.get("data_format", "NCHW") not in ("NCHW", "NCL", "NCDHW", "NC"):
        raise Unsupported("channels last")
    count = required(mean).shape
    dtype = required(x).dtype
    scales = model.constant(np.ones(count, dtype)) if scale is None else model.name(scale)
    shift = model.constant(np.zeros(count, dtype)) if bias is None else model.name(bias)
    operands = (model.name(x), scales, shift, model.name(mean), model.name(variance))
    return model.add("BatchNormalization", *operands, epsilon=float(node.attrs["epsilon"]))


@writes("group_norm", "instance_norm")
def group_norm(model: Converter, node: Node) -> str:
    """Groups become the channels of an instance norm without scales."""
    x, scale, bias = required(node.inputs[0]), *node.inputs[1:3]
    if node.attrs.get("data_format", "NCHW") not in ("NCHW", "NCL", "NCDHW"):
        raise Unsupported("channels last")
    if any(model.is_used(value) for value in node.outputs[1:]):
        raise Unsupported("the statistics are read")
    batch, channels = x.shape[:2]
    groups = node.attrs.get("groups", channels)
    ones, zeros = (model.constant(np.full([groups], v, x.dtype)) for v in (1, 0))
    parts = model.reshape(model.name(x), [batch, groups, x.size // (batch * groups)])
    epsilon = float(node.attrs["epsilon"])
    normed = model.add("InstanceNormalization", parts, ones, zeros, epsilon=epsilon)
    made = model.reshape(normed, x.shape)
    column = [channels] + [1] * (len(x.shape) - 2)
    if scale is not None:
        made = model.add("Mul", made, _shaped(model, scale, column))
    return made if bias is None else model.add("Add", made, _shaped(model, bias, column))


_REDUCTIONS = {
    "mean": "ReduceMean",
    "sum": "ReduceSum",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
    "all": "ReduceMin",
    "any": "ReduceMax",
}


@writes(*_REDUCTIONS)
def reduce(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    name, dtype = model.name(x), x.dtype
    if not x.shape:
        return model.add("Identity", as_type(model, name, dtype, node.output.dtype))
    whole = bool(node.attrs.get("reduce_all"))
    given = [] if whole else numbers(node, "axis" if "axis" in node.attrs else "dims")
    axes = sorted(axis % len(x.shape) for axis in given) or list(range(len(x.shape)))
    # Truth values have no order in ONNX; sums and products are made in the type of the result.
    inner = "int32" if node.op in ("all", "any") else node.output.dtype
    name = as_type(model, name, dtype, inner)
    keep = int(len(node.output.shape) == len(x.shape))
    made = model.add(_REDUCTIONS[node.op], name, model.integers(axes), keepdims=keep)
    return as_type(model, made, inner, node.output.dtype)


@writes("argmax", "argmin")
def argmax(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    name = model.name(x)
    if node.attrs["flatten"] or len(x.shape) < 2:
        name, axis = model.reshape(name, [x.size]), 0
    else:
        axis = axis_of(node, x)
    op = "ArgMax" if node.op == "argmax" else "ArgMin"
    made = model.reshape(model.add(op, name, axis=axis, keepdims=0), node.output.shape)
    return as_type(model, made, "int64", node.output.dtype)


@writes("topk")
def topk(model: Converter, node: Node) -> list[str]:
    x = required(node.inputs[0])
    axis = axis_of(node, x)
    count = model.integers([node.output.shape[axis]])
    largest = int(bool(node.attrs["largest"]))
    return model.add_many("TopK", [model.name(x), count], 2, axis=axis, largest=largest, sorted=1)


@writes("cumsum")
def cumsum(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    name, axis = model.name(x), 0
    if node.attrs["flatten"]:
        name = model.reshape(name, [x.size])
    else:
        axis = axis_of(node, x)
    exclusive, reverse = (int(bool(node.attrs[flag])) for flag in ("exclusive", "reverse"))
    where = model.scalar(axis, "int64")
    return model.add("CumSum", name, where, exclusive=exclusive, reverse=reverse)


@writes("p_norm")
def p_norm(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    op = {1.0: "ReduceL1", 2.0: "ReduceL2"}.get(float(plain_number(node, "porder")))
    if op is None:
        raise Unsupported("a norm that is neither the first nor the second")
    axes = list(range(len(x.shape))) if node.attrs["asvector"] else [axis_of(node, x)]
    made = model.add(op, model.name(x), model.integers(axes), keepdims=0)
    return model.reshape(made, node.output.shape)


@writes("nearest_interp", "bilinear_interp")
def resize(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    a = node.attrs
    if a.get("data_format", a.get("data_layout", "NCHW")) != "NCHW" or len(x.shape) != 4:
        raise Unsupported("only NCHW")
    given = _given_scale(node)
    ratios = [made / side for made, side in zip(node.output.shape[2:], x.shape[2:])]
    attributes = {
        "coordinate_transformation_mode": _positions(node),
        "mode": "nearest" if node.op == "nearest_interp" else "linear",
        **({"nearest_mode": "floor"} if node.op == "nearest_interp" else {}),
    }
    if given in ([], ratios) or a["align_corners"]:
        sizes = model.integers(node.output.shape)
        return model.add("Resize", model.name(x), "", "", sizes, **attributes)
    scales = model.constant(np.array([1.0, 1.0, *given], "float32"))
    return model.add("Resize", model.name(x), "", scales, **attributes)


def _positions(node: Node) -> str:
    if node.attrs["align_corners"]:
        if node.op == "nearest_interp":
            raise Unsupported("nearest with align_corners")
        return "align_corners"
    smooth = node.op == "bilinear_interp" and node.attrs["align_mode"] == 0
    return "half_pixel" if smooth else "asymmetric"


def _given_scale(node: Node) -> list[float]:
    """The scale Paddle computes positions with, where it is not output size over input size."""
    scale = node.attrs.get("scale") or []
    scale = [float(s) for s in (scale if isinstance(scale, list) else [scale])]
    return scale * 2 if len(scale) == 1 else scale
