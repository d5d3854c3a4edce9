"""The graph that passes rewrite and engines read: SSA values, nodes in execution order.

A :class:`Graph` is a pure function.  ``nodes`` is always in topological order; every value has
one producer (a node, or none for inputs and constants) and knows its users.  Shapes are those of
the capture: fixed numbers, -1 only where an op's output size depends on data.

Weights are :class:`Constant` values held *by reference*: a leaf is the live parameter itself, a
derived constant is a function of other constants.  Nothing is copied until an engine asks for
``compute()``, and asking again after the parameter changed gives the new content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

import numpy as np

Shape = tuple[int, ...]


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """How numpy holds elements of ``dtype``: as itself, bfloat16 as uint16 bits."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


class Value:
    """One tensor of a graph.

    name: unique within the graph.  shape: as captured.  dtype: as numpy spells it
    (``"float32"``, ``"int64"``, ``"bool"``), plus ``"bfloat16"``.
    producer: the node that makes it; None for inputs and constants.
    users: one entry per use by a node's inputs (a node that reads it twice is there twice).
    """

    __slots__ = ("dtype", "name", "producer", "shape", "users")

    def __init__(self, name: str, shape: Sequence[int], dtype: str) -> None:
        self.name = name
        self.shape: Shape = tuple(int(side) for side in shape)
        self.dtype = dtype
        self.producer: Node | None = None
        self.users: list[Node] = []

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Constant(Value):
    """A value known before the graph runs: a live parameter, a literal, or derived from such.

    Exactly one of three kinds:
    * ``tensor`` is set: a leaf, the live eager parameter;
    * ``literal`` is set: a numpy array that never changes;
    * ``function`` is set: ``function(*[p.compute() for p in parents])`` gives the content.
    """

    __slots__ = ("function", "literal", "parents", "tensor")

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        *,
        tensor: Any = None,
        literal: np.ndarray | None = None,
        parents: Sequence[Constant] = (),
        function: Callable[..., np.ndarray] | None = None,
    ) -> None:
        super().__init__(name, shape, dtype)
        given = [kind is not None for kind in (tensor, literal, function)]
        if sum(given) != 1:
            raise ValueError(f"constant {name}: give one of tensor, literal, function")
        self.tensor = tensor
        self.literal = literal
        self.parents = tuple(parents)
        self.function = function

    @property
    def sources(self) -> tuple[Any, ...]:
        """The live parameters this constant depends on, each once; empty for literals."""
        found: dict[int, Any] = {}
        pending: list[Constant] = [self]
        while pending:
            constant = pending.pop()
            if constant.tensor is not None:
                found[id(constant.tensor)] = constant.tensor
            pending.extend(constant.parents)
        return tuple(found.values())

    def compute(self) -> np.ndarray:
        """The content now, as a C-contiguous array of ``shape``; bfloat16 comes as uint16 bits."""
        if self.literal is not None:
            return self.literal
        if self.function is None:
            return np.ascontiguousarray(self.tensor.numpy()).reshape(self.shape)
        made = np.asarray(self.function(*[parent.compute() for parent in self.parents]))
        if made.shape != self.shape:
            raise ValueError(
                f"constant {self.name}: computed shape {made.shape}, declared {self.shape}"
            )
        return np.ascontiguousarray(made).reshape(self.shape)


class Node:
    """One operation.

    op: field term without prefix, e.g. ``conv2d``, ``matmul`` (see ``ops.py``).
    inputs: values in order; None for an optional input that was not given.  Tensor lists are
        flattened; ``input_groups`` keeps them apart: per formal parameter its name and its
        length, None for a single tensor, a number for a list.
    attrs: plain Python values by name.
    outputs: fresh values, lists flattened, ``output_groups`` as ``input_groups``; empty for ops
        of our own.
    regions: the bodies of control flow (``if``: then, else; ``while``: body).
    """

    __slots__ = ("attrs", "input_groups", "inputs", "op", "output_groups", "outputs", "regions")

    def __init__(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attrs: dict[str, Any] | None = None,
        outputs: Sequence[Value] = (),
        input_groups: Sequence[tuple[str, int | None]] = (),
        output_groups: Sequence[tuple[str, int | None]] = (),
        regions: Sequence[Graph] = (),
    ) -> None:
        self.op = op
        self.inputs = list(inputs)
        self.attrs = dict(attrs or {})
        self.outputs = list(outputs)
        self.input_groups = tuple(input_groups)
        self.output_groups = tuple(output_groups)
        self.regions = list(regions)

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def input(self, name: str) -> Value | None:
        """The single tensor passed for formal parameter ``name``; KeyError when there is none."""
        position = 0
        for formal, length in self.input_groups:
            if formal == name and length is None:
                return self.inputs[position]
            position += 1 if length is None else length
        raise KeyError(f"{self.op} has no single input '{name}'")

    def __repr__(self) -> str:
        reads = ", ".join("null" if v is None else v.name for v in self.inputs)
        return f"{', '.join(v.name for v in self.outputs)} = {self.op}({reads})"


