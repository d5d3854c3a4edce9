"""From a captured PIR program to a :class:`~paddle_fluid_boost.ir.graph.Graph`.

Every op imports, known to us or not: under its own name without dialect prefix, with the operands
and attributes that an eager call of it needs (``reference.host_call``).  On the way the program
becomes simpler:

* ``full``, ``full_int_array`` and ``assign_value_`` become constants, and where the op they feed
  takes the number by value (the shape of a reshape, the bounds of a slice), an attribute;
* ``builtin.combine``/``split``/``slice`` vanish: lists of tensors are flattened;
* in-place ops become functional ones (``relu_`` -> ``relu``): later readers of the overwritten
  value read the result;
* ``if`` and ``while`` get their bodies as graphs of their own, closed over by extra inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ..errors import EngineError
from . import _paddle, pir_ops
from .graph import Constant, Graph, Node, Value, numpy_dtype

if TYPE_CHECKING:
    from ..capture.program import CapturedProgram

#: What a PIR value stands for: a tensor, a flattened list, or an absent optional input.
_Binding = Union[Value, list[Value], None]

#: In-place ops that update running statistics only, not their first operand.
_UPDATES_NO_OPERAND = ("batch_norm_",)
_ENDS_BLOCK = ("cf.yield",)
_IGNORED = ("builtin.shadow_output", "builtin.set_parameter", "pd_op.fetch", *_ENDS_BLOCK)


def import_program(captured: CapturedProgram) -> Graph:
    """The graph of ``captured``: same inputs, same outputs in order, parameters by reference.

    Raises EngineError when the program uses a parameter that ``captured`` does not hold, or an
    output that the program does not make.
    """
    importer = _BlockImporter(Graph(), captured.parameters, parent=None)
    for slot, value in zip(captured.inputs, captured.input_values):
        shape = slot.shape if -1 not in slot.shape else tuple(value.shape)
        importer.bind(value, importer.graph.add_input(slot.name, shape, slot.dtype))
    importer.run(captured.program.global_block())
    importer.graph.outputs = [importer.tensor(value) for value in captured.output_values]
    return importer.graph


class _BlockImporter:
    """Imports one block; bodies of control flow get importers with a parent."""

    def __init__(
        self, graph: Graph, parameters: dict[str, Any], parent: _BlockImporter | None
    ) -> None:
        self.graph = graph
        self.parameters = parameters
        self.parent = parent
        self.captured: list[Value] = []
        self._bound: dict[Any, _Binding] = {}
        self._plain: dict[Any, Any] = {}

    # -- bindings ------------------------------------------------------------------------------

    def bind(self, pir_value: Any, binding: _Binding) -> None:
        self._bound[pir_value.id] = binding

    def lookup(self, pir_value: Any) -> _Binding:
        """What ``pir_value`` stands for here; a value from outside becomes an input."""
        key = pir_value.id
        if key not in self._bound:
            if self.parent is None:
                raise EngineError(f"the program reads a value that nothing defines: {pir_value}")
            outer = self.parent.lookup(pir_value)
            if isinstance(outer, list):
                self._bound[key] = [self._capture(value) for value in outer]
            else:
                self._bound[key] = None if outer is None else self._capture(outer)
        return self._bound[key]

    def _capture(self, outer: Value) -> Value:
        if isinstance(outer, Constant):
            return outer
        self.captured.append(outer)
        return self.graph.add_input(outer.name, outer.shape, outer.dtype)

    def tensor(self, pir_value: Any) -> Value:
        """The single tensor that ``pir_value`` stands for."""
        value = self.lookup(pir_value)
        if not isinstance(value, Value):
            raise EngineError(f"expected one tensor, got a list or nothing: {pir_value}")
        return value

    def plain(self, pir_value: Any) -> Any:
        """The Python number(s) behind a ``full``/``full_int_array`` result, or None."""
        if pir_value.id in self._plain:
            return self._plain[pir_value.id]
        return self.parent.plain(pir_value) if self.parent is not None else None

    # -- ops -------------------------------------------------------------------------------------

    def run(self, block: Any) -> None:
        """Imports every op of ``block`` in order."""
        for op in block.ops:
            name = op.name()
            handler = _HANDLERS.get(name)
            if name in _IGNORED:
                continue
            if handler is not None:
                handler(self, op)
            else:
                self.general(op)

    def data(self, op: Any) -> None:
        if op.result(0).id not in self._bound:
            raise EngineError(
                f"program input '{op.attrs()['name']}' is not among the captured inputs"
            )

    def parameter(self, op: Any) -> None:
        name = op.attrs()["parameter_name"]
        if name not in self.parameters:
            raise EngineError(f"the program reads parameter '{name}', which was not captured")
        tensor = self.parameters[name]
        result = op.result(0)
        dtype = _paddle.dtype_name(result.dtype)
        self.bind(result, self.graph.parameter(name, tensor, tuple(tensor.shape), dtype))

    def combine(self, op: Any) -> None:
        items = [self.tensor(value) for value in op.operands_source()]
        self.bind(op.result(0), items)
        plain = [self.plain(value) for value in op.operands_source()]
        if plain and all(isinstance(number, (int, float, bool)) for number in plain):
            self._plain[op.result(0).id] = plain

    def split(self, op: Any) -> None:
        items = self.lookup(op.operands_source()[0])
        assert isinstance(items, list)
        for result, item in zip(op.results(), items):
            self.bind(result, item)

    def pick(self, op: Any) -> None:
        items = self.lookup(op.operands_source()[0])
        assert isinstance(items, list)
        self.bind(op.result(0), items[op.attrs()["index"]])

    def full(self, op: Any) -> None:
        attrs = op.attrs()
        dtype = _paddle.dtype_name(attrs["dtype"])
        number = pir_ops.number(attrs["value"], dtype)
        shape = tuple(attrs["shape"])
        self._bind_literal(op, np.full(shape, number, numpy_dtype(dtype)), dtype)
        if int(np.prod(shape)) == 1 and dtype != "bfloat16":
            self._plain[op.result(0).id] = number

    def full_int_array(self, op: Any) -> None:
        attrs = op.attrs()
        dtype = _paddle.dtype_name(attrs["dtype"])
        numbers = [int(number) for number in attrs["value"]]
        self._bind_literal(op, np.array(numbers, dtype), dtype)
        self._plain[op.result(0).id] = numbers

    def assign_value(self, op: Any) -> None:
        attrs = op.attrs()
        dtype = _paddle.dtype_name(attrs["dtype"])
        array = np.array(attrs["values"], numpy_dtype(dtype)).reshape(attrs["shape"])
        self._bind_literal(op, array, dtype)

    def _bind_literal(self, op: Any, array: np.ndarray, dtype: str) -> None:
        if dtype == "bfloat16":
            return self.general(op)
        self.bind(op.result(0), self.graph.literal(array))

    def general(self, op: Any) -> None:
        """Any op at all: operands in order, numbers among them as attributes where it may be."""
        pir_name = op.name()
        bare = pir_name.split(".", 1)[1]
        inplace = bare.endswith("_")
        functional = bare[:-1] if inplace and _paddle.has_eager(bare[:-1]) else bare
        attrs = {name: pir_ops.attribute(value) for name, value in pir_ops.semantic_attrs(op)}
        inputs, groups = self._operands(op, functional, attrs)
        outputs, output_groups = self._results(op)
        node = Node(functional, inputs, attrs, outputs, groups, output_groups)
        self.graph.append(node)
        if inplace and bare not in _UPDATES_NO_OPERAND and op.num_results():
            target = op.operands_source()[1 if bare == "assign_out_" else 0]
            self._overwrite(target, outputs[0], pir_name)

    def _overwrite(self, target: Any, result: Value, pir_name: str) -> None:
        """Later readers of ``target`` read ``result``."""
        if self.parent is not None and self.parent.knows(target):
            raise EngineError(f"{pir_name} inside a branch or loop overwrites a value from outside")
        self.bind(target, result)

    def knows(self, pir_value: Any) -> bool:
        """True when this block or one around it defines ``pir_value``."""
        if pir_value.id in self._bound:
            return True
        return self.parent is not None and self.parent.knows(pir_value)

    def _operands(
        self, op: Any, name: str, attrs: dict[str, Any]
    ) -> tuple[list[Value | None], list[tuple[str, int | None]]]:
        by_value = {f.name for f in _paddle.formals(name) or () if f.is_attribute}
        inputs: list[Value | None] = []
        groups: list[tuple[str, int | None]] = []
        for formal, operand in zip(pir_ops.input_names(op), op.operands_source()):
            if not operand.initialized():
                inputs.append(None)
                groups.append((formal, None))
                continue
            plain = self.plain(operand) if formal in by_value else None
            if plain is not None:
                attrs[formal] = plain
                continue
            binding = self.lookup(operand)
            if isinstance(binding, list):
                inputs.extend(binding)
                groups.append((formal, len(binding)))
            else:
                inputs.append(binding)
                groups.append((formal, None))
        return inputs, groups

    def _results(self, op: Any) -> tuple[list[Value], list[tuple[str, int | None]]]:
        outputs: list[Value] = []
        groups: list[tuple[str, int | None]] = []
        for name, result in zip(pir_ops.output_names(op), op.results()):
            if not result.initialized():
                groups.append((name, 0))
                continue
            vector = result.type().as_vec_type()
            if vector is None:
                outputs.append(self._fresh(result))
                groups.append((name, None))
                self.bind(result, outputs[-1])
            else:
                items = [self._fresh(item) for item in vector.as_list()]
                outputs.extend(items)
                groups.append((name, len(items)))
                self.bind(result, list(items))
        return outputs, groups

    def _fresh(self, typed: Any) -> Value:
        return self.graph.new_value(tuple(typed.shape), _paddle.dtype_name(typed.dtype))

    # -- control flow ------------------------------------------------------------------------------

    def branch(self, op: Any) -> None:
        """``if``: inputs (cond, what the first body reads, what the second reads)."""
        bodies = [self._body(block) for block in op.blocks()]
        inputs: list[Value | None] = [self.tensor(op.operands_source()[0])]
        groups: list[tuple[str, int | None]] = [("cond", None)]
        for side, body in zip(("then", "else"), bodies):
            inputs.extend(body.captured)
            groups.append((side, len(body.captured)))
        outputs, output_groups = self._results(op)
        self.graph.append(
            Node("if", inputs, {}, outputs, groups, output_groups, [b.graph for b in bodies])
        )

    def loop(self, op: Any) -> None:
        """``while``: inputs (cond, state..., captured...), the body makes (cond, state...)."""
        (block,) = op.blocks()
        operands = op.operands_source()
        body = self._body(block)
        state = [self.tensor(value) for value in operands[1:]]
        inputs: list[Value | None] = [self.tensor(operands[0]), *state, *body.captured]
        groups: list[tuple[str, int | None]] = [
            ("cond", None),
            ("state", len(state)),
            ("captured", len(body.captured)),
        ]
        outputs, output_groups = self._results(op)
        self.graph.append(Node("while", inputs, {}, outputs, groups, output_groups, [body.graph]))

    def _body(self, block: Any) -> _BlockImporter:
        body = _BlockImporter(Graph(), self.parameters, parent=self)
        for position, argument in enumerate(block.args()):
            dtype = _paddle.dtype_name(argument.dtype)
            name = f"state{position}"
            body.bind(argument, body.graph.add_input(name, tuple(argument.shape), dtype))
        body.run(block)
        last = block.ops[-1] if block.ops else None  # nothing in a branch without results
        if last is not None and last.name() in _ENDS_BLOCK:
            body.graph.outputs = [body.tensor(value) for value in last.operands_source()]
        return body


_HANDLERS: dict[str, Any] = {
    "pd_op.data": _BlockImporter.data,
    "builtin.parameter": _BlockImporter.parameter,
    "builtin.combine": _BlockImporter.combine,
    "builtin.split": _BlockImporter.split,
    "builtin.slice": _BlockImporter.pick,
    "pd_op.full": _BlockImporter.full,
    "pd_op.full_int_array": _BlockImporter.full_int_array,
    "pd_op.assign_value_": _BlockImporter.assign_value,
    "pd_op.if": _BlockImporter.branch,
    "pd_op.while": _BlockImporter.loop,
}
