"""Rules for comparison, logic and selection: what attention masks and lengths are made of."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node
from .lowering import Lowering, NotNative, lowers, shape_of

_COMPARISONS = (
    "equal",
    "not_equal",
    "less_than",
    "less_equal",
    "greater_than",
    "greater_equal",
)
#: Of bools; Paddle's logical ops take any type, its bitwise ones mean the same on bools.
_LOGIC = {
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}


@lowers(*_COMPARISONS)
def compare(low: Lowering, node: Node) -> int:
    x, y = (low.id(value) for value in node.inputs[:2])
    return int(low.builder.compare(node.op, x, y, shape_of(node.output)))


@lowers(*_LOGIC)
def logic(low: Lowering, node: Node) -> int:
    _require_bools(node)
    x, y = (low.id(value) for value in node.inputs[:2])
    return int(low.builder.compare(_LOGIC[node.op], x, y, shape_of(node.output)))


@lowers("logical_not", "bitwise_not")
def negation(low: Lowering, node: Node) -> int:
    _require_bools(node)
    false = low.array(np.zeros([1], "bool"))
    return int(low.builder.compare("equal", low.id(node.inputs[0]), false, shape_of(node.output)))


@lowers("where")
def where(low: Lowering, node: Node) -> int:
    condition, x, y = (low.id(value) for value in node.inputs[:3])
    return int(low.builder.select(condition, x, y, shape_of(node.output)))


def _require_bools(node: Node) -> None:
    for value in node.inputs:
        if value is not None and value.dtype != "bool":
            raise NotNative(f"logic on {value.dtype}")
