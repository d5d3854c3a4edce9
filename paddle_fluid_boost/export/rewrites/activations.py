"""Activations: Paddle2ONNX reads attributes stored as double as if they were float."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F

from .table import Op, Value, rewrites

#: Above this, log(1 + exp(x)) is x in float32.
_SOFTPLUS_IS_LINEAR = 15.0


@rewrites("leaky_relu")
def leaky_relu(op: Op) -> Sequence[Value]:
    """As PReLU with one slope; ``child_onnx.py`` turns that back into LeakyRelu."""
    return [_leaky(op.x, op.attrs["negative_slope"])]


@rewrites("rrelu")
def rrelu(op: Op) -> Sequence[Value | None] | None:
    """In eval mode: the mean of the two slopes."""
    if not op.attrs["is_test"]:
        return None
    return [_leaky(op.x, (op.attrs["lower"] + op.attrs["upper"]) / 2), None]


def _leaky(x: Value, slope: float) -> Value:
    return F.prelu(x, paddle.full([1], slope, x.dtype))


@rewrites("celu")
def celu(op: Op) -> Sequence[Value]:
    """max(0, x) + min(0, a (exp(x / a) - 1)) = a elu(x / a)."""
    alpha = op.attrs["alpha"]
    return [F.elu(op.x * (1.0 / alpha)) * alpha]


@rewrites("softplus")
def softplus(op: Op) -> Sequence[Value]:
    """log(1 + exp(b x)) / b, and x itself where b x is above the threshold."""
    beta, threshold = op.attrs["beta"], op.attrs["threshold"]
    scaled = op.x * beta
    made = (F.relu(scaled) + paddle.log1p(paddle.exp(-paddle.abs(scaled)))) * (1.0 / beta)
    if threshold >= _SOFTPLUS_IS_LINEAR:
        return [made]
    return [paddle.where(scaled > threshold, op.x, made)]


@rewrites("stanh")
def stanh(op: Op) -> Sequence[Value]:
    """b tanh(a x)."""
    return [paddle.tanh(op.x * op.attrs["scale_a"]) * op.attrs["scale_b"]]


@rewrites("gelu")
def gelu(op: Op) -> Sequence[Value] | None:
    """The tanh form, which Paddle2ONNX takes for the exact one."""
    if not op.attrs["approximate"]:
        return None
    x = op.x
    inner = (x + x * x * x * 0.044715) * 0.7978845608028654
    return [x * 0.5 * (paddle.tanh(inner) + 1.0)]


@rewrites("maxout")
def maxout(op: Op) -> Sequence[Value]:
    """The largest of each group of neighbouring channels."""
    shape, axis, groups = list(op.x.shape), op.attrs["axis"], op.attrs["groups"]
    axis %= len(shape)
    split = [0] * axis + [shape[axis] // groups, groups] + shape[axis + 1 :]
    if split.count(-1) > 1:
        pieces = [
            paddle.strided_slice(op.x, [axis], [i], [shape[axis]], [groups]) for i in range(groups)
        ]
        made = pieces[0]
        for piece in pieces[1:]:
            made = paddle.maximum(made, piece)
        return [made]
    return [paddle.max(paddle.reshape(op.x, split), axis + 1)]
