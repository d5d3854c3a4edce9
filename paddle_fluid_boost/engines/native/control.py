"""Control flow: ``if`` and ``while`` run plans of their own for their bodies.

A body is a graph, so it becomes a plan like any other.  The step looks at the condition, which
has been computed by then, and runs the plan that is wanted; a loop feeds what its body made back
to it.  Bodies with shapes that no plan can have leave the whole op to Paddle's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.graph import Graph, Node, Value
from . import _paddle
from .host import CallContext, HostStep

if TYPE_CHECKING:
    from .planning import BuiltPlan

#: The ops with bodies.
CONTROL_FLOW = ("if", "while")


class BodyPlan:
    """The plan of one body, called with tensors as a function is."""

    def __init__(self, graph: Graph, built: BuiltPlan) -> None:
        self.host_reasons = built.lowering.host_reasons
        self.host_ops = built.lowering.host_ops()
        self._plan = built.plan
        self._kept = built.lowering.kept
        self._outputs = [
            (list(v.shape) or [1], list(v.shape), _paddle.dtype_of(v.dtype)) for v in graph.outputs
        ]
        self._handles = [built.plan.output_handle(i) for i in range(len(graph.outputs))]

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """What the body makes of row-major CPU tensors; fresh tensors, or those of its kernels."""
        addresses = [_paddle.address_of(tensor) for tensor in tensors]
        made = [_paddle.empty(shape, dtype) for shape, _, dtype in self._outputs]
        context = CallContext(tensors, addresses)
        self._plan.run(addresses, [_paddle.address_of(tensor) for tensor in made], context)
        results = []
        for (_, shape, _), handle, written in zip(self._outputs, self._handles, made):
            tensor = written if handle < 0 else context.made[handle]
            results.append(tensor if tensor.shape == shape else tensor.reshape(shape))
        return results


class ControlStep(HostStep):
    """An ``if`` or a ``while`` whose bodies are plans."""

    def __init__(self, node: Node, used_outputs: Sequence[int], bodies: Sequence[BodyPlan]) -> None:
        super().__init__(node, used_outputs)
        self.bodies = list(bodies)

    def call(self, tensors: list[Any]) -> Sequence[Any]:
        """The results of the branch taken, or the state after the last turn."""
        given = self._groups(tensors)
        (condition,) = given["cond"]
        if self.node.op == "if":
            taken = 0 if bool(condition) else 1
            return self.bodies[taken](given["else" if taken else "then"])
        state = given["state"]
        while bool(condition):
            condition, *state = self.bodies[0]([*state, *given["captured"]])
        return state

    def _groups(self, tensors: list[Any]) -> dict[str, list[Any]]:
        groups: dict[str, list[Any]] = {}
        position = 0
        for name, length in self.node.input_groups:
            count = 1 if length is None else length
            groups[name] = tensors[position : position + count]
            position += count
        return groups


def has_fixed_types(node: Node) -> bool:
    """Whether bodies take and make what the op itself does, so that a plan can be fed with it."""
    return all(
        _alike(region.outputs, node.outputs) for region in node.regions if node.op == "if"
    ) and all(
        _alike(region.outputs[1:], node.outputs) and _alike(region.outputs[1:], _state(node))
        for region in node.regions
        if node.op == "while"
    )


def _state(node: Node) -> list[Value]:
    count = dict(node.input_groups)["state"] or 0
    return [value for value in node.inputs[1 : 1 + count] if value is not None]


def _alike(some: Sequence[Value], others: Sequence[Value]) -> bool:
    return len(some) == len(others) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(some, others)
    )
