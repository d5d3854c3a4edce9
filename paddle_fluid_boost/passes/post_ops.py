"""Fuses pointwise nodes into the node that makes their input: conv + activation, conv + residual
add (+ activation after the add), linear + gelu, chains of pointwise nodes, ...

    z = product(x, w)              z = product(x, w, t,
    y = elementwise(z, t)    ->                post_ops=[..., elementwise's])

Exact: post-ops are applied to every element of z as the separate node did.  The product must be
read by nobody else.  Where the first post-op commutes, z may also be its operand: t + z = z + t.
The fused node stands where the pointwise node stood, so that t exists by then.  If both sides
qualify, a product is preferred to a pointwise node.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node, Value
from ..ir.ops import is_binary
from ..ir.pattern import Match, op, value
from .base import PatternPass, PostOp, replace

_PRODUCTS = op(
    "fused_conv2d|fused_conv3d|fused_conv2d_transpose|fused_conv3d_transpose|linear|fused_matmul",
    value("z"),
    name="producer",
)
_POINTWISE = op("fused_elementwise", value("z"), name="producer")
#: A node with more than this many post-ops is slower than two nodes in every engine we know.
_MOST_POST_OPS = 16


def _first_commutes(node: Node) -> bool:
    first = node.attrs["post_ops"][0]
    return first[0] in ("add", "mul", "max", "min") and first[1] == 1


class FusePostOps(PatternPass):
    """See the module."""

    name = "fuse_post_ops"
    patterns: ClassVar = (
        op("fused_elementwise", _PRODUCTS),
        op("fused_elementwise", value("t"), _PRODUCTS, name="swapped", where=_first_commutes),
        op("fused_elementwise", _POINTWISE),
        op("fused_elementwise", value("t"), _POINTWISE, name="swapped", where=_first_commutes),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses when shapes differ, or when the result would read itself."""
        producer, root = match.node("producer"), match.root
        if producer.output.shape != root.output.shape or producer.output.dtype != root.output.dtype:
            return f"the result of {producer.op} is broadcast by the pointwise op"
        if len(producer.attrs["post_ops"]) + len(root.attrs["post_ops"]) > _MOST_POST_OPS:
            return f"more than {_MOST_POST_OPS} post-ops"
        if sum(value is producer.output for value in root.inputs) > 1:
            return f"the pointwise op reads the result of {producer.op} twice"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The producer, moved down to the pointwise node, with its post-ops."""
        producer, root = match.node("producer"), match.root
        inputs: list[Value | None] = list(producer.inputs)
        moved: dict[int, int] = {}
        for position, operand in enumerate(root.inputs):
            if operand is not producer.output:
                moved[position] = len(inputs)
                inputs.append(operand)
        post_ops: list[PostOp] = list(producer.attrs["post_ops"])
        for position, post_op in enumerate(root.attrs["post_ops"]):
            if position == 0 and "swapped" in match.nodes:
                post_ops.append((post_op[0], moved[0]))
            else:
                post_ops.append((post_op[0], moved[post_op[1]]) if is_binary(post_op) else post_op)
        new = graph.add(
            producer.op,
            inputs,
            {**producer.attrs, "post_ops": post_ops},
            shape=root.output.shape,
            dtype=root.output.dtype,
            before=root,
        )
        replace(graph, match, new)
