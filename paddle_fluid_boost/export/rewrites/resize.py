"""Interpolation by a scale: the size is computed, where that means the same."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F

from .table import Op, Refused, Value, rewrites

_MODES = {
    "bilinear_interp": "bilinear",
    "nearest_interp": "nearest",
    "bicubic_interp": "bicubic",
    "linear_interp": "linear",
    "trilinear_interp": "trilinear",
}


@rewrites(*_MODES)
def resize(op: Op) -> Sequence[Value] | None:
    """``scale_factor=`` as ``size=``.

    With a scale, Paddle maps pixels by 1 / scale, with a size by in / out: the same where
    in * scale is a whole number, or corners are aligned.
    """
    scale = [float(one) for one in op.attrs["scale"]]
    if not scale or op.given("out_size") or op.given("size_tensor") or op.given("scale_tensor"):
        return None
    if op.attrs["data_format"] not in ("NCHW", "NCDHW", "NCW"):
        raise Refused("channels last")
    sides = list(op.x.shape)[2:]
    scale = scale * len(sides) if len(scale) == 1 else scale
    exact = all(
        float(factor).is_integer() if side < 0 else (side * factor).is_integer()
        for side, factor in zip(sides, scale)
    )
    if not exact and not op.attrs["align_corners"]:
        raise Refused(
            f"scale_factor={scale} of sides {sides} gives no whole size; use size=, or sides that "
            "it divides"
        )
    return [
        F.interpolate(
            op.x,
            size=_sizes(op.x, sides, scale),
            mode=_MODES[op.name],
            align_corners=op.attrs["align_corners"],
            align_mode=op.attrs["align_mode"],
            data_format={1: "NCW", 2: "NCHW", 3: "NCDHW"}[len(sides)],
        )
    ]


def _sizes(x: Value, sides: list[int], scale: list[float]) -> Sequence[int] | Value:
    if all(side > 0 for side in sides):
        return [int(side * factor) for side, factor in zip(sides, scale)]
    if not all(factor.is_integer() for factor in scale):
        raise Refused(f"scale_factor={scale} of sides that are open")
    shape = paddle.slice(paddle.shape(x), [0], [2], [2 + len(sides)])
    factors = paddle.to_tensor([int(factor) for factor in scale], dtype=shape.dtype)
    return shape * factors
