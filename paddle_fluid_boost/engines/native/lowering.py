"""From a graph to the steps of a plan: the walk, and the table of what each op becomes.

A *rule* turns one node into calls of the plan builder.  Rules live in ``rules_*.py``, one file per
family of ops, and enter the table with :func:`lowers`.  To teach the engine an op, write a rule::

    @lowers("softmax")
    def softmax(low: Lowering, node: Node) -> int:
        return low.builder.softmax(low.float(node.inputs[0]), axis, False)

A rule that meets a case it cannot serve raises :class:`NotNative` with the reason; the node then
becomes a host step, run by Paddle's own kernel on the plan's memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import numpy as np

from ...errors import EngineError
from ...ir.graph import Constant, Graph, Node, Value
from ...ir.ops import BINARY_POST_OPS
from ...ir.rule_table import entering
from . import rooms, shuffles
from .control import CONTROL_FLOW, BodyPlan, ControlStep, has_fixed_types
from .host import HostStep

#: (kind, alpha, beta, value) as the builder reads it.
PostOp = tuple[str, float, float, int]
#: Makes a node's outputs; None for one that nothing reads.
Rule = Callable[["Lowering", Node], Union[int, Sequence[Optional[int]], None]]

RULES: dict[str, Rule] = {}

#: Post-op of the graph -> (oneDNN's name, its alpha and beta from the graph's parameters).
_UNARY: dict[str, Callable[..., PostOp]] = {
    "relu": lambda: ("relu", 0.0, 0.0, -1),
    "clip": lambda lo, hi: ("clip", lo, hi, -1),
    "leaky_relu": lambda alpha: ("relu", alpha, 0.0, -1),
    "elu": lambda alpha: ("elu", alpha, 0.0, -1),
    "sigmoid": lambda: ("logistic", 0.0, 0.0, -1),
    "tanh": lambda: ("tanh", 0.0, 0.0, -1),
    "gelu": lambda: ("gelu_erf", 0.0, 0.0, -1),
    "gelu_tanh": lambda: ("gelu_tanh", 0.0, 0.0, -1),
    "swish": lambda beta: ("swish", beta, 0.0, -1),
    "hardswish": lambda: ("hardswish", 1 / 6, 0.5, -1),
    "hardsigmoid": lambda slope, offset: ("hardsigmoid", slope, offset, -1),
    "mish": lambda: ("mish", 0.0, 0.0, -1),
    "abs": lambda: ("abs", 0.0, 0.0, -1),
    "sqrt": lambda: ("sqrt", 0.0, 0.0, -1),
    "exp": lambda: ("exp", 0.0, 0.0, -1),
    "square": lambda: ("square", 0.0, 0.0, -1),
    "pow": lambda exponent: ("pow", 1.0, exponent, -1),
    "log": lambda: ("log", 0.0, 0.0, -1),
    "softplus": lambda beta: ("soft_relu", beta, 0.0, -1),
    "linear": lambda a, b: ("linear", a, b, -1),
}


class NotNative(Exception):
    """A rule does not cover this node; the message says why."""


#: Enters a rule for ops in the table.
lowers = entering(RULES)


class Lowering:
    """One walk over one graph.

    builder: the extension's PlanBuilder.  plan_body: makes the plan of a body of control flow, or
    raises EngineError.  nodes: instead of the graph's, where some of them were replaced.
    with_rooms: whether concats that grow share their memory (``rooms.py``).
    """

    def __init__(
        self,
        graph: Graph,
        builder: Any,
        plan_body: Callable[[Graph], BodyPlan],
        nodes: Sequence[Node] | None = None,
        with_rooms: bool = True,
    ) -> None:
        self.graph = graph
        self.builder = builder
        self.plan_body = plan_body
        self.nodes = graph.nodes if nodes is None else nodes
        #: The steps [first, end) that each node has become.
        self.spans: dict[Node, tuple[int, int]] = {}
        self.host_steps: list[HostStep] = []
        self.native_count = 0
        self.host_reasons: dict[str, str] = {}
        #: What the plan refers to without owning: constants read in place, arrays until finish.
        self.kept: list[Any] = []
        self._ids: dict[Value, int] = {}
        self._last_use = _last_uses(self.nodes, graph.outputs)
        self._positions = {node: position for position, node in enumerate(self.nodes)}
        self._parts: dict[Value, list[int]] = {}
        #: Rules for nodes that are lowered together.
        self._instead: dict[Node, Rule] = {}
        if builder.channels_last:
            self._enter_shuffles()
        self._rooms = rooms.Rooms({}, {})
        if builder.channels_last and with_rooms:
            self._rooms = rooms.find(self.nodes, graph.outputs)
        #: The builder's number of a room, and what has its place in one.
        self._room_ids: dict[rooms.Room, int] = {}
        self._placed: set[Value] = set()
        self._position = 0

    # -- the walk --------------------------------------------------------------------------------

    def run(self) -> None:
        """Lowers the whole graph.  Raises EngineError where not even a host step can serve."""
        _check_shapes(self.graph)
        for value in self.graph.inputs:
            self._ids[value] = self.builder.input(shape_of(value), value.dtype)
        for position, node in enumerate(self.nodes):
            self._position = position
            self.builder.set_step_name(node.op)
            before = self.builder.step_count
            self._lower(node)
            self.spans[node] = (before, self.builder.step_count)
        for value in self.graph.outputs:
            self.builder.output(self.id(value))

    def _lower(self, node: Node) -> None:
        if node.op in CONTROL_FLOW:
            self._control_flow(node)
            return
        rule = self._instead.get(node) or RULES.get(node.op)
        mark, known = self.builder.checkpoint(), set(self._ids)
        room_ids, placed = dict(self._room_ids), set(self._placed)
        try:
            if rule is None:
                raise NotNative("no rule")
            made = rule(self, node)
        except (NotNative, RuntimeError, ValueError) as reason:
            # RuntimeError and ValueError come from the builder: oneDNN has no such primitive.
            self.host_reasons[node.op] = str(reason)
            self.builder.rollback(mark)
            self._ids = {value: made for value, made in self._ids.items() if value in known}
            self._room_ids, self._placed = room_ids, placed
            self._host(node)
            return
        self.native_count += 1
        results = [made] if made is None or isinstance(made, int) else list(made)
        for value, result in zip(node.outputs, results):
            if result is not None:
                self._ids[value] = self.builder.reshape(result, shape_of(value))

    def _control_flow(self, node: Node) -> None:
        used = [i for i, v in enumerate(node.outputs) if self.is_used(v)]
        try:
            if not has_fixed_types(node):
                raise EngineError("the bodies differ in shapes or types")
            bodies = [self.plan_body(region) for region in node.regions]
        except EngineError as reason:
            self.host_reasons[node.op] = str(reason)
            self._host(node)
            return
        self.native_count += 1
        self.host_reasons.update(
            (op, why) for body in bodies for op, why in body.host_reasons.items()
        )
        self._call_step(ControlStep(node, used, bodies), "plans")

    def _host(self, node: Node) -> None:
        used = [i for i, v in enumerate(node.outputs) if self.is_used(v)]
        self._call_step(HostStep(node, used), "host")

    def _call_step(self, step: HostStep, implementation: str) -> None:
        """A step that the plan calls back for."""
        node = step.node
        inputs = [
            self.id(value)
            for value in node.inputs
            if value is not None and not isinstance(value, Constant)
        ]
        outputs = [(shape_of(value), value.dtype) for value in step.outputs]
        made = self.builder.host(node.op, inputs, outputs, step, implementation)
        self._ids.update(zip(step.outputs, made))
        self.host_steps.append(step)

    def host_ops(self) -> list[str]:
        """The op of every step that a kernel of Paddle's runs, those in bodies included."""
        found = []
        for step in self.host_steps:
            if isinstance(step, ControlStep):
                found += [op for body in step.bodies for op in body.host_ops]
            else:
                found.append(step.node.op)
        return sorted(found)

    # -- what rules ask for -----------------------------------------------------------------------

    def is_used(self, value: Value) -> bool:
        """Whether a node or the caller reads ``value``."""
        return self._last_use.get(value, -1) >= 0

    def id(self, value: Value | None) -> int:
        """The builder's number of a value; constants are entered when first asked for."""
        if value is None:
            raise NotNative("an input is missing")
        if value not in self._ids:
            if not isinstance(value, Constant):
                raise EngineError(f"native engine: value {value.name} is used before it is made")
            self._ids[value] = self._constant(value)
        return self._ids[value]

    def float(self, value: Value | None) -> int:
        """As :meth:`id`, for ops that compute in float32 only."""
        if value is not None and value.dtype != "float32":
            raise NotNative(f"computes in float32, got {value.dtype}")
        return self.id(value)

    def sole_reader(self, value: Value) -> Node | None:
        """The one node of this walk that reads ``value``, and reads it once; None where there is
        none or another one."""
        reader = self.graph.sole_user(value)
        return reader if reader is not None and reader in self._positions else None

    def leave_in_parts(self, concat: Node, reader: Node) -> None:
        """Makes nothing of ``concat``: its one reader will ask for the :meth:`parts`."""
        self._parts[concat.output] = [self.float(value) for value in concat.inputs]
        for value in concat.inputs:
            assert value is not None
            self._last_use[value] = max(self._last_use[value], self._positions[reader])

    def has_rooms(self) -> bool:
        """Whether concats share their memory."""
        return bool(self._room_ids)

    def target(self, value: Value) -> int:
        """Where in a room ``value`` should be written, -1 where that does not matter; a rule that
        does so says :meth:`place`."""
        room = self._rooms.of_part.get(value)
        return -1 if room is None else self._part_of(room, value)

    def place(self, value: Value) -> None:
        """``value`` has been written where :meth:`target` says."""
        self._placed.add(value)

    def grown(self, concat: Node) -> int | None:
        """A concat as the beginning of its room, or None where it has none."""
        room = self._rooms.of_concat.get(concat)
        if room is None:
            return None
        channels = 0
        for part in room.parts:
            if channels == concat.output.shape[1]:
                break
            channels += part.shape[1]
            if part not in self._placed:
                self.builder.copy_into(self.float(part), self._part_of(room, part))
                self.place(part)
        shape = shape_of(concat.output)
        return int(self.builder.slice(self._room_ids[room], [0] * 4, shape, [1] * 4))

    def _part_of(self, room: rooms.Room, part: Value) -> int:
        if room not in self._room_ids:
            self._room_ids[room] = self.builder.room(room.shape())
        begin = [0, room.channel_of(part), 0, 0]
        return int(self.builder.slice(self._room_ids[room], begin, shape_of(part), [1] * 4))

    def _enter_shuffles(self) -> None:
        for found in shuffles.find(self.graph, self.nodes):
            self._instead.update((node, _nothing) for node in found.between)
            self._instead[found.last] = functools.partial(_shuffled, found)
            for value in (found.a, found.b):
                self._last_use[value] = max(self._last_use[value], self._positions[found.last])

    def parts(self, value: Value | None) -> list[int]:
        """As :meth:`float`; several where they are to be read side by side along the channels."""
        if value in self._parts:
            return self._parts[value]
        return [self.float(value)]

    def optional(self, value: Value | None) -> int:
        """As :meth:`float`; -1 for an input that was not given."""
        return -1 if value is None else self.float(value)

    def table(self, value: Value | None) -> int:
        """A constant that stays where it is and is read in place, such as an embedding table."""
        if not isinstance(value, Constant) or value.tensor is None or value in self._ids:
            return self.id(value)
        held = value.tensor.detach()
        self.kept.append(held)
        made = int(self.builder.constant(held.data_ptr(), shape_of(value), value.dtype, True))
        self._ids[value] = made
        return made

    def array(self, array: np.ndarray) -> int:
        """A constant with the content of ``array``."""
        array = np.ascontiguousarray(array)
        self.kept.append(array)
        shape, dtype = list(array.shape), str(array.dtype)
        return int(self.builder.constant(array.ctypes.data, shape, dtype, False))

    def _constant(self, value: Constant) -> int:
        array = value.compute()
        self.kept.append(array)
        return int(self.builder.constant(array.ctypes.data, shape_of(value), value.dtype, False))

    def unary_ops(self, node: Node, attribute: str) -> list[PostOp]:
        """The post-ops of a list that holds no binary ones."""
        return [_UNARY[name](*parameters) for name, *parameters in node.attrs[attribute]]

    def post_ops(self, node: Node, shape: Sequence[int], skip: int = 0) -> list[PostOp]:
        """The node's post-ops from the ``skip``-th on, for a result of ``shape``.

        The first with an operand may become a ``sum`` into the memory of that operand, when
        nothing reads that memory afterwards.
        """
        made: list[PostOp] = []
        for name, *parameters in node.attrs.get("post_ops", ())[skip:]:
            if name not in BINARY_POST_OPS:
                made.append(_UNARY[name](*parameters))
                continue
            value = node.inputs[parameters[0]]
            operand = self.padded(value, len(shape))
            in_place = (
                name == "add"
                and all(operand < 0 for _, _, _, operand in made)
                and value is not None
                and tuple(value.shape) == tuple(shape)
                and self._dies_here(node, value)
            )
            made.append(("sum" if in_place else name, 0.0, 0.0, operand))
        return made

    def padded(self, value: Value | None, rank: int) -> int:
        """A float operand with leading ones up to ``rank``, as numpy broadcasts."""
        made = self.float(value)
        assert value is not None
        shape = shape_of(value)
        return int(self.builder.reshape(made, [1] * (rank - len(shape)) + list(shape)))

    def _dies_here(self, node: Node, value: Value) -> bool:
        """Whether the memory of ``value`` may be overwritten by this node's result."""
        if not self.builder.can_overwrite(self.id(value)):
            return False
        if sum(operand is value for operand in node.inputs) > 1:
            return False
        storage = self.builder.storage_of(self.id(value))
        return all(
            self._last_use.get(other, -1) <= self._position
            and (other is value or not any(other is operand for operand in node.inputs))
            for other, made in self._ids.items()
            if self.builder.storage_of(made) == storage
        )


