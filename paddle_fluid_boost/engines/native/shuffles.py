"""Channel shuffles of a concat of two: one step instead of a concat, a shuffle and a split.

As ShuffleNet has them: ``concat([a, b])``, seen as [batch, 2, channels, height, width], the 2 and
the channels exchanged, flattened again, and often split into two halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value


@dataclass(frozen=True)
class Shuffle:
    """a, b: what is shuffled.  between: the nodes nothing needs to be made of.  last: the node that
    has the result, or its two halves."""

    a: Value
    b: Value
    between: tuple[Node, ...]
    last: Node

    @property
    def halves(self) -> bool:
        """Whether two halves are wanted."""
        return self.last.op != "reshape"


def find(graph: Graph, nodes: Sequence[Node]) -> list[Shuffle]:
    """The shuffles among ``nodes``."""
    inside = set(nodes)
    found = (_shuffle_of(graph, node) for node in nodes if node.op == "concat")
    return [s for s in found if s is not None and inside.issuperset((*s.between, s.last))]


def _shuffle_of(graph: Graph, concat: Node) -> Shuffle | None:
    out = concat.output
    if out.dtype != "float32" or len(out.shape) != 4 or len(concat.inputs) != 2:
        return None
    a, b = concat.inputs
    if concat.attrs.get("axis") not in (1, -3, [1], [-3]) or a is None or b is None:
        return None
    batch, channels, height, width = a.shape
    if a.shape != b.shape or channels < 2:
        return None
    apart = _reader(graph, out, "reshape", (batch, 2, channels, height, width))
    moved = _reader(graph, apart, "transpose", (batch, channels, 2, height, width))
    if moved is None or list(moved.attrs["perm"]) != [0, 2, 1, 3, 4]:
        return None
    flat = _reader(graph, moved, "reshape", out.shape)
    if apart is None or flat is None:
        return None
    half = graph.sole_user(flat.output)
    if half is not None and channels % 2 == 0 and _halves(half, a):
        return Shuffle(a, b, (concat, apart, moved, flat), half)
    return Shuffle(a, b, (concat, apart, moved), flat)


def _reader(
    graph: Graph, before: Node | Value | None, op: str, shape: tuple[int, ...]
) -> Node | None:
    """The sole reader of a node's result, where it is an ``op`` that makes a ``shape``."""
    if before is None:
        return None
    value = before.output if isinstance(before, Node) else before
    reader = graph.sole_user(value)
    if reader is None or reader.op != op or tuple(reader.output.shape) != tuple(shape):
        return None
    return reader


def _halves(node: Node, part: Value) -> bool:
    if node.op not in ("split", "split_with_num") or len(node.outputs) != 2:
        return False
    return all(tuple(value.shape) == tuple(part.shape) for value in node.outputs)
