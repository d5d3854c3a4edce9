"""Floating-point operations of a graph: what a roofline compares with the machine's peak.

A multiplication and an addition count as two.  Only products are counted (convolution, matrix
product, attention, recurrence): next to them nothing else weighs.
"""

from __future__ import annotations

import math

from .graph import Graph, Node, Shape


def flops_by_op(graph: Graph) -> dict[str, int]:
    """Operations of all nodes of each op that has any; bodies of control flow are not counted."""
    sums: dict[str, int] = {}
    for node in graph.nodes:
        count = flops(node)
        if count:
            sums[node.op] = sums.get(node.op, 0) + count
    return sums


def flops(node: Node) -> int:
    """Operations of one node; 0 for what is not a product."""
    shapes = [value.shape if value is not None else () for value in node.inputs]
    out = node.outputs[0].shape if node.outputs else ()
    op = node.op.removeprefix("fused_")
    if op in ("conv2d", "depthwise_conv2d", "conv3d"):
        return 2 * math.prod(out) * math.prod(shapes[1][1:])
    if op in ("conv2d_transpose", "conv3d_transpose"):
        return 2 * math.prod(shapes[0]) * math.prod(shapes[1][1:])
    if op == "linear":
        return 2 * math.prod(out) * shapes[1][0]
    if op == "matmul":
        return 2 * math.prod(out) * _inner(node, shapes[0])
    if op == "attention":
        # q k^T and the product with v: each 2 * queries * keys * depth for every batch and head.
        keys = shapes[1][1] if node.attrs["layout"] == "BSHD" else shapes[1][-2]
        return 2 * 2 * math.prod(shapes[0]) * keys
    if op == "recurrent":
        steps, batch, width = shapes[0]
        directions, hidden, gates, _ = shapes[2]
        return 2 * steps * batch * directions * gates * hidden * (width + hidden)
    return 0


def _inner(node: Node, left: Shape) -> int:
    """The dimension that a matrix product sums over."""
    if len(left) == 1:
        return left[0]
    return left[-2] if node.attrs.get("transpose_x") else left[-1]
