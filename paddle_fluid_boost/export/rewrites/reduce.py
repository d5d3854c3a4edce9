"""Reductions over all axes, whose empty list of axes Paddle2ONNX cannot read."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from .table import Op, Value, rewrites

_BY_NAME = {
    "mean": paddle.mean,
    "sum": paddle.sum,
    "max": paddle.max,
    "min": paddle.min,
    "amax": paddle.max,
    "amin": paddle.min,
}


@rewrites("mean", "sum", "max", "min")
def reduce_all(op: Op) -> Sequence[Value] | None:
    """With every axis named."""
    rank = len(op.x.shape)
    if op.numbers("axis") or rank == 0:
        return None
    made = _BY_NAME[op.name](op.x, list(range(rank)), keepdim=op.attrs["keepdim"])
    return [made]


@rewrites("amax", "amin")
def extreme(op: Op) -> Sequence[Value]:
    """The same as max and min but for gradients."""
    axes = op.attrs.get("axis") or list(range(len(op.x.shape)))
    return [_BY_NAME[op.name](op.x, list(axes), keepdim=op.attrs["keepdim"])]
