"""Fuses an addition into the layer norm that reads it: y, s = add_layer_norm(x1, x2).

s = x1 + x2 stays available for the residual branch, so that the sum may have other readers.  Only
for a sum that no product took as a post-op: the embedding sums of transformers, and residual sums
after ops that cannot add themselves.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node
from ..ir.pattern import Match, op, optional, value
from .base import PatternPass


def _is_sum(node: Node) -> bool:
    return node.attrs["post_ops"] == [("add", 1)]


def _sum_producer(match: Match) -> Node:
    producer = match["s"].producer
    assert producer is not None
    return producer


class FuseAddLayerNorm(PatternPass):
    """See the module."""

    name = "fuse_add_layer_norm"
    patterns: ClassVar = (
        op(
            "layer_norm",
            value(
                "s",
                lambda v: (
                    v.producer is not None
                    and v.producer.op == "fused_elementwise"
                    and _is_sum(v.producer)
                ),
            ),
            optional("scale"),
            optional("bias"),
        ),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses when the statistics of the norm are read, or readers of the sum come earlier."""
        norm = match.root
        if any(graph.use_count(output) for output in norm.outputs[1:]):
            return "the statistics of the layer norm are read"
        position = graph.index(norm)
        users = (user for user in match["s"].users if user is not norm)
        if any(graph.index(user) < position for user in users):
            return "the sum is read before the layer norm"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One node with two outputs in place of both."""
        norm, total = match.root, _sum_producer(match)
        made = [graph.new_value(v.shape, v.dtype) for v in (norm.output, total.output)]
        attrs = {name: norm.attrs[name] for name in ("epsilon", "begin_norm_axis")}
        inputs = [*total.inputs, match.values["scale"], match.values["bias"]]
        graph.insert_before(norm, Node("add_layer_norm", inputs, attrs, made))
        graph.replace_all_uses(norm.output, made[0])
        graph.replace_all_uses(total.output, made[1])
        graph.erase(norm)
        graph.erase(total)
