"""Walks a graph and turns every node into ONNX operators by the rule of its op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from ...errors import EngineError
from ...ir.graph import Constant, Graph, Node, Value
from ...ir.rule_table import entering
from . import wire

#: The oldest ONNX Runtime that the extra allows (1.17) knows this version of the operators.
OPSET, _IR_VERSION = 18, 8
#: Constants from this size on are handed to the runtime beside the model, not inside it.
_LARGE = 4096


class Unsupported(Exception):
    """A node that ONNX cannot express, or no rule here does; the message says why."""


Rule = Callable[["Converter", Node], Union[str, "Sequence[str | None]"]]
#: op -> its rule, which returns the name of its output, or one for each output that it makes.
RULES: dict[str, Rule] = {}
writes = entering(RULES)


@dataclass
class OnnxModel:
    """A model.

    text: the serialised ``ModelProto``, without the content of ``large``.
    large: constants that the runtime is given beside it, by name.
    inputs / outputs: names, in the order of the graph's.
    node_count: operators.
    """

    text: bytes
    large: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    node_count: int = 0


@dataclass
class _Operator:
    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, wire.Attribute]
    domain: str


def convert(graph: Graph, *, beside: bool = True) -> OnnxModel:
    """``graph``, optimised by the passes, as an ONNX model of fixed shapes.

    Args:
        beside: keep large constants out of the model's bytes.

    Raises:
        EngineError: a shape is open or empty, a dtype or an op has no form in ONNX; all such ops
            are named.
    """
    _check(graph)
    return Converter(graph).run(beside)


class Converter:
    """What rules ask for: names of values, and operators that make others."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names: dict[Value, str] = {}
        self._operators: list[_Operator] = []
        self._constants: dict[str, np.ndarray] = {}
        self._small: dict[Any, str] = {}
        self._made = 0

    def run(self, beside: bool) -> OnnxModel:
        """Converts the whole graph."""
        inputs = [f"in{i}" for i in range(len(self._graph.inputs))]
        self._names.update(zip(self._graph.inputs, inputs))
        failed: dict[str, str] = {}
        for node in self._graph.nodes:
            try:
                self._convert(node)
            except Unsupported as reason:
                failed.setdefault(node.op, str(reason))
                for value in node.outputs:
                    self._names[value] = "?"
        if failed:
            told = "; ".join(f"{op}: {reason}" for op, reason in sorted(failed.items()))
            raise EngineError(f"cannot be written as ONNX ({told})")
        outputs = self._name_outputs(set(inputs))
        large = {
            name: array
            for name, array in self._constants.items()
            if beside and array.nbytes >= _LARGE
        }
        text = self._serialised(inputs, outputs, large)
        return OnnxModel(text, large, inputs, outputs, len(self._operators))

    def _convert(self, node: Node) -> None:
        rule = RULES.get(node.op)
        if rule is None:
            raise Unsupported("no rule")
        made = rule(self, node)
        for value, name in zip(node.outputs, [made] if isinstance(made, str) else made):
            if name is not None:
                self._names[value] = name

    def _name_outputs(self, inputs: set[str]) -> list[str]:
        """Gives what the graph hands out the names ``out0``, ``out1``, ...; what is handed out
        twice, or as it came in, passes through an operator of its own."""
        outputs: list[str] = []
        renamed: dict[str, str] = {}
        for number, value in enumerate(self._graph.outputs):
            name, target = self.name(value), f"out{number}"
            if name in inputs or name in self._constants or name in renamed:
                operator = _Operator("Identity", [renamed.get(name, name)], [target], {}, "")
                self._operators.append(operator)
            else:
                renamed[name] = target
            outputs.append(target)
        for operator in self._operators:
            operator.inputs = [renamed.get(name, name) for name in operator.inputs]
            operator.outputs = [renamed.get(name, name) for name in operator.outputs]
        return outputs

    def _serialised(
        self, inputs: Sequence[str], outputs: Sequence[str], large: dict[str, np.ndarray]
    ) -> bytes:
        graph = wire.Message()
        for one in self._operators:
            graph.message(1, wire.node(one.op, one.inputs, one.outputs, one.attributes, one.domain))
        graph.text(2, "captured")
        for name, array in self._constants.items():
            written = wire.absent_tensor if name in large else wire.tensor
            graph.message(5, written(name, array))
        for field_number, names, values in (
            (11, inputs, self._graph.inputs),
            (12, outputs, self._graph.outputs),
        ):
            for name, value in zip(names, values):
                graph.message(field_number, wire.value_info(name, value.shape, value.dtype))
        return wire.model(graph, OPSET, _IR_VERSION).join()

    # -- what rules ask for -----------------------------------------------------------------------

    def name(self, value: Value | None) -> str:
        """The name of a value; constants are entered when first asked for."""
        if value is None:
            raise Unsupported("an input is missing")
        if value not in self._names:
            if not isinstance(value, Constant):
                raise Unsupported(f"{value.name} is used before it is made")
            self._names[value] = self.constant(_content(value))
        return self._names[value]

    def optional(self, value: Value | None) -> str:
        """As :meth:`name`; "" for an input that was not given."""
        return "" if value is None else self.name(value)

    def constant(self, array: np.ndarray) -> str:
        """A constant with the content of ``array``; equal small ones are one."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        if str(array.dtype) not in wire.ELEMENT_TYPE:
            raise Unsupported(f"a constant of {array.dtype}")
        if array.nbytes >= _LARGE:
            return self._enter(array)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._small:
            self._small[key] = self._enter(array)
        return self._small[key]

    def _enter(self, array: np.ndarray) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = array
        return name

    def integers(self, numbers: Sequence[int]) -> str:
        """A constant vector of int64."""
        return self.constant(np.array(numbers, "int64"))

    def scalar(self, number: float, dtype: str) -> str:
        """A constant without dimensions."""
        return self.constant(np.array(number, dtype))

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: wire.Attribute) -> str:
        """An operator with one output; returns its name."""
        return self.add_many(op, inputs, 1, domain=domain, **attributes)[0]

    def add_many(
        self,
        op: str,
        inputs: Sequence[str],
        count: int,
        *,
        domain: str = "",
        **attributes: wire.Attribute,
    ) -> list[str]:
        """An operator with ``count`` outputs; returns their names."""
        outputs = [f"t{self._made + i}" for i in range(count)]
        self._made += count
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        self._operators.append(_Operator(op, given, outputs, attributes, domain))
        return outputs

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The same elements in another shape."""
        return self.add("Reshape", name, self.integers(shape), allowzero=1)

    def transpose(self, name: str, order: Sequence[int]) -> str:
        """The same elements in another order of dimensions."""
        return self.add("Transpose", name, perm=list(order))

    def is_used(self, value: Value) -> bool:
        """Whether a node or the caller reads ``value``."""
        return self._graph.use_count(value) > 0


