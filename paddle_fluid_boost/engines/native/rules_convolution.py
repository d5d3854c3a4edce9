"""Rules for convolutions and poolings, whole and band by band."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Constant, Node, Value
from ...ir.ops import is_binary
from .bands import Band
from .lowering import Lowering, lowers, shape_of
from .rules_fused import required

#: Channels that fill less than half a vector.
_FEW = 8
#: Pixels that repay a product of their own.
_MANY_PIXELS = 1024


@lowers("fused_conv2d", "fused_conv3d")
def convolution(low: Lowering, node: Node) -> int:
    if _makes_few_planes(low, node):
        w = node.inputs[1]
        assert isinstance(w, Constant)
        matrix = w.compute().reshape(w.shape[0], -1)
        return int(
            low.builder.reshape(_planes_by_product(low, node, matrix, 1), shape_of(node.output))
        )
    target = low.target(node.output)
    parts = low.parts(node.inputs[0])
    made = _convolution(low, node, parts, node.attrs["paddings"], target)
    if made == target:
        low.place(node.output)
    return made


def _is_of_single_pixels(node: Node) -> bool:
    """Whether a convolution is a product of each pixel with a matrix."""
    weights = required(node.inputs[1])
    return (
        all(k == 1 for k in weights.shape[2:])
        and all(s == 1 for s in node.attrs["strides"])
        and not any(node.attrs["paddings"])
        and node.attrs["groups"] == 1
    )


def _makes_few_planes(low: Lowering, node: Node) -> bool:
    """Whether a convolution of single pixels makes a few channels that are wanted as planes."""
    x, w, b = node.inputs[:3]
    out = node.output
    if not isinstance(w, Constant) or not (b is None or isinstance(b, Constant)):
        return False
    return (
        len(out.shape) == 4
        and out.shape[1] < _FEW
        and out.shape[2] * out.shape[3] >= _MANY_PIXELS
        and required(x).producer is not None
        and _is_of_single_pixels(node)
        and not any(is_binary(op) for op in node.attrs.get("post_ops", ()))
        and _wanted_as_planes(low, out)
    )


def _wanted_as_planes(low: Lowering, value: Value) -> bool:
    if any(value is output for output in low.graph.outputs):
        return True
    user = low.graph.sole_user(value)
    return user is not None and user.op == "softmax"


def _convolution(
    low: Lowering, node: Node, sources: list[int], paddings: list[int], target: int = -1
) -> int:
    w, b = node.inputs[1:3]
    return int(
        low.builder.convolution(
            sources,
            low.float(w),
            low.optional(b),
            node.attrs["strides"],
            node.attrs["dilations"],
            paddings[::2],
            paddings[1::2],
            node.attrs["groups"],
            low.post_ops(node, node.output.shape),
            target,
        )
    )


@lowers("fused_conv2d_transpose", "fused_conv3d_transpose")
def transposed_convolution(low: Lowering, node: Node) -> int:
    x, w, b = node.inputs[:3]
    if _tiles_its_result(node):
        return _transposed_by_product(low, node)
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


def _tiles_its_result(node: Node) -> bool:
    """Whether each pixel of the source makes a rectangle of the result that no other one touches,
    and the weights are known."""
    x, w, b = node.inputs[:3]
    if not isinstance(w, Constant) or not (b is None or isinstance(b, Constant)):
        return False
    kernel, attrs = list(w.shape[2:]), node.attrs
    whole = [side * k for side, k in zip(required(x).shape[2:], kernel)]
    return (
        len(kernel) == 2
        and attrs["groups"] == 1
        and list(attrs["strides"]) == kernel
        and list(node.output.shape[2:]) == whole
        and not any(attrs["paddings"][::2])
        and all(d == 1 or k == 1 for d, k in zip(attrs["dilations"], kernel))
        and not any(is_binary(op) for op in attrs.get("post_ops", ()))
    )


def _transposed_by_product(low: Lowering, node: Node) -> int:
    """A product of each row of pixels with the weights of each row of the kernel: it is a row of
    the result, pixel by pixel, where channels are last."""
    x, w, b = node.inputs[:3]
    assert isinstance(w, Constant)
    weights = w.compute()
    batch, channels, height, width = shape_of(required(x))
    _, out_channels, rows, columns = weights.shape
    if columns * out_channels < _FEW:
        matrix = weights.reshape(channels, -1).T
        planes = _planes_by_product(low, node, matrix, rows * columns)
        parts = [batch, out_channels, rows, columns, height, width]
        moved = low.builder.permute(low.builder.reshape(planes, parts), [0, 1, 4, 2, 5, 3])
        return int(low.builder.reshape(moved, shape_of(node.output)))
    matrices = weights.transpose(2, 0, 3, 1).reshape(1, rows, channels, columns * out_channels)
    if rows == 1:  # not a batch of one that repeats, which oneDNN 3.6 gets wrong
        matrices = matrices[0, 0]
    bias = -1
    if b is not None:
        assert isinstance(b, Constant)
        bias = low.array(np.tile(b.compute().reshape(-1), columns))
    build = low.builder
    pixels = build.permute(low.float(x), [0, 2, 3, 1])
    pixels = build.reshape(pixels, [batch * height, 1, width, channels])
    post_ops = low.post_ops(node, node.output.shape)
    made = build.matmul(pixels, low.array(matrices), bias, post_ops)
    made = build.reshape(made, [batch, height * rows, width * columns, out_channels])
    return int(build.permute(made, [0, 3, 1, 2]))


def _planes_by_product(low: Lowering, node: Node, matrix: np.ndarray, repeats: int) -> int:
    """matrix [out, channels] times the pixels of the node's source: [batch, out, pixels].

    So vectors hold pixels instead of a few channels.  The node's bias has one element for
    ``repeats`` rows of the matrix.
    """
    x, _, b = node.inputs[:3]
    batch, channels, height, width = shape_of(required(x))
    build = low.builder
    pixels = build.permute(low.float(x), [0, 2, 3, 1])
    pixels = build.reshape(pixels, [batch, height * width, channels])
    post_ops = low.post_ops(node, node.output.shape)
    if b is not None:
        assert isinstance(b, Constant)
        bias = np.repeat(b.compute().reshape(-1), repeats).reshape(1, -1, 1)
        post_ops = [("add", 0.0, 0.0, low.array(bias)), *post_ops]
    rows = low.array(matrix[np.newaxis])
    return int(build.matmul(rows, build.permute(pixels, [0, 2, 1]), -1, post_ops))


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
            made = _convolution(low, node, [made], stretch.paddings())
            continue
        shape = shape_of(node.output)
        shape[band.axis] = stretch.end - stretch.begin
        made = _pool(low, node, made, stretch.paddings(), shape)
    return made
