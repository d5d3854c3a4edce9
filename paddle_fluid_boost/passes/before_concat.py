"""Moves activations in front of a concat: ``f(concat(a, b)) = concat(f(a), f(b))``.

Exact for functions of one element.  Done only where every part comes from a product or pointwise
node that nobody else reads, which then takes f as a post-op: a whole pass over memory is saved.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node, Value
from ..ir.ops import TAKES_POST_OPS, is_binary
from ..ir.pattern import Match, op, value
from .base import PatternPass, add_elementwise, replace


def _is_unary(node: Node) -> bool:
    return not any(is_binary(post_op) for post_op in node.attrs["post_ops"])


class MoveBeforeConcat(PatternPass):
    """See the module."""

    name = "move_before_concat"
    patterns: ClassVar = (
        op("fused_elementwise", op("concat", value("first"), name="concat"), where=_is_unary),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses where a part could not take the activation as a post-op."""
        for part in match.node("concat").inputs:
            if part is not None and not _can_take(graph, part):
                return f"{part.name} cannot take the activation as a post-op"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The concat of the activated parts."""
        root, concat = match.root, match.node("concat")
        post_ops = root.attrs["post_ops"]
        parts: list[Value | None] = [
            None if part is None else add_elementwise(graph, root, part, post_ops)
            for part in concat.inputs
        ]
        made = graph.new_value(root.output.shape, root.output.dtype)
        new = Node("concat", parts, concat.attrs, [made], concat.input_groups, concat.output_groups)
        graph.insert_before(root, new)
        replace(graph, match, made)


def _can_take(graph: Graph, part: Value) -> bool:
    return (
        part.producer is not None
        and part.producer.op in TAKES_POST_OPS
        and graph.sole_user(part) is not None
    )
