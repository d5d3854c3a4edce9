"""Batch norm in inference is one multiplication and one addition per channel.

y = (x - mean) / sqrt(var + eps) * scale + bias = s * x + t  with
s = scale / sqrt(var + eps),  t = bias - mean * s.

Where a convolution or a linear comes right before, s and t go into its weights
(``fold_batch_norm``); where a convolution without padding comes right after, into those
(``fold_batch_norm_forward``).  What is left becomes a pointwise node here.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph, Node
from ..ir.pattern import Match, op, value
from .base import PatternPass, add_elementwise, is_float, replace


def refusal(graph: Graph, node: Node) -> str | None:
    """Why this ``batch_norm`` is not a fixed affine map of its input, or None."""
    if not (node.attrs["is_test"] or node.attrs["use_global_stats"]):
        return "batch norm is in training mode"
    if any(graph.use_count(output) for output in node.outputs[1:]):
        return "the statistics of the batch norm are read"
    if not all(value is None or isinstance(value, Constant) for value in node.inputs[1:5]):
        return "the batch norm's statistics or weights are not constants"
    if node.attrs["data_format"] not in ("NCHW", "NCL", "NC", "NCDHW"):
        return f"batch norm in layout {node.attrs['data_format']}"
    return None


def factors(node: Node) -> tuple[list[Constant], int]:
    """The constants to pass to :func:`affine`, and how to tell scale from bias.

    Returns:
        (mean, variance[, scale][, bias]) and a bit mask: 1 scale is there, 2 bias is there.
    """
    mean, variance, scale, bias = node.inputs[1:5]
    present = [value for value in (mean, variance, scale, bias) if isinstance(value, Constant)]
    return present, (1 if scale is not None else 0) | (2 if bias is not None else 0)


def affine(
    epsilon: float, kinds: int, arrays: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """(s, t) in float64 from the arrays of :func:`factors`."""
    mean, variance, *rest = (array.astype(np.float64) for array in arrays)
    scale = rest.pop(0) if kinds & 1 else np.ones_like(mean)
    bias = rest.pop(0) if kinds & 2 else np.zeros_like(mean)
    s = scale / np.sqrt(variance + epsilon)
    return s, bias - mean * s


class LowerBatchNorm(PatternPass):
    """``batch_norm`` as a pointwise node: x * s + t."""

    name = "lower_batch_norm"
    patterns: ClassVar = (op("batch_norm", value("x")),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses what is not a fixed affine map."""
        if not is_float(match["x"]) or match["x"].rank < 2:
            return f"batch norm on {match['x']!r}"
        return refusal(graph, match.root)

    def rewrite(self, graph: Graph, match: Match) -> None:
        """Two binary post-ops with one number per channel."""
        node, x = match.root, match["x"]
        parents, kinds = factors(node)
        epsilon = node.attrs["epsilon"]
        shape = (x.shape[1],) + (1,) * (x.rank - 2)
        operands = [
            graph.derived(
                f"{parents[0].name}.{name}",
                parents,
                lambda *arrays, part=part: (
                    affine(epsilon, kinds, arrays)[part].astype(x.dtype).reshape(shape)
                ),
                shape,
                x.dtype,
            )
            for part, name in enumerate(("s", "t"))
        ]
        replace(graph, match, add_elementwise(graph, node, x, [("mul", 1), ("add", 2)], operands))
