"""Folds batch norm into the convolution, transposed convolution or linear before it.

With y = s * z + t per output channel (see ``batch_norm``) and z = conv(x, w) + b:
y = conv(x, s * w) + (s * b + t).  s runs along the output channels of w: dimension 0 of a
convolution's [O, C/g, (d,) h, w], dimension 1 of a linear's [K, N], and the O/g output channels of
each group of a transposed convolution's [C, O/g, h, w].
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph, Node
from ..ir.pattern import Match, constant, op, optional, value
from . import batch_norm
from .base import PatternPass, replace

_PRODUCER = op(
    "fused_conv2d|fused_conv3d|fused_conv2d_transpose|fused_conv3d_transpose|linear",
    value("x"),
    constant("w"),
    optional("b"),
    name="producer",
)


def scale_outputs(op_name: str, w: np.ndarray, s: np.ndarray, groups: int) -> np.ndarray:
    """``w`` with the weights of output channel o multiplied by s[o]."""
    if op_name == "linear":
        return w * s
    if op_name in ("fused_conv2d", "fused_conv3d"):
        return w * s.reshape(-1, *[1] * (w.ndim - 1))
    inputs, outputs = w.shape[:2]
    grouped = w.reshape(groups, inputs // groups, outputs, *w.shape[2:])
    return (grouped * s.reshape(groups, 1, outputs, 1, 1)).reshape(w.shape)


class FoldBatchNorm(PatternPass):
    """See the module."""

    name = "fold_batch_norm"
    patterns: ClassVar = (op("batch_norm", _PRODUCER),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses training mode, live weights, and anything between product and batch norm."""
        producer = match.node("producer")
        if producer.attrs["post_ops"]:
            return "an activation stands between the product and the batch norm"
        if producer.op == "linear" and producer.output.rank != 2:
            return "batch norm after a linear of rank other than 2 runs over another dimension"
        if not isinstance(match.values["b"], (Constant, type(None))):
            return "the bias is not a constant"
        return batch_norm.refusal(graph, match.root)

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The same product with other constants."""
        node, producer, w = match.root, match.node("producer"), match.constant("w")
        parents, kinds = batch_norm.factors(node)
        epsilon, kind = node.attrs["epsilon"], producer.op
        groups, dtype = producer.attrs.get("groups", 1), w.dtype

        def weights(w_now: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
            s, _ = batch_norm.affine(epsilon, kinds, arrays)
            return scale_outputs(kind, w_now.astype(np.float64), s, groups).astype(dtype)

        def bias(*arrays: np.ndarray) -> np.ndarray:
            s, t = batch_norm.affine(epsilon, kinds, arrays[: len(parents)])
            return (t + sum(s * old for old in arrays[len(parents) :])).astype(dtype)

        old = match.values["b"]
        olds = [old] if isinstance(old, Constant) else []
        channels = (parents[0].size,)
        new_w = graph.derived(f"{w.name}.bn", [w, *parents], weights, w.shape, dtype)
        new_b = graph.derived(f"{w.name}.bn_bias", [*parents, *olds], bias, channels, dtype)
        _replace_weights(graph, match, producer, new_w, new_b)


def _replace_weights(graph: Graph, match: Match, producer: Node, w: Constant, b: Constant) -> None:
    inputs = [producer.inputs[0], w, b, *producer.inputs[3:]]
    output = match.root.output
    new = graph.add(
        producer.op,
        inputs,
        producer.attrs,
        shape=output.shape,
        dtype=output.dtype,
        before=match.root,
    )
    replace(graph, match, new)