def _check(graph: Graph) -> None:
    """Refuses open and empty shapes and unknown dtypes among what is read or handed out."""
    read = [value for node in graph.nodes for value in node.inputs if value is not None]
    for value in (*graph.inputs, *read, *graph.outputs):
        if any(side < 0 for side in value.shape):
            raise EngineError(f"ONNX: the shape of {value.name} depends on data: {value.shape}")
        if 0 in value.shape:
            raise EngineError(f"ONNX: {value.name} has no elements: {value.shape}")
        if value.dtype not in wire.ELEMENT_TYPE:
            raise EngineError(f"ONNX: {value.name} has dtype {value.dtype}")


def _content(constant: Constant) -> np.ndarray:
    """The content of a constant: the memory of a large parameter itself, else a copy."""
    tensor = constant.tensor
    large = tensor is not None and constant.size * tensor.element_size() >= _LARGE
    if large and tensor.is_contiguous() and hasattr(np, "from_dlpack") and constant.dtype != "bool":
        return np.from_dlpack(tensor.detach()).reshape(constant.shape)
    return constant.compute()


def axis_of(node: Node, value: Value | None, name: str = "axis") -> int:
    """The attribute ``axis``, counted from the front."""
    if value is None or not value.shape:
        raise Unsupported("an axis of a scalar")
    return numbers(node, name)[0] % len(value.shape)


def numbers(node: Node, name: str) -> list[int]:
    """A list attribute of integers."""
    value = node.attrs.get(name)
    if isinstance(value, (int, np.integer)):
        return [int(value)]
    if not isinstance(value, (list, tuple)):
        raise Unsupported(f"attribute '{name}' is not known at compile time")
    return [int(number) for number in value]


def required(value: Value | None) -> Value:
    """``value``, which must be there."""
    if value is None:
        raise Unsupported("an input is missing")
    return value
