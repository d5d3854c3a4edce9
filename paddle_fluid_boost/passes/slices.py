"""Moves slices in front of transposes: ``transpose(x, p)[i] = transpose(x[i], p')``.

Packed attention projections write ``qkv.transpose([2, 0, 3, 1, 4])`` and take its three parts
apart: ``unbind`` becomes one ``slice`` per part, and each slice moves in front of the transpose,
where it reads a strided part of x, and where ``fuse_attention`` can see the transpose.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node
from ..ir.pattern import Match, op, value
from .base import PatternPass, erase_unread, is_static, replace


class SplitUnbind(PatternPass):
    """``unbind(x, axis)`` as one ``slice`` per result."""

    name = "split_unbind"
    patterns: ClassVar = (
        op("unbind", value("x"), where=lambda n: isinstance(n.attrs.get("axis"), int)),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses shapes that depend on data."""
        return None if is_static(match["x"]) else "the shape of unbind depends on data"

    def rewrite(self, graph: Graph, match: Match) -> None:
        """Slices that drop the dimension."""
        node, x = match.root, match["x"]
        axis = node.attrs["axis"] % x.rank
        for index, output in enumerate(list(node.outputs)):
            attrs = _slice_attrs(axis, index)
            new = graph.add(
                "slice", [x], attrs, shape=output.shape, dtype=output.dtype, before=node
            )
            graph.replace_all_uses(output, new)
        graph.erase(node)


def _slice_attrs(axis: int, index: int) -> dict[str, list[int]]:
    return {
        "axes": [axis],
        "starts": [index],
        "ends": [index + 1],
        "infer_flags": [1],
        "decrease_axis": [axis],
    }


def _takes_one_index(node: Node) -> bool:
    a = node.attrs
    if len(node.inputs) > 1 or len(a["axes"]) != 1 or a["decrease_axis"] != a["axes"]:
        return False
    return isinstance(a.get("starts"), list) and isinstance(a.get("ends"), list)


class MoveSlices(PatternPass):
    """``slice(transpose(x))`` as ``transpose(slice(x))``; the transpose may have other readers."""

    name = "move_slices"
    patterns: ClassVar = (
        op(
            "slice",
            value("y", lambda v: v.producer is not None and v.producer.op == "transpose"),
            where=_takes_one_index,
        ),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses shapes that depend on data, and a transpose that something needs whole."""
        transpose = match["y"].producer
        assert transpose is not None
        if not is_static(transpose.output):
            return "the shape of the slice depends on data"
        if any(user.op != "slice" or not _takes_one_index(user) for user in match["y"].users):
            return "the transposed tensor is also needed whole"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The slice in front, the transpose of what is left behind it."""
        node, transpose = match.root, match["y"].producer
        assert transpose is not None and transpose.inputs[0] is not None
        source, output = transpose.inputs[0], node.output
        perm = [axis % source.rank for axis in transpose.attrs["perm"]]
        dropped = perm[node.attrs["axes"][0] % source.rank]
        attrs = {
            **node.attrs,
            "axes": [dropped],
            "decrease_axis": [dropped],
        }
        rest = [axis - (axis > dropped) for axis in perm if axis != dropped]
        shape = [side for axis, side in enumerate(source.shape) if axis != dropped]
        part = graph.add("slice", [source], attrs, shape=shape, dtype=output.dtype, before=node)
        new = graph.add(
            "transpose", [part], {"perm": rest}, shape=output.shape, dtype=output.dtype, before=node
        )
        replace(graph, match, new)
        erase_unread(graph, transpose.output)
