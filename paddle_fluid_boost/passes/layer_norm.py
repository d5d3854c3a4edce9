"""Recognises a layer norm written out by hand.

y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) [* scale] [+ bias], the means over the last
dimension.  The quotient may be a product with ``rsqrt``; the square ``d * d`` or ``square``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph
from ..ir.pattern import Match, OpPattern, constant, op, value
from .base import PatternPass, is_float, over_last, replace

_X = value("x")
_CENTRED = op("subtract", _X, op("mean", _X, where=over_last))
_SQUARES = (
    op("square", _CENTRED),
    op("multiply", _CENTRED, _CENTRED),
)
_SHIFTED = tuple(
    op("scale", op("mean", square, where=over_last), name="eps", scale=1.0) for square in _SQUARES
)
_NORMALISED = tuple(
    spelling
    for shifted in _SHIFTED
    for spelling in (
        op("divide", _CENTRED, op("sqrt", shifted)),
        op("multiply", _CENTRED, op("rsqrt", shifted), commutative=True),
    )
)
_SCALED = tuple(op("multiply", n, constant("scale"), commutative=True) for n in _NORMALISED)
_BIASED = tuple(op("add", n, constant("bias"), commutative=True) for n in _SCALED)


class RecogniseLayerNorm(PatternPass):
    """See the module."""

    name = "recognise_layer_norm"
    latest_first = True
    patterns: ClassVar[tuple[OpPattern, ...]] = (*_BIASED, *_SCALED, *_NORMALISED)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses integers, and scales that are not one number per element of a row."""
        x = match["x"]
        if not is_float(x):
            return f"layer norm on {x.dtype}"
        for name in ("scale", "bias"):
            given = match.values.get(name)
            if given is not None and (given.size != x.shape[-1] or given.shape[-1] != given.size):
                return f"the {name} of the layer norm has shape {list(given.shape)}"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One ``layer_norm`` node."""
        x = match["x"]
        flat = [_flat(graph, match.values.get(name)) for name in ("scale", "bias")]
        attrs = {"epsilon": match.node("eps").attrs["bias"], "begin_norm_axis": x.rank - 1}
        new = graph.add(
            "layer_norm", [x, *flat], attrs, shape=x.shape, dtype=x.dtype, before=match.root
        )
        replace(graph, match, new)


def _flat(graph: Graph, given: object) -> Constant | None:
    if not isinstance(given, Constant):
        return None
    if given.rank == 1:
        return given
    return graph.derived(f"{given.name}.flat", [given], np.ravel, (given.size,), given.dtype)
