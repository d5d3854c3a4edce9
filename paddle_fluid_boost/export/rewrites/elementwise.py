"""Pointwise ops that Paddle2ONNX does not know, in terms of those it does."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from .table import Op, Value, rewrites


@rewrites("masked_fill")
def masked_fill(op: Op) -> Sequence[Value]:
    """where(mask, value, x)."""
    x, value = op.x, op.inputs["value"]
    mask = op.inputs["mask"]
    return [paddle.where(mask, paddle.broadcast_to(value, [1]) if not value.shape else value, x)]


@rewrites("expm1")
def expm1(op: Op) -> Sequence[Value]:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which keeps its digits near 0."""
    return [paddle.tanh(op.x * 0.5) * (paddle.exp(op.x) + 1.0)]


@rewrites("lerp")
def lerp(op: Op) -> Sequence[Value]:
    """x + weight (y - x)."""
    return [op.x + op.inputs["weight"] * (op.inputs["y"] - op.x)]


@rewrites("addmm")
def addmm(op: Op) -> Sequence[Value]:
    """beta input + alpha x y."""
    product = paddle.matmul(op.inputs["x"], op.inputs["y"]) * op.attrs["alpha"]
    return [op.inputs["input"] * op.attrs["beta"] + product]


@rewrites("logit")
def logit(op: Op) -> Sequence[Value] | None:
    """log(x / (1 - x)) of x kept eps away from 0 and 1."""
    eps = op.attrs["eps"]
    if not eps:
        return None
    x = paddle.clip(op.x, eps, 1.0 - eps)
    return [paddle.log(x / (1.0 - x))]


@rewrites("trunc")
def trunc(op: Op) -> Sequence[Value]:
    """Towards zero."""
    return [paddle.sign(op.x) * paddle.floor(paddle.abs(op.x))]


@rewrites("group_norm")
def group_norm(op: Op) -> Sequence[Value | None] | None:
    """Spelled out: Paddle2ONNX writes an epsilon of its own, another one each time."""
    epsilon, groups = op.attrs["epsilon"], op.attrs["groups"]
    x, shape = op.x, list(op.x.shape)
    if op.attrs["data_format"] != "NCHW" or op.is_read(1):
        return None
    flat = paddle.reshape(x, [0, groups, -1])
    centred = flat - paddle.mean(flat, -1, keepdim=True)
    variance = paddle.mean(centred * centred, -1, keepdim=True)
    made = paddle.reshape(centred / paddle.sqrt(variance + epsilon), _like(x))
    per_channel = [1, shape[1]] + [1] * (len(shape) - 2)
    if op.given("scale"):
        made = made * paddle.reshape(op.inputs["scale"], per_channel)
    if op.given("bias"):
        made = made + paddle.reshape(op.inputs["bias"], per_channel)
    return [made, None, None]


def _like(x: Value) -> list[int] | Value:
    """The shape of ``x`` for a reshape: numbers where at most one is open."""
    shape = list(x.shape)
    return shape if shape.count(-1) < 2 else paddle.shape(x)
