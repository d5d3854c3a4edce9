"""Computes at build time what depends on constants only: ``f(w)`` becomes the constant ``f(w)``.

The new constant keeps the recipe, not just the result: it is derived from the same live
parameters, so that an engine that asks again after a training step gets the new content.  What
depends on literals only is computed once, here.  The shape of a tensor of fixed shape is a
literal too, and so is one that takes nothing but the shape of another (``zeros_like``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..ir import reference
from ..ir.graph import Constant, Graph, Node
from .base import PassRecord, is_static
from .purity import is_pure

#: A constant may grow its inputs up to this many bytes (a broadcast table would fill memory).
_FREE_BYTES = 4 << 20
_READS_SHAPE_ONLY = ("shape", "shape64", "numel", "full_like")


class FoldConstants:
    """See the module."""

    name = "fold_constants"

    def run(self, graph: Graph) -> PassRecord:
        """One sweep in execution order: what folds makes its readers foldable."""
        record = PassRecord(self.name)
        for node in list(graph.nodes):
            if node.op in _READS_SHAPE_ONLY and node.inputs[0] is not None:
                folded = _is_small_and_static(node)
                if folded:
                    _fold_shape(graph, node)
            else:
                reason = _refusal(node)
                folded = reason is None
                if folded:
                    _fold(graph, node)
                elif reason:
                    record.refused.append(reason)
            record.fired += folded
        return record


def _refusal(node: Node) -> str | None:
    """None to fold, "" when the node is no candidate, else the reason against it."""
    if not all(value is None or isinstance(value, Constant) for value in node.inputs):
        return ""
    if not is_pure(node):
        return f"{node.op} is random or has an effect"
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if any(value.dtype == "bfloat16" for value in values):
        return f"{node.op} on bfloat16, which numpy lacks"
    if not all(is_static(value) for value in node.outputs):
        return f"the size of the result of {node.op} depends on data"
    made = sum(_nbytes(value.size, value.dtype) for value in node.outputs)
    read = sum(_nbytes(value.size, value.dtype) for value in node.inputs if value is not None)
    if made > max(2 * read, _FREE_BYTES):
        return f"{node.op} would grow {read} bytes of constants to {made}"
    return None


def _nbytes(size: int, dtype: str) -> int:
    return size * np.dtype(dtype).itemsize


def _fold(graph: Graph, node: Node) -> None:
    parents = [value for value in node.inputs if isinstance(value, Constant)]
    live = any(parent.sources for parent in parents)
    for position, output in enumerate(node.outputs):
        if not graph.use_count(output):
            continue
        recipe = _recipe(node, position)
        if live:
            hint = f"{node.op}({parents[0].name})"
            new = graph.derived(hint, parents, recipe, output.shape, output.dtype)
        else:
            new = graph.literal(recipe(*[parent.compute() for parent in parents]))
        graph.replace_all_uses(output, new)
    graph.erase(node)


def _recipe(node: Node, position: int) -> Callable[..., np.ndarray]:
    """A function from the parents' arrays to output ``position``; keeps a copy of the node."""
    present = [value is not None for value in node.inputs]
    frozen = Node(
        node.op,
        [None] * len(node.inputs),
        node.attrs,
        node.outputs,
        node.input_groups,
        node.output_groups,
    )

    def compute(*arrays: np.ndarray) -> np.ndarray:
        remaining = iter(arrays)
        tensors = [reference.tensor_of(next(remaining)) if here else None for here in present]
        return reference.array_of(reference.host_call(frozen, tensors)[position])

    return compute


def _is_small_and_static(node: Node) -> bool:
    source, output = node.inputs[0], node.output
    return (
        source is not None
        and is_static(source)
        and output.dtype != "bfloat16"
        and _nbytes(output.size, output.dtype) <= _FREE_BYTES
        and isinstance(node.attrs.get("value", 0), (bool, int, float))
    )


def _fold_shape(graph: Graph, node: Node) -> None:
    source, output = node.inputs[0], node.output
    assert source is not None
    if node.op == "full_like":
        literal = graph.literal(np.full(output.shape, node.attrs["value"], output.dtype))
    else:
        content: Sequence[int] | int = source.size if node.op == "numel" else source.shape
        literal = graph.literal(np.array(content, output.dtype).reshape(output.shape))
    graph.replace_all_uses(output, literal)
    graph.erase(node)
