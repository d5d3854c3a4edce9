"""Our passes baked into a Paddle program: the optimised graph, written in Paddle's own ops again.

The graph is imported, optimised as for the native engine, and run once on symbols through the
definitions of ``ir/reference.py``, which say in Paddle's ops what each of ours means.  What stays
are folded batch norms, merged projections, constants that were computed, and no dropout, no
identities, no repeated or dead work; the fusions themselves are Paddle Inference's affair.
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
from ..ir.graph import Graph, Node, Value
from ..ir.importer import import_program
from ..ir.reference import apply_post_ops, constant_tensor, host_call
from ..passes.base import PassRecord
from ..passes.common_subexpressions import MergeCommonSubexpressions
from ..passes.constant_folding import FoldConstants
from ..passes.convolution import LowerConvolution
from ..passes.dead_code import EliminateDeadCode
from ..passes.fold_batch_norm import FoldBatchNorm
from ..passes.fold_batch_norm_forward import FoldBatchNormForward
from ..passes.fold_bias import FoldBias, FoldScale
from ..passes.identities import RemoveIdentities
from ..passes.layer_norm import RecogniseLayerNorm
from ..passes.pipeline import optimise
from ..passes.products import AbsorbTransposes, LowerProducts
from ..passes.qkv import MergeProjections
from ..passes.scalars import UnifyScalarArithmetic
from ..passes.slices import MoveSlices, SplitUnbind
from ..passes.transposes import SimplifyTransposes
from ..passes.views import SimplifyViews
from .capturing import distinct_positions

#: The passes of ``passes/pipeline.py`` whose result Paddle's ops can express without loss, in the
#: same order.
PASSES = (
    RemoveIdentities(),
    FoldConstants(),
    MergeCommonSubexpressions(),
    EliminateDeadCode(),
    SimplifyViews(),
    SplitUnbind(),
    MoveSlices(),
    AbsorbTransposes(),
    SimplifyTransposes(),
    AbsorbTransposes(),
    UnifyScalarArithmetic(),
    RemoveIdentities(),
    RecogniseLayerNorm(),
    LowerConvolution(),
    LowerProducts(),
    FoldBias(),
    FoldScale(),
    FoldBatchNorm(),
    FoldBatchNormForward(),
    FoldBias(),
    FoldScale(),
    MergeProjections(),
    SimplifyViews(),
    MergeCommonSubexpressions(),
    EliminateDeadCode(),
)
#: Paddle adds the bias of a convolution as another op, after a reshape in every call.
_CONVOLUTIONS = ("fused_conv2d", "fused_conv3d")
#: Ops that take no eager tensor beside a symbol, as others do.
_SYMBOLS_ONLY = ("arange",)


def baked(
    captured: CapturedProgram, examples: Sequence[np.ndarray]
) -> tuple[CapturedProgram, list[PassRecord]]:
    """``captured`` after our passes, with the same inputs and outputs, and what the passes did.

    Args:
        examples: one array per input, of a shape that fits.

    Raises:
        CaptureRefused: something in it cannot be written in Paddle's ops again; the reason says
            what.
    """
    graph = import_program(captured)
    if any(node.regions for node in graph.nodes):
        raise CaptureRefused("it has branches or loops")
    records = optimise(graph, PASSES)
    tensors = [paddle.to_tensor(array) for array in examples]
    names = [slot.name for slot in captured.inputs]
    open_dims = {
        number: [axis for axis, size in enumerate(slot.shape) if size < 0]
        for number, slot in enumerate(captured.inputs)
        if any(size < 0 for size in slot.shape)
    }
    try:
        made, _ = trace(_Rerun(graph), tensors, {}, names=names, dynamic_dims=open_dims)
    except (EngineError, RuntimeError, ValueError, TypeError, SystemError) as error:
        raise CaptureRefused(f"an op cannot be written again: {error}") from error
    if len(distinct_positions(made.output_values)) != len(captured.outputs):
        raise CaptureRefused("two outputs became one value")
    return replace(made, seconds=0.0), records


class _Rerun:
    """The ops of a graph in order, on whatever it is called with."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._constants: dict[Value, Any] = {
            constant: constant_tensor(constant) for constant in graph.constants
        }
        self._numbers = {
            value: self._constants[value].item()
            for node in graph.nodes
            if node.op in _SYMBOLS_ONLY
            for value in node.inputs
            if value in self._constants and self._constants[value].size == 1
        }
        #: The biases of convolutions in the shape in which they are added.
        self._biases: dict[Value, Any] = {}
        for node in graph.nodes:
            bias = node.inputs[2] if node.op in _CONVOLUTIONS else None
            if bias is not None and bias in self._constants and bias not in self._biases:
                shape = [1, -1] + [1] * (len(node.outputs[0].shape) - 2)
                self._biases[bias] = self._constants[bias].reshape(shape)

    def _symbol(self, value: Value | None, operand: Any) -> Any:
        """A constant of one number as a symbol; anything else as it is."""
        number = None if value is None else self._numbers.get(value)
        if number is None:
            return operand
        return paddle.full(operand.shape, number, operand.dtype)

    def __call__(self, *symbols: Any) -> list[Any]:
        env: dict[Value, Any] = {**self._constants}
        env.update(zip(self._graph.inputs, symbols))
        for node in self._graph.nodes:
            operands = [None if v is None else env[v] for v in node.inputs]
            if node.op in _SYMBOLS_ONLY:
                operands = [self._symbol(v, one) for v, one in zip(node.inputs, operands)]
            bias = node.inputs[2] if node.op in _CONVOLUTIONS else None
            if bias is not None and bias in self._biases:
                operands[2] = None
                plain = Node(node.op, node.inputs, {**node.attrs, "post_ops": []}, node.outputs)
                y = host_call(plain, operands)[0] + self._biases[bias]
                results = [apply_post_ops(y, node, operands)]
            else:
                results = host_call(node, operands)
            env.update(zip(node.outputs, results))
        return [env[value] for value in self._graph.outputs]
