"""Host steps: an op without a native rule runs through Paddle's own kernel, inside the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from ...errors import EngineError
from ...ir.graph import Constant, Node, Value
from ...ir.reference import constant_tensor, host_call
from ..dense import dense
from . import _paddle


class CallContext:
    """One call of a plan: its inputs, and the tensors that host steps made for it.

    inputs: the caller's tensors by address, so that host steps read those and not a wrapper.
    made: keeps host results alive until the call returns; the plan holds only their addresses.
    """

    def __init__(self, inputs: Sequence[Any], addresses: Sequence[int]) -> None:
        self.inputs = dict(zip(addresses, inputs))
        self.made: dict[int, Any] = {}


class HostStep:
    """Calls one node's eager kernel on the plan's memory; the plan calls it with the GIL held."""

    def __init__(self, node: Node, used_outputs: Sequence[int]) -> None:
        self.node = node
        self.outputs: list[Value] = [node.outputs[i] for i in used_outputs]
        self._used = list(used_outputs)
        self._constants: dict[int, Any] = {
            i: constant_tensor(value)
            for i, value in enumerate(node.inputs)
            if isinstance(value, Constant)
        }
        #: Set by the engine: the numbers of this step's outputs among all host outputs.
        self.handles: list[int] = []

    def __call__(self, context: CallContext, addresses: list[int]) -> list[int]:
        """Runs the node; returns the addresses of its used outputs, kept alive by ``context``."""
        pending = iter(addresses)
        tensors: list[Any] = []
        for position, value in enumerate(self.node.inputs):
            if value is None:
                tensors.append(None)
            elif isinstance(value, Constant):
                tensors.append(self._constants[position])
            else:
                tensors.append(self._read(context, next(pending), value))
        with paddle.no_grad():
            results = self.call(tensors)
        return [
            self._keep(context, handle, results[i], value, tensors)
            for handle, i, value in zip(self.handles, self._used, self.outputs)
        ]

    def call(self, tensors: list[Any]) -> Sequence[Any]:
        """The node's results, one per output."""
        return host_call(self.node, tensors)

    @staticmethod
    def _read(context: CallContext, address: int, value: Value) -> Any:
        given = context.inputs.get(address)
        if given is not None and tuple(given.shape) == value.shape:
            return given
        return _paddle.tensor_at(address, value.shape, value.dtype)

    def _keep(
        self, context: CallContext, handle: int, result: Any, value: Value, operands: list[Any]
    ) -> int:
        if result is None:
            raise EngineError(f"host step {self.node.op}: Paddle returned no {value.name}")
        if tuple(result.shape) != value.shape:
            raise EngineError(
                f"host step {self.node.op}: {value.name} came as {tuple(result.shape)}, "
                f"the graph says {value.shape}"
            )
        result = dense(result)
        # A view of an operand would change when the plan reuses that operand's memory.
        if any(t is not None and t._is_shared_buffer_with(result) for t in operands):
            result = result.clone()
        context.made[handle] = result
        return _paddle.address_of(result)
