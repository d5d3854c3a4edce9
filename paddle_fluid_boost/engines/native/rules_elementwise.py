"""Rules for chains of elementwise functions and binary operations."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.ops import BINARY_POST_OPS, is_binary
from .lowering import Lowering, lowers, shape_of


@lowers("fused_elementwise")
def elementwise(low: Lowering, node: Node) -> int:
    affine = _affine(low, node)
    if affine is not None:
        return affine
    shape = shape_of(node.output)
    chain = node.attrs["post_ops"]
    made = low.float(node.inputs[0])
    leading = next((i for i, op in enumerate(chain) if op[0] in BINARY_POST_OPS), len(chain))
    operations = low.post_ops(node, shape)
    if leading:
        made = low.builder.eltwise(made, operations[:leading])
    if leading < len(chain):
        kind, _, _, operand = operations[leading]
        kind = "add" if kind == "sum" else kind
        rest = operations[leading + 1 :]
        return int(low.builder.binary(kind, made, operand, shape, rest))
    return int(low.builder.expand(made, shape))


def _affine(low: Lowering, node: Node) -> int | None:
    """``function(x * scale + shift)`` by channels, what remains of a batch norm; None where the
    node is something else."""
    chain = node.attrs["post_ops"]
    if [op[0] for op in chain[:2]] != ["mul", "add"] or any(map(is_binary, chain[2:])):
        return None
    source, *vectors = node.inputs[0], *(node.inputs[op[1]] for op in chain[:2])
    if source is None or source.shape != node.output.shape or len(source.shape) != 4:
        return None
    for vector in vectors:
        if vector is None or tuple(vector.shape[-3:]) != (source.shape[1], 1, 1):
            return None
        if len(vector.shape) == 4 and vector.shape[0] != 1:
            return None
    made, function = low.float(source), low.post_ops(node, node.output.shape, 2)
    if not low.builder.can_affine(made, function):
        return None
    scale, shift = (low.float(vector) for vector in vectors)
    return int(low.builder.affine(made, scale, shift, function))
