"""Rules for the fused ops that the passes make (``ir/ops.py``)."""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ir.ops import BINARY_POST_OPS
from .bands import Band
from .lowering import Lowering, NotNative, lowers, shape_of


def _required(value: Value | None) -> Value:
    if value is None:
        raise NotNative("an input is missing")
    return value


@lowers("fused_conv2d", "fused_conv3d")
def convolution(low: Lowering, node: Node) -> int:
    return _convolution(low, node, low.float(node.inputs[0]), node.attrs["paddings"])


def _convolution(low: Lowering, node: Node, source: int, paddings: list[int]) -> int:
    w, b = node.inputs[1:3]
    return int(
        low.builder.convolution(
            source,
            low.float(w),
            low.optional(b),
            node.attrs["strides"],
            node.attrs["dilations"],
            paddings[::2],
            paddings[1::2],
            node.attrs["groups"],
            low.post_ops(node, node.output.shape),
        )
    )


@lowers("fused_conv2d_transpose", "fused_conv3d_transpose")
def transposed_convolution(low: Lowering, node: Node) -> int:
    x, w, b = node.inputs[:3]
    return int(
        low.builder.deconvolution(
            low.float(x),
            low.float(w),
            low.optional(b),
            node.attrs["strides"],
            node.attrs["dilations"],
            node.attrs["paddings"][::2],
            node.attrs["groups"],
            low.post_ops(node, node.output.shape),
            shape_of(node.output),
        )
    )


@lowers("fused_pool2d", "fused_pool3d")
def pool(low: Lowering, node: Node) -> int:
    source = low.float(node.inputs[0])
    return _pool(low, node, source, node.attrs["paddings"], shape_of(node.output))


def _pool(low: Lowering, node: Node, source: int, paddings: list[int], shape: list[int]) -> int:
    kind = {"max": "max", "avg": "avg", "avg_padded": "avg_with_padding"}[node.attrs["mode"]]
    kernel, strides = node.attrs["kernel"], node.attrs["strides"]
    return int(low.builder.pool(source, kind, kernel, strides, paddings[::2], shape))


@lowers("banded")
def banded(low: Lowering, node: Node) -> int:
    """A chain of the two above, band by band (``bands.py``)."""
    chain = node.attrs["chain"]
    source = low.float(chain.source)
    bands = [_band(low, band, source) for band in chain.bands()]
    return int(low.builder.concat(bands, chain.bands()[0].axis))


def _band(low: Lowering, band: Band, source: int) -> int:
    first = band.stretches()[0]
    begin, shape = [0] * 4, shape_of(band.chain.source)
    begin[band.axis], shape[band.axis] = first.low, first.high - first.low
    made = int(low.builder.slice(source, begin, shape, [1] * 4))
    for stretch in band.stretches():
        node = stretch.node
        low.builder.set_step_name(node.op)
        if node.op == "fused_conv2d":
            made = _convolution(low, node, made, stretch.paddings())
            continue
        shape = shape_of(node.output)
        shape[band.axis] = stretch.end - stretch.begin
        made = _pool(low, node, made, stretch.paddings(), shape)
    return made


@lowers("linear")
def linear(low: Lowering, node: Node) -> int:
    x, w, b = node.inputs[:3]
    if len(_required(x).shape) < 2:
        raise NotNative("a vector times a matrix")
    operands = low.post_ops(node, node.output.shape)
    return int(low.builder.matmul(low.float(x), low.float(w), low.optional(b), operands))


@lowers("fused_matmul")
def matmul(low: Lowering, node: Node) -> int:
    x = _operand(low, node.inputs[0], node.attrs["transpose_x"])
    y = _operand(low, node.inputs[1], node.attrs["transpose_y"])
    return int(low.builder.matmul(x, y, -1, low.post_ops(node, node.output.shape)))


def _operand(low: Lowering, value: Value | None, transposed: bool) -> int:
    """A matrix operand; a transposition is only another set of strides."""
    made = low.float(value)
    rank = len(_required(value).shape)
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


@lowers("fused_elementwise")
def elementwise(low: Lowering, node: Node) -> int:
    shape = shape_of(node.output)
    chain = node.attrs["post_ops"]
    made = low.float(node.inputs[0])
    leading = next((i for i, op in enumerate(chain) if op[0] in BINARY_POST_OPS), len(chain))
    operations = low.post_ops(node, shape)
    if leading:
        made = low.builder.eltwise(made, operations[:leading])
    if leading < len(chain):
        kind, _, _, operand = operations[leading]
        kind = "add" if kind == "sum" else kind
        rest = operations[leading + 1 :]
        return int(low.builder.binary(kind, made, operand, shape, rest))
    return int(low.builder.expand(made, shape))


@lowers("reshape")
def reshape(low: Lowering, node: Node) -> int:
    return int(low.builder.reshape(low.id(node.inputs[0]), shape_of(node.output)))
