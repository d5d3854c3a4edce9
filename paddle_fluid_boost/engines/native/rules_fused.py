"""Rules for the fused ops that the passes make (``ir/ops.py``)."""

from __future__ import annotations

import math

from ...ir.graph import Constant, Node, Value
from .lowering import Lowering, NotNative, lowers, shape_of


def required(value: Value | None) -> Value:
    """An operand that must be there."""
    if value is None:
        raise NotNative("an input is missing")
    return value


@lowers("linear")
def linear(low: Lowering, node: Node) -> int:
    x, w, b = node.inputs[:3]
    if len(required(x).shape) < 2:
        raise NotNative("a vector times a matrix")
    operands = low.post_ops(node, node.output.shape)
    return int(low.builder.matmul(low.float(x), low.float(w), low.optional(b), operands))


@lowers("fused_matmul")
def matmul(low: Lowering, node: Node) -> int:
    x, y = required(node.inputs[0]), required(node.inputs[1])
    # One matrix for a whole batch is a matrix: as a batch of one that repeats, oneDNN 3.6 reads
    # memory that it was not given where it packs the matrix first.
    alone = isinstance(y, Constant) and y.rank <= x.rank and math.prod(y.shape[:-2]) == 1
    a = _operand(low, x, node.attrs["transpose_x"], x.rank)
    b = _operand(low, y, node.attrs["transpose_y"], 2 if alone else y.rank)
    return int(low.builder.matmul(a, b, -1, low.post_ops(node, node.output.shape)))


def _operand(low: Lowering, value: Value, transposed: bool, rank: int) -> int:
    """A matrix operand of ``rank`` dimensions; a transposition is only another set of strides."""
    made = low.float(value)
    if rank != value.rank:
        made = low.builder.reshape(made, list(value.shape[-rank:]))
    if not transposed:
        return made
    return int(low.builder.permute(made, [*range(rank - 2), rank - 1, rank - 2]))


@lowers("add_layer_norm")
def add_layer_norm(low: Lowering, node: Node) -> list[int]:
    x, y, scale, bias = node.inputs[:4]
    shape = node.outputs[1].shape
    total = low.builder.binary("add", low.float(x), low.float(y), list(shape), [])
    axis = node.attrs["begin_norm_axis"]
    normal = layer_norm_of(low, total, shape, axis, scale, bias, node.attrs["epsilon"])
    return [normal, total]


@lowers("squeeze_excitation")
def squeeze_excitation(low: Lowering, node: Node) -> int:
    """One step where x has its channels last, otherwise what it is made of."""
    x, w1, b1, w2, b2 = (low.optional(value) for value in node.inputs)
    batch, channels, height, width = shape_of(node.output)
    inner, gate = low.unary_ops(node, "inner_ops"), low.unary_ops(node, "gate_ops")
    build = low.builder
    if build.can_squeeze(x, inner, gate):
        return int(build.squeeze(x, w1, b1, w2, b2, inner, gate))
    pooled = build.pool(x, "avg", [height, width], [1, 1], [0, 0], [batch, channels, 1, 1])
    mean = build.reshape(pooled, [batch, channels])
    squeezed = build.matmul(mean, build.permute(w1, [1, 0]), b1, inner)
    gates = build.reshape(build.matmul(squeezed, w2, b2, gate), [batch, channels, 1, 1])
    return int(build.binary("mul", x, gates, shape_of(node.output), []))


@lowers("fused_rms_norm")
def rms_norm(low: Lowering, node: Node) -> int:
    x, scale = node.inputs[:2]
    return int(low.builder.rms_norm(low.float(x), low.optional(scale), node.attrs["epsilon"]))


def layer_norm_of(
    low: Lowering,
    made: int,
    shape: tuple[int, ...],
    axis: int,
    scale: Value | None,
    bias: Value | None,
    epsilon: float,
) -> int:
    """Normalises dimensions ``axis`` and up, seen as the columns of a matrix."""
    columns = 1
    for side in shape[axis:]:
        columns *= side
    rows = 1
    for side in shape[:axis]:
        rows *= side
    flat = low.builder.reshape(made, [rows, columns])
    normal = low.builder.layer_norm(flat, low.optional(scale), low.optional(bias), epsilon)
    return int(low.builder.reshape(normal, list(shape)))


@lowers("reshape")
def reshape(low: Lowering, node: Node) -> int:
    return int(low.builder.reshape(low.id(node.inputs[0]), shape_of(node.output)))
