"""Recognises an RMS norm written out by hand.

y = x / sqrt(mean(x^2) + eps) [* scale], the mean over the last dimension.  The square may be a
product, a power or ``square``; the quotient a product with ``rsqrt`` or with the power -1/2.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..ir.graph import Constant, Graph
from ..ir.pattern import Match, OpPattern, constant, op, value
from .base import PatternPass, is_float, is_static, over_last, replace

_X = value("x")
_SQUARES = (op("square", _X), op("multiply", _X, _X), op("pow", _X, y=2.0))
_SHIFTED = tuple(
    op("scale", op("mean", square, where=over_last), name="eps", scale=1.0) for square in _SQUARES
)
_NORMALISED = tuple(
    spelling
    for shifted in _SHIFTED
    for spelling in (
        op("multiply", _X, op("rsqrt", shifted), commutative=True),
        op("multiply", _X, op("pow", shifted, y=-0.5), commutative=True),
        op("divide", _X, op("sqrt", shifted)),
    )
)
_SCALED = tuple(op("multiply", n, constant("scale"), commutative=True) for n in _NORMALISED)


class RecogniseRmsNorm(PatternPass):
    """See the module."""

    name = "recognise_rms_norm"
    latest_first = True
    patterns: ClassVar[tuple[OpPattern, ...]] = (*_SCALED, *_NORMALISED)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses integers, unknown shapes, and scales other than one number per element."""
        x, scale = match["x"], match.values.get("scale")
        if not is_float(x) or not is_static(x):
            return f"rms norm on {x!r}"
        if scale is not None and (scale.size != x.shape[-1] or scale.shape[-1:] != x.shape[-1:]):
            return f"the scale of the rms norm has shape {list(scale.shape)}"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One ``fused_rms_norm`` node."""
        x, scale = match["x"], match.values.get("scale")
        if isinstance(scale, Constant) and scale.rank != 1:
            scale = graph.derived(
                f"{scale.name}.flat", [scale], np.ravel, (scale.size,), scale.dtype
            )
        attrs: dict[str, Any] = {"epsilon": match.node("eps").attrs["bias"]}
        new = graph.add(
            "fused_rms_norm", [x, scale], attrs, shape=x.shape, dtype=x.dtype, before=match.root
        )
        replace(graph, match, new)
