"""One form for ops that only rename the shape, and chains of them cancelled.

``flatten``, ``squeeze``, ``unsqueeze`` and ``reshape`` keep the elements in row-major order: each
becomes ``reshape`` to its full output shape, ``reshape(reshape(x))`` becomes one, and a reshape to
the shape its input has goes.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node, Value
from ..ir.pattern import Match, op, value
from .base import PatternPass, erase_unread, is_static, replace


def _can_be_simpler(node: Node) -> bool:
    source = node.inputs[0]
    if node.op != "reshape" or len(node.inputs) > 1:
        return True
    if node.attrs["shape"] != list(node.output.shape):
        return True
    assert source is not None
    return source.shape == node.output.shape or _reshaped_from(source) is not None


def _reshaped_from(value: Value) -> Value | None:
    """The input of the reshape that makes ``value``, if that is so and shapes are fixed."""
    node = value.producer
    if node is None or node.op != "reshape" or not is_static(value):
        return None
    source = node.inputs[0]
    return source if source is not None and is_static(source) else None


class SimplifyViews(PatternPass):
    """See the module."""

    name = "simplify_views"
    patterns: ClassVar = (
        op("flatten|squeeze|unsqueeze|reshape", value("x"), where=_can_be_simpler),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses shapes that depend on data."""
        if not is_static(match.root.output) or not is_static(match["x"]):
            return f"the shape of {match.root.op} depends on data"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """Reads the first value of the chain directly."""
        source, output = match["x"], match.root.output
        while (earlier := _reshaped_from(source)) is not None:
            source = earlier
        new = source
        if source.shape != output.shape:
            attrs = {"shape": list(output.shape)}
            new = graph.add(
                "reshape",
                [source],
                attrs,
                shape=output.shape,
                dtype=output.dtype,
                before=match.root,
            )
        replace(graph, match, new)
        erase_unread(graph, match["x"])
