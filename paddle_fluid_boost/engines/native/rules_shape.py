"""Rules for ops that only move elements, of any type; most become views."""

from __future__ import annotations

from ...ir.graph import Node
from .lowering import Lowering, NotNative, lowers, numbers, shape_of


@lowers("transpose")
def transpose(low: Lowering, node: Node) -> int:
    permutation = numbers(node, "perm")
    rank = len(permutation)
    return int(low.builder.permute(low.id(node.inputs[0]), [axis % rank for axis in permutation]))


@lowers("flatten", "squeeze", "unsqueeze", "assign", "share_data")
def view(low: Lowering, node: Node) -> int:
    return int(low.builder.reshape(low.id(node.inputs[0]), shape_of(node.output)))


@lowers("concat")
def concat(low: Lowering, node: Node) -> int | None:
    (axis,) = numbers(node, "axis")
    grown = low.grown(node)
    if grown is not None:
        return grown
    reader = low.sole_reader(node.output)
    if reader is not None and axis % len(node.output.shape) == 1 and _reads_parts(reader, node):
        low.leave_in_parts(node, reader)
        return None
    return _joined(low, node, axis)


def _reads_parts(reader: Node, concat: Node) -> bool:
    """Whether the reader is a convolution that may take a concat's parts as they are: one that
    Winograd's algorithm serves."""
    if reader.op != "fused_conv2d" or reader.inputs[0] is not concat.output:
        return False
    weights, attrs = reader.inputs[1], reader.attrs
    return (
        weights is not None
        and tuple(weights.shape[2:]) == (3, 3)
        and {*attrs["strides"], *attrs["dilations"], attrs["groups"]} == {1}
        and len(set(map(id, concat.inputs))) == len(concat.inputs)
    )


@lowers("stack")
def stack(low: Lowering, node: Node) -> int:
    (axis,) = numbers(node, "axis")
    axis %= len(node.output.shape)
    part = [1 if i == axis else side for i, side in enumerate(node.output.shape)]
    parts = [low.builder.reshape(low.id(value), part) for value in node.inputs]
    return int(low.builder.concat(parts, axis))


def _joined(low: Lowering, node: Node, axis: int) -> int:
    parts = [low.id(value) for value in node.inputs]
    if len(parts) == 1:
        return parts[0]
    return int(low.builder.concat(parts, axis % len(node.output.shape)))


@lowers("split", "split_with_num")
def split(low: Lowering, node: Node) -> list[int]:
    x = node.inputs[0]
    made = low.id(x)
    assert x is not None
    axis = numbers(node, "axis")[0] % len(x.shape)
    begin = [0] * len(x.shape)
    parts = []
    for value in node.outputs:
        parts.append(low.builder.slice(made, begin, list(value.shape), [1] * len(begin)))
        begin[axis] += value.shape[axis]
    return parts


@lowers("slice", "strided_slice")
def slice_(low: Lowering, node: Node) -> int:
    x = node.inputs[0]
    made = low.id(x)
    assert x is not None
    strides = numbers(node, "strides") if node.op == "strided_slice" else []
    begin, shape, step = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    axes, starts, ends = (numbers(node, name) for name in ("axes", "starts", "ends"))
    for i, axis in enumerate(axes):
        stride = strides[i] if strides else 1
        if stride < 1:
            raise NotNative("a slice with a negative step")
        taken = range(*slice(starts[i], ends[i], stride).indices(x.shape[axis]))
        begin[axis], shape[axis], step[axis] = taken.start, len(taken), stride
    return int(low.builder.slice(made, begin, shape, step))


@lowers("unbind", "unstack")
def unbind(low: Lowering, node: Node) -> list[int]:
    x = node.inputs[0]
    made = low.id(x)
    assert x is not None
    axis = numbers(node, "axis")[0] % len(x.shape)
    shape = [1 if i == axis else side for i, side in enumerate(x.shape)]
    ones = [1] * len(shape)
    starts = ([i if j == axis else 0 for j in range(len(shape))] for i in range(x.shape[axis]))
    return [low.builder.slice(made, start, shape, ones) for start in starts]


@lowers("expand")
def expand(low: Lowering, node: Node) -> int:
    return int(low.builder.expand(low.id(node.inputs[0]), shape_of(node.output)))


@lowers("pixel_shuffle")
def pixel_shuffle(low: Lowering, node: Node) -> int:
    """[N, C f f, H, W] to [N, C, H f, W f]."""
    if node.attrs["data_format"] != "NCHW":
        raise NotNative("channels last")
    batch, channels, height, width = shape_of(node.output)
    f = node.attrs["upscale_factor"]
    parts = [batch, channels, f, f, height // f, width // f]
    split = low.builder.reshape(low.id(node.inputs[0]), parts)
    moved = low.builder.permute(split, [0, 1, 4, 2, 5, 3])
    return int(low.builder.reshape(moved, [batch, channels, height, width]))
