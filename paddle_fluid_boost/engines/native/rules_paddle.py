"""Rules for Paddle's own ops that compute: normalisation, reduction, lookup."""

from __future__ import annotations

from ...ir.graph import Constant, Node, Value
from .lowering import Lowering, NotNative, lowers, numbers, shape_of
from .rules_fused import layer_norm_of


def _axis(axis: int, value: Value | None) -> int:
    if value is None or not value.shape:
        raise NotNative("an axis of a scalar")
    return axis % len(value.shape)


@lowers("softmax", "log_softmax")
def softmax(low: Lowering, node: Node) -> int:
    x = node.inputs[0]
    axis = _axis(node.attrs["axis"], x)
    if shape_of(node.output)[axis] == 1:
        raise NotNative("one element along the axis: oneDNN 3.6 gets it wrong")
    return int(low.builder.softmax(low.float(x), axis, node.op == "log_softmax"))


@lowers("layer_norm")
def layer_norm(low: Lowering, node: Node) -> int:
    x, scale, bias = node.inputs[:3]
    made = low.float(x)
    axis = node.attrs["begin_norm_axis"]
    return layer_norm_of(low, made, node.output.shape, axis, scale, bias, node.attrs["epsilon"])


@lowers("batch_norm", "batch_norm_")
def batch_norm(low: Lowering, node: Node) -> int:
    x, mean, variance, scale, bias = node.inputs[:5]
    if not (node.attrs.get("is_test") or node.attrs.get("use_global_stats")):
        raise NotNative("batch statistics")
    if node.attrs.get("data_format", "NCHW") not in ("NCHW", "NCL", "NCDHW", "NC"):
        raise NotNative("channels last")
    if not all(isinstance(v, Constant) for v in (mean, variance)):
        raise NotNative("statistics that are not constants")
    return int(
        low.builder.batch_norm(
            low.float(x),
            low.float(mean),
            low.float(variance),
            low.optional(scale),
            low.optional(bias),
            node.attrs["epsilon"],
        )
    )


@lowers("group_norm", "instance_norm")
def group_norm(low: Lowering, node: Node) -> int:
    """Instance norm is group norm with as many groups as channels."""
    x, scale, bias = node.inputs[:3]
    made = low.float(x)
    assert x is not None
    if node.attrs.get("data_format", "NCHW") not in ("NCHW", "NCL", "NCDHW"):
        raise NotNative("channels last")
    if len(x.shape) < 3:
        raise NotNative("no pixels to normalise over")
    if any(low.is_used(value) for value in node.outputs[1:]):
        raise NotNative("the statistics are read")
    groups = node.attrs.get("groups", x.shape[1])
    scales = low.optional(scale), low.optional(bias)
    return int(low.builder.group_norm(made, *scales, groups, node.attrs["epsilon"]))


@lowers("prelu")
def prelu(low: Lowering, node: Node) -> int:
    x, slopes = node.inputs[:2]
    assert slopes is not None
    if node.attrs["data_format"] != "NCHW" or node.attrs["mode"] not in ("all", "channel"):
        raise NotNative(f"{node.attrs['mode']} slopes, {node.attrs['data_format']}")
    return int(low.builder.prelu(low.float(x), low.float(slopes)))


@lowers("swiglu")
def swiglu(low: Lowering, node: Node) -> int:
    """silu(x) * y; without y, x holds both side by side."""
    x, y = node.inputs[:2]
    gate = low.float(x)
    if y is None:
        shape, begin = shape_of(node.output), [0] * len(node.output.shape)
        steps = [1] * len(shape)
        whole, gate = gate, low.builder.slice(gate, begin, shape, steps)
        begin[-1] = shape[-1]
        other = low.builder.slice(whole, begin, shape, steps)
    else:
        other = low.float(y)
    gated = low.builder.eltwise(gate, [("swish", 1.0, 0.0, -1)])
    return int(low.builder.binary("mul", gated, other, shape_of(node.output), []))


@lowers("mean", "sum", "max", "min")
def reduce(low: Lowering, node: Node) -> int:
    x = node.inputs[0]
    made = low.float(x)
    assert x is not None
    axes = [_axis(axis, x) for axis in numbers(node, "axis")] or list(range(len(x.shape)))
    if node.output.dtype != "float32":
        raise NotNative("a reduction to another type")
    if node.op == "mean" and len(x.shape) == 4 and sorted(axes) == [2, 3]:
        window = list(x.shape[2:])
        pooled = [x.shape[0], x.shape[1], 1, 1]
        return int(low.builder.pool(made, "avg", window, [1, 1], [0, 0], pooled))
    return int(low.builder.reduce(made, node.op, axes))


@lowers("embedding")
def embedding(low: Lowering, node: Node) -> int:
    ids, table = node.inputs[:2]
    assert table is not None
    padding = int(node.attrs.get("padding_idx", -1))
    return int(low.builder.embedding(low.id(ids), low.table(table), padding))


@lowers("embedding_layer_norm")
def embedding_layer_norm(low: Lowering, node: Node) -> list[int | None]:
    count = 2 * node.attrs["tables"]
    lookups, addends = node.inputs[:count], node.inputs[count:-2]
    made = low.builder.embedding_norm(
        [low.id(ids) for ids in lookups[::2]],
        [low.table(table) for table in lookups[1::2]],
        [low.float(addend) for addend in addends],
        low.optional(node.inputs[-2]),
        low.optional(node.inputs[-1]),
        node.attrs["epsilon"],
        shape_of(node.output),
        low.is_used(node.outputs[1]),
    )
    return [*made, *[None] * (2 - len(made))]


@lowers("cast")
def cast(low: Lowering, node: Node) -> int:
    return int(low.builder.cast(low.id(node.inputs[0]), node.output.dtype))


_BINARY = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "maximum": "max",
    "minimum": "min",
}


@lowers(*_BINARY)
def binary(low: Lowering, node: Node) -> int:
    x, y = node.inputs[:2]
    if node.attrs.get("axis", -1) != -1:
        raise NotNative("an operand aligned elsewhere than at the end")
    kind, shape = _BINARY[node.op], shape_of(node.output)
    if node.output.dtype in ("int32", "int64"):
        return int(low.builder.integer_binary(kind, low.id(x), low.id(y), shape))
    return int(low.builder.binary(kind, low.float(x), low.float(y), shape, []))
