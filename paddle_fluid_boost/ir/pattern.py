"""A small declarative pattern language over graphs.

    x = value("x")
    silu = op("multiply", x, op("sigmoid", x), commutative=True)
    for match in [silu.match(node) for node in graph.nodes]: ...

A pattern is a tree that ends in values.  A name used twice must meet the same value both times
(``x`` above).  ``commutative`` tries the two operands in either order.  What a pattern matched
inside (all but the root) is normally about to be erased, so nothing else may read it:
:meth:`Match.escape` says what does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Union

from .graph import Constant, Graph, Node, Value

Pattern = Union["ValuePattern", "OpPattern"]


@dataclass
class Match:
    """What a pattern met: ``values`` and ``nodes`` by name, and all ``matched`` nodes, root last.

    ``pattern`` is the whole pattern that matched.
    """

    values: dict[str, Value | None] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    matched: list[Node] = field(default_factory=list)
    pattern: OpPattern | None = None

    @property
    def root(self) -> Node:
        """The node the match started from, the last to execute."""
        return self.matched[-1]

    def __getitem__(self, name: str) -> Value:
        """The value called ``name`` in the pattern; KeyError when absent or null."""
        found = self.values[name]
        if found is None:
            raise KeyError(name)
        return found

    def constant(self, name: str) -> Constant:
        """The constant called ``name`` in the pattern."""
        found = self[name]
        if not isinstance(found, Constant):
            raise KeyError(f"{name} is not a constant")
        return found

    def node(self, name: str) -> Node:
        """The node called ``name`` in the pattern."""
        return self.nodes[name]

    def escape(self, graph: Graph) -> str | None:
        """Why the inner nodes may not be erased: something outside the match reads one."""
        inside = {id(node) for node in self.matched}
        for node in self.matched[:-1]:
            for made in node.outputs:
                if any(made is output for output in graph.outputs):
                    return f"{made.name} ({node.op}) is also an output of the graph"
                for user in made.users:
                    if id(user) not in inside:
                        return f"{made.name} ({node.op}) is also read by {user.op}"
        return None

    def _extended(self) -> Match:
        return Match(dict(self.values), dict(self.nodes), list(self.matched), self.pattern)


@dataclass(frozen=True)
class ValuePattern:
    """Any value, or none for an optional input, under a name; ``where`` narrows it."""

    name: str
    where: Callable[[Value], bool] | None = None
    optional: bool = False

    def matches(self, value: Value | None, so_far: Match) -> Iterator[Match]:
        """Yields ``so_far`` extended by ``value`` when it fits."""
        if value is None and not self.optional:
            return
        if value is not None and self.where is not None and not self.where(value):
            return
        if self.name in so_far.values:
            if so_far.values[self.name] is value:
                yield so_far
            return
        extended = so_far._extended()
        extended.values[self.name] = value
        yield extended


@dataclass(frozen=True)
class OpPattern:
    """A node of one of ``ops`` whose first inputs match ``inputs``; further inputs are free."""

    ops: tuple[str, ...]
    inputs: tuple[Pattern, ...]
    name: str = ""
    where: Callable[[Node], bool] | None = None
    commutative: bool = False

    def match(self, root: Node) -> Match | None:
        """The first match that ends in ``root``, or None."""
        return next(self.match_all(root), None)

    def match_all(self, root: Node) -> Iterator[Match]:
        """Every match that ends in ``root`` (commutative ops may give several)."""
        return self._matches_node(root, Match(pattern=self))

    def matches(self, value: Value | None, so_far: Match) -> Iterator[Match]:
        """Yields ``so_far`` extended by the producer of ``value`` when it fits."""
        if value is None or value.producer is None or value.producer.outputs[0] is not value:
            return
        yield from self._matches_node(value.producer, so_far)

    def _matches_node(self, node: Node, so_far: Match) -> Iterator[Match]:
        if node.op not in self.ops or len(node.inputs) < len(self.inputs):
            return
        if self.where is not None and not self.where(node):
            return
        orders: list[Sequence[Value | None]] = [node.inputs]
        if self.commutative:
            orders.append([node.inputs[1], node.inputs[0], *node.inputs[2:]])
        for inputs in orders:
            for found in self._matches_inputs(inputs, 0, so_far):
                extended = found._extended()
                if all(node is not other for other in extended.matched):
                    extended.matched.append(node)
                if self.name:
                    extended.nodes[self.name] = node
                yield extended

    def _matches_inputs(
        self, inputs: Sequence[Value | None], position: int, so_far: Match
    ) -> Iterator[Match]:
        if position == len(self.inputs):
            yield so_far
            return
        for found in self.inputs[position].matches(inputs[position], so_far):
            yield from self._matches_inputs(inputs, position + 1, found)


def value(name: str, where: Callable[[Value], bool] | None = None) -> ValuePattern:
    """Any value."""
    return ValuePattern(name, where)


def optional(name: str) -> ValuePattern:
    """Any value, or no value."""
    return ValuePattern(name, optional=True)


def constant(name: str, where: Callable[[Constant], bool] | None = None) -> ValuePattern:
    """A value known before the graph runs."""
    return ValuePattern(
        name, lambda v: isinstance(v, Constant) and (where is None or where(v)), optional=False
    )


def op(
    names: str,
    *inputs: Pattern,
    name: str = "",
    where: Callable[[Node], bool] | None = None,
    commutative: bool = False,
    **attrs: Any,
) -> OpPattern:
    """A node: ``names`` separated by ``|``; ``attrs`` must be equal (numbers: to 1e-6 relative).

    ``name`` captures the node, ``where`` is asked last.
    """

    def fits(node: Node) -> bool:
        if any(not _equal(node.attrs.get(key), wanted) for key, wanted in attrs.items()):
            return False
        return where is None or where(node)

    return OpPattern(tuple(names.split("|")), inputs, name, fits, commutative)


def _equal(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(got, (int, float)):
        return abs(got - wanted) <= 1e-6 * abs(wanted)
    return bool(got == wanted)
