"""Fuses squeeze-and-excitation: x * gate(W2 act(W1 mean(x) + b1) + b2) as one node.

The mean is a global average pooling, W1 and W2 are 1x1 convolutions with constant weights and one
activation each.  The matrices come out as [squeezed, channels], the second one transposed.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph, Node
from ..ir.ops import is_binary
from ..ir.pattern import Match, constant, op, optional, value
from .base import PatternPass, replace

_X = value("x")


def _is_global(node: Node) -> bool:
    source = node.inputs[0]
    assert source is not None
    window = list(source.shape[2:])
    return node.attrs["mode"] == "avg" and node.attrs["kernel"] == window


def _is_product(node: Node) -> bool:
    return node.attrs["post_ops"] == [("mul", 1)]


_POOLED = op("fused_pool2d", _X, where=_is_global)
_SQUEEZED = op("fused_conv2d", _POOLED, constant("w1"), optional("b1"), name="inner")
_GATE = op("fused_conv2d", _SQUEEZED, constant("w2"), optional("b2"), name="outer")


class FuseSqueezeExcitation(PatternPass):
    """See the module."""

    name = "fuse_squeeze_excitation"
    patterns: ClassVar = (op("fused_elementwise", _X, _GATE, where=_is_product),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses groups, larger windows, biases that are computed, and operands in the gate."""
        for conv in (match.node("inner"), match.node("outer")):
            w = conv.inputs[1]
            assert w is not None
            if conv.attrs["groups"] != 1 or w.shape[2:] != (1, 1) or any(conv.attrs["paddings"]):
                return "a convolution of the gate is not a plain product of channels"
            if not isinstance(conv.inputs[2], (Constant, type(None))):
                return "a bias of the gate is not a constant"
            if any(is_binary(post_op) for post_op in conv.attrs["post_ops"]):
                return "the gate reads something besides its input"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One node."""
        x, inner, outer = match["x"], match.node("inner"), match.node("outer")
        first, second = match.constant("w1"), match.constant("w2")
        squeezed, channels = first.shape[:2]
        shape, dtype = (squeezed, channels), first.dtype
        w1 = graph.derived(f"{first.name}.flat", [first], lambda w: w.reshape(shape), shape, dtype)
        w2 = graph.derived(
            f"{second.name}.flat",
            [second],
            lambda w: np.ascontiguousarray(w.reshape(channels, squeezed).T),
            shape,
            dtype,
        )
        attrs = {
            "inner_ops": list(inner.attrs["post_ops"]),
            "gate_ops": list(outer.attrs["post_ops"]),
        }
        inputs = [x, w1, match.values["b1"], w2, match.values["b2"]]
        new = graph.add(
            "squeeze_excitation", inputs, attrs, shape=x.shape, dtype=x.dtype, before=match.root
        )
        replace(graph, match, new)
