"""Matrix products in one form.

``x @ w`` with a constant matrix w becomes ``linear`` (``transpose_y`` transposes the constant at
build time); any other ``matmul``/``bmm`` of rank 2 and up becomes ``fused_matmul``.  A transpose of
an operand's last two dimensions becomes a flag: x @ transpose(y) = matmul(x, y, transpose_y=True);
a transpose that does more ([0, 2, 3, 1] for keys) keeps the rest ([0, 2, 1, 3]).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph, Node, Value
from ..ir.pattern import Match, op, value
from .base import PatternPass, erase_unread, is_float, is_static, replace


class AbsorbTransposes(PatternPass):
    """``matmul`` of an operand whose innermost dimension was moved reads it in place, by a flag."""

    name = "absorb_transposes"
    patterns: ClassVar = (
        op("matmul", value("x"), value("y"), where=lambda node: bool(_moved_operands(node))),
    )

    def rewrite(self, graph: Graph, match: Match) -> None:
        """Changes the operands and flags in place; the transposes may have other readers."""
        node = match.root
        for position in _moved_operands(node):
            old = node.inputs[position]
            assert old is not None and old.producer is not None
            graph.set_input(node, position, _unmoved(graph, node, old.producer))
            flag = ("transpose_x", "transpose_y")[position]
            node.attrs[flag] = not node.attrs[flag]
            erase_unread(graph, old)


def _moved_operands(node: Node) -> list[int]:
    return [
        position
        for position, value in enumerate(node.inputs[:2])
        if value is not None and _moves_innermost_to_second(value.producer)
    ]


def _moves_innermost_to_second(node: Node | None) -> bool:
    if node is None or node.op != "transpose":
        return False
    rank = node.output.rank
    return rank >= 2 and node.attrs["perm"][-2] % rank == rank - 1


def _unmoved(graph: Graph, before: Node, transpose: Node) -> Value:
    """The transposed value with its last two dimensions swapped back."""
    source, output = transpose.inputs[0], transpose.output
    assert source is not None
    *first, last, second = (axis % output.rank for axis in transpose.attrs["perm"])
    perm = [*first, second, last]
    if perm == list(range(output.rank)):
        return source
    shape = [*output.shape[:-2], output.shape[-1], output.shape[-2]]
    attrs = {"perm": perm}
    return graph.add("transpose", [source], attrs, shape=shape, dtype=output.dtype, before=before)


class LowerProducts(PatternPass):
    """``matmul`` and ``bmm`` as ``linear`` or ``fused_matmul``."""

    name = "lower_products"
    patterns: ClassVar = (op("matmul|bmm", value("x"), value("y")),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses vectors, integers and shapes that depend on data."""
        x, y = match["x"], match["y"]
        for operand in (x, y):
            if not is_float(operand) or not is_static(operand):
                return f"matmul on {operand!r}"
            if operand.rank < 2:
                return "matmul of a vector"
        return None if is_static(match.root.output) else "the shape of matmul depends on data"

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The fused op without bias or post-ops yet."""
        node, x, y = match.root, match["x"], match["y"]
        swap_x = bool(node.attrs.get("transpose_x"))
        swap_y = bool(node.attrs.get("transpose_y"))
        inputs: list[Value | None]
        attrs: dict[str, object] = {"post_ops": []}
        if isinstance(y, Constant) and y.rank == 2 and not swap_x:
            name, inputs = "linear", [x, _transposed(graph, y) if swap_y else y, None]
        else:
            name, inputs = "fused_matmul", [x, y]
            attrs.update(transpose_x=swap_x, transpose_y=swap_y)
        output = node.output
        new = graph.add(name, inputs, attrs, shape=output.shape, dtype=output.dtype, before=node)
        replace(graph, match, new)


def _transposed(graph: Graph, w: Constant) -> Constant:
    return graph.derived(f"{w.name}.T", [w], np.transpose, w.shape[::-1], w.dtype)
