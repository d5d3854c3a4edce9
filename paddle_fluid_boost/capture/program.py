"""What a capture yields: a straight-line PIR program with fixed shapes, and its live parameters.

This is the contract between ``capture`` (which makes it) and ``ir`` and ``engines`` (which read
it): they need to know nothing about how the program was captured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Slot:
    """One tensor that enters or leaves a program.

    name: unique within the program; for inputs, the name of its ``pd_op.data``.
    shape: the shape; -1 marks a dimension that may vary.
    dtype: as numpy spells it, e.g. ``"float32"``, ``"int64"``, ``"bool"``, ``"bfloat16"``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass
class CapturedProgram:
    """A pure function of its inputs and parameters, as a PIR program.

    program: ``paddle.pir.Program`` in forward order, inputs as ``pd_op.data``, parameters as
        ``builtin.parameter`` whose ``parameter_name`` is a key of ``parameters``.
    inputs / outputs: what enters and leaves, in calling order; ``input_values`` and
        ``output_values`` are the matching ``pir.Value``.
    parameters: the *live* eager tensors by name, held by reference: an engine that copies them must
        copy again when their content changes.
    device: where inputs and parameters live and eager mode computes, e.g. ``"cpu"``, ``"npu:0"``.
    """

    program: Any
    inputs: list[Slot]
    input_values: list[Any]
    outputs: list[Slot]
    output_values: list[Any]
    parameters: dict[str, Any]
    seconds: float = 0.0
    device: str = "cpu"

    @property
    def op_names(self) -> list[str]:
        """Names of all ops in order, e.g. ``pd_op.conv2d``."""
        return [op.name() for op in self.program.global_block().ops]
