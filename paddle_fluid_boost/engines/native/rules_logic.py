"""Rules for comparison, logic, selection and counting: what masks and loops are made of."""

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


@lowers("scale")
def scale_of_integers(low: Lowering, node: Node) -> int:
    """a x + b of whole numbers; that of floats became a post-op long before."""
    x, dtype = node.inputs[0], node.output.dtype
    a, b = node.attrs["scale"], node.attrs["bias"]
    if dtype not in ("int32", "int64") or len(node.inputs) > 1:
        raise NotNative(f"scale of {dtype}, or by a tensor")
    if a != int(a) or b != int(b) or not node.attrs["bias_after_scale"]:
        raise NotNative("scale of whole numbers by a fraction, or with the bias first")
    made, shape = low.id(x), shape_of(node.output)
    for kind, number, neutral in (("mul", int(a), 1), ("add", int(b), 0)):
        if number != neutral:
            operand = low.array(np.full([1], number, dtype))
            made = low.builder.integer_binary(kind, made, operand, shape)
    return int(made)


def _require_bools(node: Node) -> None:
    for value in node.inputs:
        if value is not None and value.dtype != "bool":
            raise NotNative(f"logic on {value.dtype}")
