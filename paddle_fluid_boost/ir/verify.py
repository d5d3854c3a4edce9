"""Checks that a graph is well formed: what every pass may rely on and must leave behind."""

from __future__ import annotations

from collections import Counter

from .graph import Constant, Graph, Node, Value
from .ops import is_binary


class GraphError(AssertionError):
    """A graph is not well formed: a bug in the pass that ran last, never the user's fault."""


def verify(graph: Graph) -> None:
    """Raises GraphError at the first thing wrong.

    Checked: one producer per value, producers before users, users exactly those that read the
    value, unique names, shapes of whole numbers from -1 up, a dtype, groups that add up,
    post-ops that point at inputs; the same for the bodies of control flow.
    """
    defined: dict[int, str] = {}
    names: set[str] = set()

    def define(value: Value, by: str) -> None:
        if id(value) in defined:
            raise GraphError(f"{value.name} is made by {defined[id(value)]} and by {by}")
        if value.name in names:
            raise GraphError(f"two values are called {value.name}")
        defined[id(value)] = by
        names.add(value.name)
        _check_type(value)

    for value in graph.inputs:
        if value.producer is not None:
            raise GraphError(f"input {value.name} has a producer: {value.producer!r}")
        define(value, "the inputs")
    for constant in graph.constants:
        define(constant, "the constants")
    for node in graph.nodes:
        _check_reads(node, defined)
        _check_groups(node)
        for value in node.outputs:
            if value.producer is not node:
                raise GraphError(f"{value.name} does not know its producer {node!r}")
            define(value, repr(node))
        for region in node.regions:
            verify(region)
    for value in graph.outputs:
        if id(value) not in defined:
            raise GraphError(f"output {value.name} is made by nothing in the graph")
    _check_users(graph)


def _check_type(value: Value) -> None:
    if any(side < -1 for side in value.shape):
        raise GraphError(f"{value.name} has a shape with a negative side: {value.shape}")
    if not value.dtype:
        raise GraphError(f"{value.name} has no dtype")


def _check_reads(node: Node, defined: dict[int, str]) -> None:
    for value in node.inputs:
        if value is not None and id(value) not in defined:
            raise GraphError(f"{node!r} reads {value.name} before it is made")
    for post_op in node.attrs.get("post_ops", ()):
        if is_binary(post_op):
            position = post_op[1]
            if not 0 <= position < len(node.inputs) or node.inputs[position] is None:
                raise GraphError(f"{node!r}: post-op {post_op} points at no input")


def _check_groups(node: Node) -> None:
    for what, groups, values in (
        ("input", node.input_groups, node.inputs),
        ("output", node.output_groups, node.outputs),
    ):
        count = sum(1 if length is None else length for _, length in groups)
        if groups and count != len(values):
            raise GraphError(f"{node!r}: {what} groups cover {count} of {len(values)} {what}s")


def _check_users(graph: Graph) -> None:
    reads: Counter[tuple[int, int]] = Counter()
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                reads[id(value), id(node)] += 1
    known: Counter[tuple[int, int]] = Counter()
    for value in {id(v): v for v in graph.values()}.values():
        # A constant may be shared with the body of a branch, whose nodes are not ours.
        ours = {id(node) for node in graph.nodes}
        for user in value.users:
            if id(user) in ours:
                known[id(value), id(user)] += 1
            elif not isinstance(value, Constant):
                raise GraphError(f"{value.name} has a user that is not in the graph: {user!r}")
    if reads != known:
        raise GraphError("the users of some value are not those that read it")