def _nothing(low: Lowering, node: Node) -> None:
    """The rule of a node whose work another one does."""


def _shuffled(shuffle: shuffles.Shuffle, low: Lowering, node: Node) -> list[int | None]:
    low.builder.set_step_name("channel_shuffle")
    made = low.builder.shuffle(low.float(shuffle.a), low.float(shuffle.b), shuffle.halves)
    return list(made)


def shape_of(value: Value) -> list[int]:
    """The builder's shape: tensors without dimensions are vectors of one element."""
    return list(value.shape) or [1]


def _last_uses(nodes: Sequence[Node], outputs: Sequence[Value]) -> dict[Value, int]:
    """The position of the last node that reads a value; past the end for outputs."""
    last: dict[Value, int] = {}
    for position, node in enumerate(nodes):
        for value in node.inputs:
            if value is not None:
                last[value] = position
    last.update(dict.fromkeys(outputs, len(nodes)))
    return last


def _check_shapes(graph: Graph) -> None:
    """Refuses dynamic and empty tensors that something reads; unread outputs may be anything."""
    read = [value for node in graph.nodes for value in node.inputs if value is not None]
    for value in (*graph.inputs, *read, *graph.outputs):
        if any(side < 0 for side in value.shape):
            raise EngineError(
                f"native engine: the shape of {value.name} depends on data: {value.shape}"
            )
        if 0 in value.shape:
            raise EngineError(f"native engine: {value.name} has no elements: {value.shape}")


def numbers(node: Node, name: str) -> list[int]:
    """A list attribute of integers; NotNative when it is not known at compile time."""
    value = node.attrs.get(name)
    if isinstance(value, (int, np.integer)):
        return [int(value)]
    if not isinstance(value, (list, tuple)):
        raise NotNative(f"attribute '{name}' is not known at compile time")
    return [int(number) for number in value]