class Graph:
    """A pure function: ``inputs`` in calling order, ``nodes`` in execution order, ``outputs``.

    An output may be an input, a constant, or the same value as another output.
    """

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self._names: dict[str, int] = {}
        self._made = 0

    # -- making ------------------------------------------------------------------------------

    def _unique(self, hint: str) -> str:
        count = self._names.get(hint)
        self._names[hint] = 0 if count is None else count + 1
        if count is None:
            return hint
        return self._unique(f"{hint}_{count + 1}")

    def add_input(self, name: str, shape: Sequence[int], dtype: str) -> Value:
        """Appends a graph input."""
        value = Value(self._unique(name), shape, dtype)
        self.inputs.append(value)
        return value

    def new_value(self, shape: Sequence[int], dtype: str) -> Value:
        """A value that nothing produces yet; values are called v0, v1, ... as they are made."""
        self._made += 1
        return Value(self._unique(f"v{self._made - 1}"), shape, dtype)

    def parameter(self, name: str, tensor: Any, shape: Sequence[int], dtype: str) -> Constant:
        """A constant that is the live parameter ``tensor``."""
        return Constant(self._unique(name), shape, dtype, tensor=tensor)

    def literal(self, array: np.ndarray, hint: str = "c") -> Constant:
        """A constant of fixed content."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        return Constant(self._unique(hint), array.shape, str(array.dtype), literal=array)

    def derived(
        self,
        hint: str,
        parents: Sequence[Constant],
        function: Callable[..., np.ndarray],
        shape: Sequence[int],
        dtype: str,
    ) -> Constant:
        """A constant computed from others, again whenever an engine asks."""
        return Constant(self._unique(hint), shape, dtype, parents=parents, function=function)

    # -- nodes -------------------------------------------------------------------------------

    def append(self, node: Node) -> Node:
        """Adds ``node`` at the end."""
        return self._place(node, len(self.nodes))

    def insert_before(self, anchor: Node, node: Node) -> Node:
        """Adds ``node`` right before ``anchor``."""
        return self._place(node, self.index(anchor))

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attrs: dict[str, Any] | None = None,
        *,
        shape: Sequence[int],
        dtype: str,
        before: Node | None = None,
    ) -> Value:
        """Makes a one-output node, at the end or before ``before``; returns its output."""
        node = Node(op, inputs, attrs, [self.new_value(shape, dtype)])
        if before is None:
            self.append(node)
        else:
            self.insert_before(before, node)
        return node.output

    def _place(self, node: Node, position: int) -> Node:
        for value in node.outputs:
            if value.producer is not None:
                raise ValueError(f"value {value.name} already has a producer")
            value.producer = node
        for read in _present(node.inputs):
            read.users.append(node)
        self.nodes.insert(position, node)
        return node

    def index(self, node: Node) -> int:
        """The position of ``node``; ValueError when it is not in this graph."""
        for position, other in enumerate(self.nodes):
            if other is node:
                return position
        raise ValueError(f"node is not in this graph: {node!r}")

    def erase(self, node: Node) -> None:
        """Removes ``node``; ValueError when an output of it is still used."""
        for value in node.outputs:
            if self.use_count(value):
                raise ValueError(f"cannot erase {node!r}: {value.name} is used")
        del self.nodes[self.index(node)]
        for read in _present(node.inputs):
            read.users.remove(node)
        for value in node.outputs:
            value.producer = None

    def set_input(self, node: Node, position: int, value: Value | None) -> None:
        """Replaces one input of ``node``."""
        old = node.inputs[position]
        if old is not None:
            old.users.remove(node)
        node.inputs[position] = value
        if value is not None:
            value.users.append(node)

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Every user of ``old``, and the graph's outputs, read ``new`` from now on."""
        if old is new:
            return
        for user in list(old.users):
            for position, value in enumerate(user.inputs):
                if value is old:
                    self.set_input(user, position, new)
        self.outputs = [new if value is old else value for value in self.outputs]

    # -- asking ------------------------------------------------------------------------------

    def use_count(self, value: Value) -> int:
        """How often ``value`` is read: by nodes, and as an output of the graph."""
        return len(value.users) + sum(output is value for output in self.outputs)

    def sole_user(self, value: Value) -> Node | None:
        """The one node that reads ``value`` exactly once, or None when that is not so."""
        return value.users[0] if self.use_count(value) == 1 and value.users else None

    @property
    def constants(self) -> list[Constant]:
        """The constants that nodes or outputs read, each once, in order of first use."""
        found: dict[int, Constant] = {}
        for value in self.values():
            if isinstance(value, Constant):
                found.setdefault(id(value), value)
        return list(found.values())

    def values(self) -> Iterator[Value]:
        """Inputs, then what each node reads and makes, then outputs; values may repeat."""
        yield from self.inputs
        for node in self.nodes:
            yield from _present(node.inputs)
            yield from node.outputs
        yield from self.outputs


def _present(values: Iterable[Value | None]) -> Iterator[Value]:
    return (value for value in values if value is not None)
