"""Merges linears that read the same value.

x W1 + b1, x W2 + b2, ... = split(x [W1 W2 ...] + [b1 b2 ...])

Query, key and value projections of self-attention: one large product uses the machine better than
three small ones and reads x once.  The results are slices of the last dimension, which engines take
as strided views.  Runs before post-ops are fused; linears that have some already are left alone.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.graph import Constant, Graph, Node, Value
from .base import PassRecord


class MergeProjections:
    """See the module."""

    name: ClassVar = "merge_projections"

    def run(self, graph: Graph) -> PassRecord:
        """One group per value that several linears read."""
        record = PassRecord(self.name)
        for node in list(graph.nodes):
            if node.op != "linear" or node.output.producer is not node:
                continue
            group = [user for user in _unique(node.inputs[0]) if user.op == "linear"]
            if len(group) < 2 or group[0] is not node:
                continue
            group = sorted(group, key=graph.index)
            reason = _refusal(group)
            if reason is None:
                _merge(graph, group)
                record.fired += 1
            else:
                record.refused.append(reason)
        return record


def _unique(value: Value | None) -> list[Node]:
    return [] if value is None else list({id(user): user for user in value.users}.values())


def _refusal(group: list[Node]) -> str | None:
    x = group[0].inputs[0]
    if any(node.inputs[0] is not x or node.attrs["post_ops"] for node in group):
        return "a projection has post-ops of its own"
    if not all(isinstance(v, (Constant, type(None))) for node in group for v in node.inputs[1:3]):
        return "weights are not constants"
    if len({node.inputs[2] is None for node in group}) != 1:
        return "some projections have a bias and some have none"
    return None


def _merge(graph: Graph, group: list[Node]) -> None:
    first = group[0]
    weights = [node.inputs[1] for node in group]
    sizes = [node.output.shape[-1] for node in group]
    w = _concatenated(graph, [v for v in weights if isinstance(v, Constant)])
    biases = [v for node in group for v in node.inputs[2:3] if isinstance(v, Constant)]
    b = _concatenated(graph, biases) if biases else None
    shape = (*first.output.shape[:-1], sum(sizes))
    dtype = first.output.dtype
    merged = graph.add(
        "linear", [first.inputs[0], w, b], {"post_ops": []}, shape=shape, dtype=dtype, before=first
    )
    parts = [graph.new_value(node.output.shape, dtype) for node in group]
    axis = len(shape) - 1
    split = Node(
        "split",
        [merged],
        {"sections": sizes, "axis": axis},
        parts,
        [("x", None)],
        [("out", len(parts))],
    )
    graph.insert_before(first, split)
    for node, part in zip(group, parts):
        graph.replace_all_uses(node.output, part)
        graph.erase(node)


def _concatenated(graph: Graph, parts: list[Constant]) -> Constant:
    shape = (*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))
    return graph.derived(
        "+".join(part.name for part in parts),
        parts,
        lambda *arrays: np.concatenate(arrays, axis=-1),
        shape,
        parts[0].dtype,
    )
