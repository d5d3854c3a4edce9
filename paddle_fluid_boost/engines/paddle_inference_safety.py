"""Which programs oneDNN inside Paddle Inference is known to run without harm.

On some graphs it crashes the process (a convolution followed by LeakyReLU: its fusion reads a
double as a float), on some it returns memory that nobody wrote (1-D convolution, then PReLU).  So
only ops on the list below, each run by the tests, are trusted; a program with another op is
first run in a child process.
"""

from __future__ import annotations

from collections.abc import Collection

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
#: (op, pass): leaving the pass out cures what it does to that op.
_CURES = (("pd_op.leaky_relu", "conv_activation_onednn_fuse_pass"),)
_CURED = frozenset(op for op, _ in _CURES)


def gains_from_onednn(names: Collection[str]) -> bool:
    """Whether any op of the program is worth oneDNN."""
    return not _GAINS.isdisjoint(names)


def passes_to_leave_out(names: Collection[str]) -> tuple[str, ...]:
    """Paddle passes that would harm a program with these ops under oneDNN."""
    return tuple(name for op, name in _CURES if op in names)


def unproven(names: Collection[str]) -> list[str]:
    """The ops, sorted, for which oneDNN is not known to be safe."""
    return sorted(set(names) - KNOWN_SAFE - _CURED)
