"""Which programs oneDNN inside Paddle Inference is known to run without harm.

On some graphs it crashes the process (a convolution followed by LeakyReLU: its fusion reads a
double as a float), on some it returns memory that nobody wrote (1-D convolution, then PReLU).  So
only ops on the list below, each run by the tests, are trusted; a program with another op is
first run in a child process.  What is known of faults, by version, stands in the hardware library.
"""

from __future__ import annotations

from collections.abc import Collection

from ..hardware.advice import cpu_advice
from ..hardware.library import Fault
from . import _paddle as pd

#: Ops that need no work or only name data.
_STRUCTURE = {
    *("builtin.parameter", "builtin.constant", "builtin.combine", "builtin.split", "builtin.slice"),
    *("pd_op.data", "pd_op.full", "pd_op.full_int_array"),
}
#: Each of them occurs in tests/engines/test_paddle_inference_safety.py and equals eager there.
# fmt: off
KNOWN_SAFE = frozenset(_STRUCTURE | {f"pd_op.{name}" for name in (
    "abs", "add", "batch_norm_", "cast", "clip", "concat", "conv2d", "depthwise_conv2d", "divide",
    "dropout", "embedding", "exp", "flatten", "gelu", "hardsigmoid", "hardswish", "layer_norm",
    "log_softmax", "matmul", "max", "mean", "multiply", "pool2d", "pow", "relu", "relu6",
    "reshape", "scale", "sigmoid", "silu", "slice", "softmax", "split", "split_with_num",
    "sqrt", "squeeze", "subtract", "sum", "swish", "tanh", "transpose", "unsqueeze",
)})
#: Work that oneDNN does faster than Paddle's plain kernels.
_GAINS = frozenset(f"pd_op.{name}" for name in (
    "conv2d", "depthwise_conv2d", "conv2d_transpose", "depthwise_conv2d_transpose", "conv3d",
    "conv3d_transpose", "matmul", "bmm", "layer_norm", "softmax",
))
# fmt: on


def gains_from_onednn(names: Collection[str]) -> bool:
    """Whether any op of the program is worth oneDNN."""
    return not _GAINS.isdisjoint(names)


def known_faults(names: Collection[str]) -> list[Fault]:
    """The faults of oneDNN inside this version of Paddle that a program with these ops meets."""
    faults = cpu_advice().faults_of("paddle_inference", "onednn", pd.paddle.__version__)
    return [fault for fault in faults if not set(fault.ops).isdisjoint(names)]


def hopeless(names: Collection[str]) -> bool:
    """Whether a known fault of an op leaves nothing but to do without oneDNN."""
    return any(fault.avoid for fault in known_faults(names))


def passes_to_leave_out(names: Collection[str]) -> tuple[str, ...]:
    """Paddle passes that would harm a program with these ops under oneDNN, and those that the
    library avoids on this processor."""
    harmful = [fault.leave_out for fault in known_faults(names) if fault.leave_out]
    return tuple(dict.fromkeys([*harmful, *cpu_advice().avoid]))


def unproven(names: Collection[str]) -> list[str]:
    """The ops, sorted, for which oneDNN is not known to be safe."""
    faults = known_faults(names)
    cured = {op for fault in faults if fault.leave_out for op in fault.ops}
    suspected = {op for fault in faults if fault.probe for op in fault.ops}
    return sorted(set(names) - KNOWN_SAFE - cured | set(names) & suspected)
