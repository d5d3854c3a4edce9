"""Removes ops that return their input: ``f(x) = x``.

Dropout in inference (``upscale_in_train``, or p = 0), ``assign``, ``scale`` by 1 plus 0, a cast to
the dtype it has, a transpose by the identity, an expansion to the same shape, a concat of one;
and ``assert`` on what is known to be true.  Dropout that scales in inference becomes ``scale``.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Constant, Graph, Node
from ..ir.pattern import Match, op, optional
from .base import PatternPass, is_static, replace


def _returns_its_input(node: Node) -> bool:
    """True for ops that are the identity, and for dropout and assert, which ``check`` looks at."""
    a = node.attrs
    if node.op in ("dropout", "assert"):
        return True
    same = (
        bool(node.inputs)
        and node.inputs[0] is not None
        and node.outputs[0].shape == (node.inputs[0].shape)
    )
    if not same or not is_static(node.output):
        return False
    if node.op == "scale":
        return (a.get("scale"), a.get("bias")) == (1.0, 0.0)
    if node.op == "cast":
        return node.inputs[0].dtype == node.output.dtype  # type: ignore[union-attr]
    if node.op == "transpose":
        return list(a["perm"]) == list(range(len(a["perm"])))
    if node.op == "concat":
        return len(node.inputs) == 1
    return node.op in ("assign", "share_data", "expand")


class RemoveIdentities(PatternPass):
    """See the module."""

    name = "remove_identities"
    patterns: ClassVar = (
        op(
            "dropout|assert|assign|share_data|scale|cast|transpose|expand|concat",
            optional("x"),
            where=_returns_its_input,
        ),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses dropout that is active or whose mask is read, and asserts on live data."""
        node = match.root
        if node.op == "assert" and not _always_true(node):
            return "assert on data that is only known at run time"
        if node.op == "dropout":
            if not node.attrs["is_test"] and node.attrs.get("p") != 0:
                return "dropout is in training mode"
            if any(graph.use_count(mask) for mask in node.outputs[1:]):
                return "the mask of the dropout is read"
            if not isinstance(node.attrs.get("p"), (int, float)):
                return "the probability of the dropout is a tensor"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The input takes the output's place."""
        node = match.root
        if node.op == "assert":
            graph.erase(node)
        elif node.op == "dropout" and node.attrs["mode"] == "downgrade_in_infer":
            attrs = {"scale": 1.0 - node.attrs["p"], "bias": 0.0, "bias_after_scale": True}
            shape, dtype = node.output.shape, node.output.dtype
            new = graph.add("scale", [match["x"]], attrs, shape=shape, dtype=dtype, before=node)
            replace(graph, match, new)
        else:
            replace(graph, match, match["x"])


def _always_true(node: Node) -> bool:
    condition = node.inputs[0]
    if not isinstance(condition, Constant) or condition.literal is None:
        return False
    return bool(condition.literal.all())
