"""Ops that move elements: channel shuffle, pixel unshuffle, padding."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from .table import Op, Refused, Value, rewrites


@rewrites("channel_shuffle")
def channel_shuffle(op: Op) -> Sequence[Value]:
    """[N, g, C/g, H, W] with the two middle axes swapped."""
    _channels_first(op)
    x, groups = op.x, op.attrs["groups"]
    _, channels, height, width = x.shape
    if height < 0 or width < 0:
        parts = paddle.split(x, groups, axis=1)
        stacked = paddle.stack(parts, axis=2)
        return [paddle.flatten(stacked, 1, 2)]
    split = paddle.reshape(x, [0, groups, channels // groups, height, width])
    swapped = paddle.transpose(split, [0, 2, 1, 3, 4])
    return [paddle.reshape(swapped, [0, channels, height, width])]


@rewrites("pixel_unshuffle")
def pixel_unshuffle(op: Op) -> Sequence[Value]:
    """Blocks of f x f pixels become channels."""
    _channels_first(op)
    x, factor = op.x, op.attrs["downscale_factor"]
    pieces = [
        paddle.strided_slice(x, [2, 3], [i, j], [2**31 - 1] * 2, [factor] * 2)
        for i in range(factor)
        for j in range(factor)
    ]
    return [paddle.flatten(paddle.stack(pieces, axis=2), 1, 2)]


@rewrites("pad3d")
def pad3d(op: Op) -> Sequence[Value] | None:
    """Constant padding by another number than zero, as the general pad."""
    value = op.attrs["pad_value"]
    if op.attrs["mode"] != "constant" or value == 0.0:
        return None
    sizes = op.numbers("paddings")
    if sizes is None or op.attrs["data_format"] != "NCDHW":
        raise Refused(f"padding by {value:g} with sizes that depend on data, or channels last")
    left, right, top, bottom, front, back = sizes
    pads = [0, 0, 0, 0, front, back, top, bottom, left, right]
    return [paddle._C_ops.pad(op.x, pads, value)]


def _channels_first(op: Op) -> None:
    if op.attrs.get("data_format", "NCHW") != "NCHW":
        raise Refused("channels last")
