"""Fuses the start of a transformer: layer_norm(T1[i1] + T2[i2] + ... + p) as one node.

The rows of the tables are added up as they are looked up, and normalised while they are in the
cache; nothing in between is written to memory.  The sum stays available for a residual branch.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node, Value
from ..ir.pattern import Match, op, optional, value
from .base import PatternPass, erase_unread


def _terms(total: Value) -> list[Value] | None:
    """What ``total`` is the sum of, or None when it is no plain sum."""
    node = total.producer
    if node is None or node.op != "fused_elementwise":
        return [total] if node is not None and node.op == "embedding" else None
    post_ops = node.attrs["post_ops"]
    if not all(name == "add" for name, *_ in post_ops):
        return None
    terms = [node.inputs[0], *(node.inputs[position] for _, position in post_ops)]
    return [term for term in terms if term is not None]


def _is_lookup(term: Value, total: Value) -> bool:
    node = term.producer
    return node is not None and node.op == "embedding" and term.shape == total.shape


def _repeats(term: Value, total: Value) -> bool:
    """True when ``total`` takes the rows of ``term`` in order, over and over again."""
    shape = term.shape
    while shape and shape[0] == 1 and len(shape) > 1:
        shape = shape[1:]
    return shape == total.shape[total.rank - len(shape) :]


class FuseEmbeddingLayerNorm(PatternPass):
    """See the module."""

    name = "fuse_embedding_layer_norm"
    patterns: ClassVar = (
        op(
            "layer_norm",
            value("s", lambda s: any(_is_lookup(term, s) for term in _terms(s) or ())),
            optional("scale"),
            optional("bias"),
        ),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses other types, statistics that are read, odd broadcasts, early readers."""
        norm, total = match.root, match["s"]
        if any(graph.use_count(output) for output in norm.outputs[1:]):
            return "the statistics of the layer norm are read"
        if total.dtype != "float32" or norm.attrs["begin_norm_axis"] != total.rank - 1:
            return f"layer norm of {total.dtype} from dimension {norm.attrs['begin_norm_axis']} on"
        terms = _terms(total) or []
        for term in terms:
            if _is_lookup(term, total):
                lookup = term.producer
                assert lookup is not None
                if lookup.attrs.get("padding_idx", -1) >= 0:
                    return "an embedding with a padding index"
            elif not _repeats(term, total):
                return f"{term!r} is added to parts of a row, or to some rows several times"
        position = graph.index(norm)
        if any(graph.index(user) < position for user in total.users if user is not norm):
            return "the sum is read before the layer norm"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One node with two outputs: the normalised rows and their sum."""
        norm, total = match.root, match["s"]
        terms = _terms(total) or []
        lookups = [term.producer for term in terms if _is_lookup(term, total)]
        inputs: list[Value | None] = []
        for lookup in lookups:
            assert lookup is not None
            inputs += lookup.inputs[:2]
        inputs += [term for term in terms if not _is_lookup(term, total)]
        inputs += [match.values["scale"], match.values["bias"]]
        attrs = {"epsilon": norm.attrs["epsilon"], "tables": len(lookups)}
        made = [graph.new_value(total.shape, total.dtype) for _ in range(2)]
        graph.insert_before(norm, Node("embedding_layer_norm", inputs, attrs, made))
        graph.replace_all_uses(norm.output, made[0])
        graph.erase(norm)
        graph.replace_all_uses(total, made[1])
        erase_unread(graph, total)
