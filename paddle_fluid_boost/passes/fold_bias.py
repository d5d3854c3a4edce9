"""Folds what follows a product per output channel into its constants.

* bias: (x @ w + b) + c = x @ w + (b + c), c one constant per output channel;
* scale: a * (x @ w + b) + c = x @ (a w) + (a b + c), a and c numbers.

``product`` is a convolution, a transposed convolution or a linear without post-ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph, Value
from ..ir.pattern import Match, constant, op, optional, value
from .base import PatternPass, per_channel, replace

_PRODUCER = op(
    "fused_conv2d|fused_conv3d|fused_conv2d_transpose|fused_conv3d_transpose|linear",
    value("x"),
    constant("w"),
    optional("b"),
    name="producer",
)


def _check_producer(match: Match) -> str | None:
    if match.node("producer").attrs["post_ops"]:
        return "an activation stands between"
    if not isinstance(match.values["b"], (Constant, type(None))):
        return "the bias is not a constant"
    return None


def _channels(match: Match) -> tuple[int, int]:
    """(number, axis) of the output channels."""
    output = match.node("producer").output
    axis = output.rank - 1 if match.node("producer").op == "linear" else 1
    return output.shape[axis], axis


class FoldBias(PatternPass):
    """Adds a constant per channel into the bias."""

    name = "fold_bias"
    patterns: ClassVar = (op("add", _PRODUCER, constant("c"), commutative=True),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses a constant that differs within a channel or changes the shape or dtype."""
        producer, root = match.node("producer"), match.root
        number, axis = _channels(match)
        if not per_channel(match["c"], number, axis, root.output.rank):
            return f"a constant of shape {list(match['c'].shape)} is not one number per channel"
        if (root.output.shape, root.output.dtype) != (producer.output.shape, producer.output.dtype):
            return "the addition changes shape or dtype"
        return _check_producer(match)

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The product with the sum of both biases."""
        old, c = match.values["b"], match.constant("c")
        number, _ = _channels(match)
        if old is None and c.shape == (number,):
            new = c
        else:
            parents = [c, *([old] if isinstance(old, Constant) else [])]
            new = graph.derived(f"{c.name}.bias", parents, _sum_flat, (number,), c.dtype)
        _rebuild(graph, match, match.constant("w"), new)


def _sum_flat(*arrays: np.ndarray) -> np.ndarray:
    total = arrays[0].reshape(-1)
    for array in arrays[1:]:
        total = total + array.reshape(-1)
    return total


class FoldScale(PatternPass):
    """Multiplies a number into the weights."""

    name = "fold_scale"
    patterns: ClassVar = (
        op("scale", _PRODUCER, bias_after_scale=True, where=lambda n: "scale" in n.attrs),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses numbers that are tensors."""
        if not all(isinstance(match.root.attrs[name], float) for name in ("scale", "bias")):
            return "the scale is not a number"
        return _check_producer(match)

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The product with scaled constants."""
        a, c = match.root.attrs["scale"], match.root.attrs["bias"]
        w, old = match.constant("w"), match.values["b"]
        number, _ = _channels(match)
        new_w = graph.derived(f"{w.name}.scaled", [w], _times(a, 0.0), w.shape, w.dtype)
        new_b: Constant | None = None
        if isinstance(old, Constant):
            new_b = graph.derived(f"{old.name}.scaled", [old], _times(a, c), old.shape, old.dtype)
        elif c:
            new_b = graph.literal(np.full((number,), c, w.dtype))
        _rebuild(graph, match, new_w, new_b)


def _times(a: float, c: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: (array * a + c).astype(array.dtype)


def _rebuild(graph: Graph, match: Match, w: Value, b: Value | None) -> None:
    producer, output = match.node("producer"), match.root.output
    inputs = [producer.inputs[0], w, b, *producer.inputs[3:]]
    new = graph.add(
        producer.op,
        inputs,
        producer.attrs,
        shape=output.shape,
        dtype=output.dtype,
        before=match.root,
    )
    replace(graph, match, new)
