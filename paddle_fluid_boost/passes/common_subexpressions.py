"""Computes equal things once: ``y1 = f(x), y2 = f(x)`` becomes ``y1 = f(x)``.

Equal means: same op, same inputs, same attributes.  Literals count as the same input when they
hold the same bytes.  Random ops, ops with an effect and control flow are left alone.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..ir.graph import Constant, Graph, Node, Value
from .base import PassRecord
from .purity import is_pure

#: Literals above this size are compared by identity only.
_SMALL_LITERAL_BYTES = 4096


class MergeCommonSubexpressions:
    """See the module."""

    name = "merge_common_subexpressions"

    def run(self, graph: Graph) -> PassRecord:
        """One sweep in execution order."""
        record = PassRecord(self.name)
        seen: dict[Hashable, Node] = {}
        for node in list(graph.nodes):
            if not is_pure(node):
                continue
            first = seen.setdefault(_key(node), node)
            if first is not node:
                for old, new in zip(node.outputs, first.outputs):
                    graph.replace_all_uses(old, new)
                graph.erase(node)
                record.fired += 1
        return record


def _key(node: Node) -> Hashable:
    attrs = tuple(sorted((name, repr(value)) for name, value in node.attrs.items()))
    return node.op, tuple(_identity(value) for value in node.inputs), node.input_groups, attrs


def _identity(value: Value | None) -> Hashable:
    if isinstance(value, Constant):
        if value.literal is not None and value.literal.nbytes <= _SMALL_LITERAL_BYTES:
            return value.dtype, value.shape, value.literal.tobytes()
        if value.tensor is not None:
            return id(value.tensor)
    return id(value)
