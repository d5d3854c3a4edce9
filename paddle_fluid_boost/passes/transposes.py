"""Chains of transposes cancelled: ``transpose(transpose(x, p), q) = transpose(x, p[q])``.

Where the composition is the identity the chain goes; a transpose that only moves dimensions of
size one keeps the order of the elements and becomes ``reshape``.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node
from ..ir.pattern import Match, op, value
from .base import PatternPass, erase_unread, is_static, replace


def _can_be_simpler(node: Node) -> bool:
    source = node.inputs[0]
    assert source is not None
    chained = source.producer is not None and source.producer.op == "transpose"
    return chained or _moves_units_only(node)


def _moves_units_only(node: Node) -> bool:
    source = node.inputs[0]
    assert source is not None
    if not is_static(source):
        return False
    moved = [axis for axis in node.attrs["perm"] if source.shape[axis] != 1]
    return moved == sorted(moved)


class SimplifyTransposes(PatternPass):
    """See the module."""

    name = "simplify_transposes"
    patterns: ClassVar = (op("transpose", value("x"), where=_can_be_simpler),)

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One transpose, a reshape, or nothing."""
        node, source = match.root, match["x"]
        output = node.output
        perm = [axis % source.rank for axis in node.attrs["perm"]]
        if _moves_units_only(node):
            kind, attrs = "reshape", {"shape": list(output.shape)}
            unchanged = source.shape == output.shape
        else:
            assert source.producer is not None and source.producer.inputs[0] is not None
            first = source.producer.attrs["perm"]
            source = source.producer.inputs[0]
            perm = [first[axis] % source.rank for axis in perm]
            kind, attrs = "transpose", {"perm": perm}
            unchanged = perm == list(range(source.rank))
        new = source
        if not unchanged:
            new = graph.add(
                kind, [source], attrs, shape=output.shape, dtype=output.dtype, before=node
            )
        replace(graph, match, new)
        erase_unread(graph, match["x"])
