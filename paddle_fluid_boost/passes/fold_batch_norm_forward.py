"""Folds batch norm into the convolution after it, where that is exact.

With y = conv(s * x + t, w) + b, s and t per input channel, and no padding (padding adds zeros where
the batch norm would have put t):  y = conv(x, s * w) + (b + sum over inputs and window of t * w).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph
from ..ir.pattern import Match, constant, op, optional, value
from . import batch_norm
from .base import PatternPass, replace

_NORM = op("batch_norm", value("x"), name="norm")


class FoldBatchNormForward(PatternPass):
    """See the module."""

    name = "fold_batch_norm_forward"
    patterns: ClassVar = (op("fused_conv2d", _NORM, constant("w"), optional("b")),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses padding, groups, and what is no fixed affine map."""
        conv = match.root
        if any(side > 0 for side in conv.attrs["paddings"]):
            return "the convolution after the batch norm pads with zeros"
        if conv.attrs["groups"] != 1:
            return "the convolution after the batch norm has groups"
        if not isinstance(match.values["b"], (Constant, type(None))):
            return "the bias is not a constant"
        return batch_norm.refusal(graph, match.node("norm"))

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The convolution with other constants, on the batch norm's input."""
        conv, norm, w = match.root, match.node("norm"), match.constant("w")
        parents, kinds = batch_norm.factors(norm)
        epsilon, dtype = norm.attrs["epsilon"], w.dtype

        def weights(w_now: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
            s, _ = batch_norm.affine(epsilon, kinds, arrays)
            return (w_now * s.reshape(1, -1, 1, 1)).astype(dtype)

        def bias(w_now: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
            _, t = batch_norm.affine(epsilon, kinds, arrays[: len(parents)])
            added = np.einsum("oihw,i->o", w_now.astype(np.float64), t)
            return (added + sum(arrays[len(parents) :])).astype(dtype)

        old = match.values["b"]
        olds = [old] if isinstance(old, Constant) else []
        new_w = graph.derived(f"{w.name}.bn", [w, *parents], weights, w.shape, dtype)
        new_b = graph.derived(f"{w.name}.bn_bias", [w, *parents, *olds], bias, (w.shape[0],), dtype)
        new = graph.add(
            "fused_conv2d",
            [match["x"], new_w, new_b, *conv.inputs[3:]],
            conv.attrs,
            shape=conv.output.shape,
            dtype=conv.output.dtype,
            before=conv,
        )
        replace(graph, match, new)
