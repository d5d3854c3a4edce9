"""A saved model with open sizes, at fixed sizes: what depends on shapes alone becomes numbers.

The model's graph runs once in eager mode on an example, which shows every shape.  Then the same ops
are traced again, with the fixed input shapes; what was computed from shapes (and from nothing else
that a call brings) enters as the number it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle

from ..capture.program import CapturedProgram
from ..capture.trace import trace
from ..errors import CaptureRefused, EngineError
from ..ir._paddle import formals
from ..ir.graph import Constant, Graph, Node, Value
from ..ir.importer import import_program
from ..ir.reference import constant_tensor, host_call

#: Ops whose result is known from the shape of their operand.
_SHAPE_OPS = ("shape", "shape64", "numel")
#: Numbers that may become an attribute; more are data.
_MOST_NUMBERS = 64


def specialised(captured: CapturedProgram, inputs: Sequence[np.ndarray]) -> CapturedProgram:
    """``captured`` for inputs of exactly the shapes of ``inputs``.

    Raises:
        CaptureRefused: there is control flow in it, or an op cannot be traced again.
    """
    graph = import_program(captured)
    if any(node.regions for node in graph.nodes):
        raise CaptureRefused("the saved model has branches or loops; its sizes cannot be fixed")
    tensors = [paddle.to_tensor(array) for array in inputs]
    names = [slot.name for slot in captured.inputs]
    try:
        replay = _Replay(graph, tensors)
        made, _ = trace(replay, tensors, {}, names=names, call_stacks=True)
    except (EngineError, RuntimeError, ValueError, TypeError, SystemError) as error:
        raise CaptureRefused(f"the saved model cannot be traced again: {error}") from error
    if len(made.outputs) != len(captured.outputs):
        raise CaptureRefused("an output of the saved model depends on shapes alone")
    return replace(made, seconds=0.0)


class _Replay:
    """The ops of a graph once more, without those that only compute with shapes."""

    def __init__(self, graph: Graph, tensors: Sequence[Any]) -> None:
        self._graph = graph
        self._constants: dict[Value, Any] = {
            constant: constant_tensor(constant) for constant in graph.constants
        }
        env: dict[Value, Any] = {**self._constants}
        env.update(zip(graph.inputs, tensors))
        #: The eager values of everything that depends on nothing but shapes.
        self._known: dict[Value, Any] = {}
        self._nodes: list[Node] = []
        with paddle.no_grad():
            for node in graph.nodes:
                self._look(node, env)

    def _look(self, node: Node, env: dict[Value, Any]) -> None:
        """Runs ``node`` and keeps what a trace will need of it."""
        plain = _with_numbers(node, env)
        results = host_call(plain, [None if v is None else env[v] for v in plain.inputs])
        env.update(zip(node.outputs, results))
        reads = [value for value in node.inputs if value is not None]
        known = self._known
        if node.op in _SHAPE_OPS or (
            all(isinstance(value, Constant) or value in known for value in reads)
            and any(value in known for value in reads)
        ):
            known.update(zip(node.outputs, results))
        else:
            self._nodes.append(_with_numbers(node, {**self._constants, **known}))

    def __call__(self, *symbols: Any) -> list[Any]:
        env: dict[Value, Any] = {**self._constants, **self._known}
        env.update(zip(self._graph.inputs, symbols))
        for node in self._nodes:
            results = host_call(node, [None if v is None else env[v] for v in node.inputs])
            env.update(zip(node.outputs, results))
        return [env[value] for value in self._graph.outputs]


def _with_numbers(node: Node, known: dict[Value, Any]) -> Node:
    """``node`` with the operands that eager calls take by value as attributes."""
    by_value = {formal.name for formal in formals(node.op) or () if formal.is_attribute}
    if not by_value or not any(value in known for value in node.inputs if value is not None):
        return node
    attrs, inputs, groups = dict(node.attrs), [], []
    position = 0
    for name, length in node.input_groups:
        values = node.inputs[position : position + (1 if length is None else length)]
        position += len(values)
        numbers = [known[v].numpy() for v in values if v is not None and v in known]
        if (
            name in by_value
            and len(numbers) == len(values)
            and sum(n.size for n in numbers) <= (_MOST_NUMBERS)
        ):
            flat = [number.item() for array in numbers for number in np.ravel(array)]
            attrs[name] = flat if length is not None or numbers[0].ndim else flat[0]
            continue
        inputs += values
        groups.append((name, length))
    return Node(node.op, inputs, attrs, node.outputs, groups, node.output_groups)
