"""Fuses scaled-dot-product attention: softmax(scale * q k^T + mask) v.

The scale may sit on q, on k or on the scores, or be absent; the mask is added after the scale, with
anything that broadcasts to the scores.  Where q, k, v are transposes of [batch, seq, heads, depth]
and the result is transposed back, all four transposes go (layout ``BSHD``); otherwise the operands
are read as they are, [..., seq, depth] (``BHSD``).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ..ir.graph import Graph, Node, Value
from ..ir.pattern import Match, OpPattern, Pattern, op, value
from .base import PatternPass, broadcasts_to, erase_unread, is_float, is_static, replace

_Q, _K, _V, _MASK = value("q"), value("k"), value("v"), value("mask")
_FLAGS: dict[str, Any] = {"transpose_x": False, "transpose_y": True}


def _is_factor(node: Node) -> bool:
    return isinstance(node.attrs.get("scale"), (int, float)) and node.attrs["bias"] == 0.0


def _scaled(inner: Pattern) -> OpPattern:
    return op("scale", inner, where=_is_factor)


def _scores() -> list[Pattern]:
    """q k^T with a factor on any of the two, on their product, or nowhere; most factors first."""
    products = [op("matmul", q, k, **_FLAGS) for q in (_scaled(_Q), _Q) for k in (_scaled(_K), _K)]
    return [*(_scaled(product) for product in products), *products]


_WEIGHTS = tuple(
    op("softmax", scores, name="softmax")
    for plain in _scores()
    for scores in (op("add", plain, _MASK, commutative=True), plain)
)
_BACK = [0, 2, 1, 3]


class FuseAttention(PatternPass):
    """See the module."""

    name = "fuse_attention"
    patterns: ClassVar[tuple[OpPattern, ...]] = tuple(
        op("matmul", weights, _V, transpose_x=False, transpose_y=False) for weights in _WEIGHTS
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses another softmax axis, shapes that do not pair, and scalars under a scale."""
        q, k, v = match["q"], match["k"], match["v"]
        softmax = match.node("softmax")
        if softmax.attrs["axis"] % softmax.output.rank != softmax.output.rank - 1:
            return "softmax runs over another axis than the keys"
        if not all(is_float(t) and is_static(t) for t in (q, k, v)):
            return "operands are not floating point of fixed shape"
        if q.rank < 3 or len({t.shape[:-2] for t in (q, k, v)}) != 1:
            return "the leading dimensions of q, k and v differ"
        mask = match.values.get("mask")
        if mask is not None and not broadcasts_to(mask, (*q.shape[:-1], k.shape[-2])):
            return f"the mask {list(mask.shape)} does not broadcast to the scores"
        if mask is not None and not is_float(mask):
            return f"the mask is {mask.dtype}"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One node, in the layout that saves the transposes where there are any."""
        factors = [node.attrs["scale"] for node in match.matched if node.op == "scale"]
        factor = float(math.prod(factors))
        sources = [_before_transpose(match[name]) for name in ("q", "k", "v")]
        last = graph.sole_user(match.root.output)
        output = match.root.output
        if last is not None and _is_swap(last) and all(s is not None for s in sources):
            attrs = {"scale": factor, "layout": "BSHD"}
            inputs = [*sources, match.values.get("mask")]
            shape, before = last.output.shape, last
        else:
            attrs = {"scale": factor, "layout": "BHSD"}
            inputs = [match["q"], match["k"], match["v"], match.values.get("mask")]
            shape, before, last = output.shape, match.root, None
        new = graph.add("attention", inputs, attrs, shape=shape, dtype=output.dtype, before=before)
        if last is not None:
            graph.replace_all_uses(last.output, new)
            graph.erase(last)
        replace(graph, match, new)
        for name in ("q", "k", "v"):
            erase_unread(graph, match[name])


def _is_swap(node: Node | None) -> bool:
    return node is not None and node.op == "transpose" and list(node.attrs["perm"]) == _BACK


def _before_transpose(value: Value) -> Value | None:
    if _is_swap(value.producer):
        assert value.producer is not None
        return value.producer.inputs[0]
    return None
