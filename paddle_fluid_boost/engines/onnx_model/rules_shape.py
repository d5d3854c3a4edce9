"""Rules for ops that only move elements."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Constant, Node
from .conversion import Converter, Unsupported, axis_of, numbers, required, writes
from .rules_pointwise import plain_number, same_type


@writes("reshape", "flatten", "squeeze", "unsqueeze")
def reshape(model: Converter, node: Node) -> str:
    return model.reshape(model.name(node.inputs[0]), node.output.shape)


@writes("assign", "share_data")
def same(model: Converter, node: Node) -> str:
    return model.add("Identity", model.name(node.inputs[0]))


@writes("transpose")
def transpose(model: Converter, node: Node) -> str:
    order = numbers(node, "perm")
    return model.transpose(model.name(node.inputs[0]), [axis % len(order) for axis in order])


@writes("concat")
def concat(model: Converter, node: Node) -> str:
    values = [required(value) for value in node.inputs]
    same_type(values)
    axis = numbers(node, "axis")[0] % len(node.output.shape)
    return model.add("Concat", *(model.name(value) for value in values), axis=axis)


@writes("stack")
def stack(model: Converter, node: Node) -> str:
    values = [required(value) for value in node.inputs]
    same_type(values)
    axis = numbers(node, "axis")[0] % len(node.output.shape)
    part = [1 if i == axis else side for i, side in enumerate(node.output.shape)]
    parts = [model.reshape(model.name(value), part) for value in values]
    return model.add("Concat", *parts, axis=axis)


@writes("split", "split_with_num")
def split(model: Converter, node: Node) -> list[str]:
    x = required(node.inputs[0])
    axis = axis_of(node, x)
    sizes = model.integers([value.shape[axis] for value in node.outputs])
    return model.add_many("Split", [model.name(x), sizes], len(node.outputs), axis=axis)


@writes("unbind", "unstack")
def unbind(model: Converter, node: Node) -> list[str]:
    x = required(node.inputs[0])
    axis = axis_of(node, x)
    sizes = model.integers([1] * len(node.outputs))
    parts = model.add_many("Split", [model.name(x), sizes], len(node.outputs), axis=axis)
    return [model.reshape(part, node.output.shape) for part in parts]


@writes("slice", "strided_slice")
def slice_(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    axes, starts, ends = (numbers(node, name) for name in ("axes", "starts", "ends"))
    steps = numbers(node, "strides") if node.op == "strided_slice" else [1] * len(axes)
    if any(step < 1 for step in steps):
        raise Unsupported("a slice with a negative step")
    bounds = [
        slice(start, end, step).indices(x.shape[axis])
        for axis, start, end, step in zip(axes, starts, ends, steps)
    ]
    firsts, lasts = [b[0] for b in bounds], [b[1] for b in bounds]
    vectors = [model.integers(v) for v in (firsts, lasts, axes, steps)]
    made = model.add("Slice", model.name(x), *vectors)
    taken = list(x.shape)
    for axis, bound in zip(axes, bounds):
        taken[axis] = len(range(*bound))
    return made if tuple(taken) == node.output.shape else model.reshape(made, node.output.shape)


@writes("expand", "expand_as", "broadcast_to")
def expand(model: Converter, node: Node) -> str:
    return model.add("Expand", model.name(node.inputs[0]), model.integers(node.output.shape))


@writes("tile")
def tile(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    rank = len(node.output.shape)
    padded = [1] * (rank - len(x.shape)) + list(x.shape)
    name = model.name(x) if len(x.shape) == rank else model.reshape(model.name(x), padded)
    repeats = [made // side for made, side in zip(node.output.shape, padded)]
    return model.add("Tile", name, model.integers(repeats))


@writes("embedding")
def embedding(model: Converter, node: Node) -> str:
    ids, table = (required(value) for value in node.inputs[:2])
    padding = int(node.attrs.get("padding_idx", -1))
    name = model.name(table)
    if padding >= 0:
        if not isinstance(table, Constant):
            raise Unsupported("padding in a table that is not constant")
        rows = np.array(table.compute())
        rows[padding] = 0
        name = model.constant(rows)
    return model.add("Gather", name, model.name(ids))


@writes("gather", "index_select")
def gather(model: Converter, node: Node) -> str:
    x, index = (required(value) for value in node.inputs[:2])
    name = model.name(index)
    if len(index.shape) != 1:
        name = model.reshape(name, [index.size])
    axis = numbers(node, "axis" if "axis" in node.attrs else "dim")[0] % len(x.shape)
    made = model.add("Gather", model.name(x), name, axis=axis)
    return model.reshape(made, node.output.shape)


@writes("gather_nd")
def gather_nd(model: Converter, node: Node) -> str:
    x, index = (required(value) for value in node.inputs[:2])
    if index.dtype != "int64":
        raise Unsupported(f"indices of {index.dtype}")
    return model.add("GatherND", model.name(x), model.name(index))


@writes("take_along_axis")
def take_along_axis(model: Converter, node: Node) -> str:
    x, index = (required(value) for value in node.inputs[:2])
    return model.add("GatherElements", model.name(x), model.name(index), axis=axis_of(node, x))


@writes("flip")
def flip(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    axes = [axis % len(x.shape) for axis in numbers(node, "axis")]
    beyond = -(2**62)
    vectors = ([-1] * len(axes), [beyond] * len(axes), axes, [-1] * len(axes))
    return model.add("Slice", model.name(x), *(model.integers(v) for v in vectors))


@writes("roll")
def roll(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    axes, shifts = numbers(node, "axis"), numbers(node, "shifts")
    if len(axes) != len(shifts):
        raise Unsupported("a roll of the flattened tensor")
    name = model.name(x)
    for axis, shift in zip(axes, shifts):
        axis %= len(x.shape)
        moved = shift % x.shape[axis]
        if moved:
            sizes = model.integers([x.shape[axis] - moved, moved])
            front, back = model.add_many("Split", [name, sizes], 2, axis=axis)
            name = model.add("Concat", back, front, axis=axis)
    return model.add("Identity", name)


@writes("tril", "triu")
def triangle(model: Converter, node: Node) -> str:
    diagonal = model.scalar(int(plain_number(node, "diagonal")), "int64")
    upper = int(node.op == "triu")
    return model.add("Trilu", model.name(node.inputs[0]), diagonal, upper=upper)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@writes("pad", "pad3d")
def pad(model: Converter, node: Node) -> str:
    """``pad``: two sides for every dimension; ``pad3d``: for the last three, the last one first."""
    x = required(node.inputs[0])
    sides = numbers(node, "paddings")
    if node.op == "pad3d":
        if node.attrs["data_format"] != "NCDHW":
            raise Unsupported("channels last")
        sides = [0, 0, 0, 0, *sides[4:6], *sides[2:4], *sides[0:2]]
    mode = _PAD_MODES[node.attrs.get("mode", "constant")]
    value = plain_number(node, "pad_value") if mode == "constant" else 0
    vectors = model.integers([*sides[::2], *sides[1::2]]), model.scalar(value, x.dtype)
    return model.add(
        "Pad", model.name(x), *(vectors if mode == "constant" else vectors[:1]), mode=mode
    )


@writes("pixel_shuffle")
def pixel_shuffle(model: Converter, node: Node) -> str:
    if node.attrs["data_format"] != "NCHW":
        raise Unsupported("channels last")
    factor = node.attrs["upscale_factor"]
    return model.add("DepthToSpace", model.name(node.inputs[0]), blocksize=factor, mode="CRD")


@writes("one_hot")
def one_hot(model: Converter, node: Node) -> str:
    """Numbers outside the classes give zeros, where ONNX counts from the end."""
    ids = required(node.inputs[0])
    classes = node.output.shape[-1]
    column = model.reshape(model.name(ids), [*ids.shape, 1])
    same = model.add("Equal", column, model.constant(np.arange(classes, dtype=ids.dtype)))
    return model.add("Cast", same, to=1)


@writes("full_like")
def full_like(model: Converter, node: Node) -> str:
    value = plain_number(node, "value")
    return model.constant(np.full(node.output.shape, value, node.output.dtype))
