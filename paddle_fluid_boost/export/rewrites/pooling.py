"""Adaptive pooling whose windows differ in size, and deformable convolution without a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import paddle

from .table import Op, Refused, Value, rewrites


@rewrites("pool2d")
def adaptive_pool2d(op: Op) -> Sequence[Value] | None:
    """Strip by strip: the windows of one output row are the same rows of the input."""
    if not op.attrs["adaptive"] or op.attrs["global_pooling"]:
        return None
    wanted = op.numbers("kernel_size")
    if wanted is None:
        raise Refused("adaptive pooling to a size that depends on data")
    reduce = paddle.mean if op.attrs["pooling_type"] == "avg" else paddle.max
    return _pooled(op, wanted, reduce)


@rewrites("max_pool2d_with_index")
def adaptive_max_pool2d(op: Op) -> Sequence[Value | None] | None:
    """As :func:`adaptive_pool2d`, where the indices are not read."""
    if not op.attrs["adaptive"] or op.is_read(1):
        return None
    made = _pooled(op, list(op.attrs["kernel_size"]), paddle.max)
    return None if made is None else [*made, None]


def _pooled(op: Op, wanted: list[int], reduce: Callable[..., Value]) -> Sequence[Value] | None:
    if op.attrs.get("data_format", "NCHW") != "NCHW":
        raise Refused("channels last")
    wanted = wanted * 2 if len(wanted) == 1 else wanted
    sides = list(op.x.shape)[2:]
    if wanted == [1, 1]:
        return None
    if min(sides) < 0:
        raise Refused(f"adaptive pooling to {wanted} of sides that are open; fix height and width")
    if all(side % want == 0 for side, want in zip(sides, wanted)):
        return None
    made = op.x
    for axis, (side, want) in enumerate(zip(sides, wanted), 2):
        # The windows of both axes are independent of each other, and both mean and maximum of a
        # rectangle are those of its strips: every strip of a window has the same length.
        strips = [
            reduce(paddle.slice(made, [axis], [start], [stop]), axis, keepdim=True)
            for start, stop in _windows(side, want)
        ]
        made = paddle.concat(strips, axis)
    return [made]


def _windows(side: int, count: int) -> list[tuple[int, int]]:
    return [(i * side // count, -(-(i + 1) * side // count)) for i in range(count)]


@rewrites("deformable_conv")
def deformable_conv(op: Op) -> Sequence[Value] | None:
    """With a mask of ones where there is none."""
    if op.given("mask"):
        return None
    offset = op.inputs["offset"]
    half = paddle.slice(offset, [1], [0], [int(offset.shape[1]) // 2])
    mask = paddle.full_like(half, 1.0)
    attrs = op.attrs
    return [
        paddle._C_ops.deformable_conv(
            op.x,
            offset,
            op.inputs["filter"],
            mask,
            attrs["strides"],
            attrs["paddings"],
            attrs["dilations"],
            attrs["deformable_groups"],
            attrs["groups"],
            attrs["im2col_step"],
        )
    ]
