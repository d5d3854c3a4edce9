"""The ops that passes introduce, and what each means: the contract with the engines.

After the pipeline a graph holds three kinds of ops:

1. the *fused* ops of :data:`FUSED_OPS`, whose meaning stands here;
2. Paddle's own ops with Paddle's own meaning and attribute names (``softmax``, ``concat``,
   ``layer_norm``, ...), numbers such as axes and shapes as attributes wherever they were known;
3. control flow: ``if`` and ``while`` with ``regions``.

An engine may implement any of them; the rest it hands to ``reference.host_call``.
``reference.py`` runs the fused ops through eager Paddle and is the executable form of this page.

**Post-ops.**  ``attrs["post_ops"]`` is a list of tuples applied to the result ``y`` one after the
other, elementwise, in the dtype of ``y``: see :data:`UNARY_POST_OPS` and
:data:`BINARY_POST_OPS`.  A binary one, ``("add", k)``, reads ``node.inputs[k]``, which
broadcasts (numpy rules) to the shape of ``y``; the same input may be used by several.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpSpec:
    """inputs: formal names, ``?`` marks one that may be None, ``*`` the post-op operands."""

    inputs: tuple[str, ...]
    attrs: dict[str, str]
    meaning: str


#: name -> (parameters, formula of y).
UNARY_POST_OPS: dict[str, tuple[tuple[str, ...], str]] = {
    "relu": ((), "max(y, 0)"),
    "clip": (("lo", "hi"), "min(max(y, lo), hi); relu6 is clip 0, 6"),
    "leaky_relu": (("alpha",), "y if y > 0 else alpha * y"),
    "elu": (("alpha",), "y if y > 0 else alpha * (exp(y) - 1)"),
    "sigmoid": ((), "1 / (1 + exp(-y))"),
    "tanh": ((), "tanh(y)"),
    "gelu": ((), "y/2 * (1 + erf(y / sqrt(2)))"),
    "gelu_tanh": ((), "y/2 * (1 + tanh(sqrt(2/pi) * (y + 0.044715 y^3)))"),
    "swish": (("beta",), "y * sigmoid(beta * y); silu is swish 1"),
    "hardswish": ((), "y * min(max(y + 3, 0), 6) / 6"),
    "hardsigmoid": (("slope", "offset"), "min(max(slope * y + offset, 0), 1)"),
    "mish": ((), "y * tanh(log(1 + exp(y)))"),
    "abs": ((), "|y|"),
    "sqrt": ((), "sqrt(y)"),
    "exp": ((), "exp(y)"),
    "square": ((), "y * y"),
    "pow": (("exponent",), "y ** exponent"),
    "log": ((), "log(y)"),
    "softplus": (("beta",), "log(1 + exp(beta * y)) / beta"),
    "linear": (("a", "b"), "a * y + b"),
}

#: name -> formula; the parameter is the index of the operand in ``node.inputs``.
BINARY_POST_OPS: dict[str, str] = {
    "add": "y + t",
    "sub": "y - t",
    "mul": "y * t",
    "div": "y / t",
    "max": "max(y, t)",
    "min": "min(y, t)",
}

_POST_OPS = "list of post-op tuples, may be empty"

FUSED_OPS: dict[str, OpSpec] = {
    "fused_conv2d": OpSpec(
        ("x", "w", "b?", "*"),
        {
            "strides": "[h, w]",
            "paddings": "[top, bottom, left, right], SAME and VALID resolved, never negative",
            "dilations": "[h, w]",
            "groups": "int; depthwise where groups == channels",
            "post_ops": _POST_OPS,
        },
        "Cross-correlation of x [N, C, H, W] with w [O, C/groups, kh, kw], plus b [O].  The "
        "window that starts bottom-most may leave padding rows unread: the output shape rules.",
    ),
    "fused_conv3d": OpSpec(
        ("x", "w", "b?", "*"),
        {
            "strides": "[d, h, w]",
            "paddings": "[front, back, top, bottom, left, right]",
            "dilations": "[d, h, w]",
            "groups": "int",
            "post_ops": _POST_OPS,
        },
        "As fused_conv2d, of x [N, C, D, H, W] with w [O, C/groups, kd, kh, kw].",
    ),
    "fused_conv2d_transpose": OpSpec(
        ("x", "w", "b?", "*"),
        {
            "strides": "[h, w]",
            "paddings": "[top, bottom, left, right], resolved so that the output shape follows; "
            "bottom and right may be negative (output padding)",
            "dilations": "[h, w]",
            "groups": "int",
            "post_ops": _POST_OPS,
        },
        "Transposed convolution of x [N, C, H, W] with w [C, O/groups, kh, kw], plus b [O].  "
        "H_out = (H - 1) * stride + (kh - 1) * dilation + 1 - top - bottom.",
    ),
    "fused_conv3d_transpose": OpSpec(
        ("x", "w", "b?", "*"),
        {
            "strides": "[d, h, w]",
            "paddings": "[front, back, top, bottom, left, right], as fused_conv2d_transpose",
            "dilations": "[d, h, w]",
            "groups": "int",
            "post_ops": _POST_OPS,
        },
        "As fused_conv2d_transpose, of x [N, C, D, H, W] with w [C, O/groups, kd, kh, kw].",
    ),
    "linear": OpSpec(
        ("x", "w", "b?", "*"),
        {"post_ops": _POST_OPS},
        "x [..., K] @ w [K, N] + b [N]; w and b are constants.",
    ),
    "fused_matmul": OpSpec(
        ("x", "y", "*"),
        {
            "transpose_x": "bool: swap the last two dimensions of x first",
            "transpose_y": "bool",
            "post_ops": _POST_OPS,
        },
        "Batched matrix product with numpy broadcasting of the batch dimensions; both operands "
        "have rank 2 or more.",
    ),
    "attention": OpSpec(
        ("q", "k", "v", "mask?"),
        {
            "scale": "float",
            "layout": "'BSHD': q, k, v and the result are [batch, seq, heads, depth]; "
            "'BHSD': [..., seq, depth] with any number of equal leading dimensions",
        },
        "softmax(scale * q k^T + mask) v over the keys, per head; mask is additive and "
        "broadcasts to [batch, heads, queries, keys] (or [..., queries, keys]).",
    ),
    "add_layer_norm": OpSpec(
        ("x", "y", "scale?", "bias?"),
        {"epsilon": "float", "begin_norm_axis": "int"},
        "s = x + y (broadcasting); outputs: (layer_norm(s), s); scale and bias are flat, of the "
        "size of the normalised dimensions.",
    ),
    "embedding_layer_norm": OpSpec(
        ("ids, table ...", "addend ...", "scale?", "bias?"),
        {"epsilon": "float", "tables": "how many pairs of ids and table come first"},
        "s = the sum of table[ids] over all pairs, plus the addends, whose rows are repeated over "
        "leading dimensions; outputs: (layer_norm(s) over the last dimension, s).",
    ),
    "fused_rms_norm": OpSpec(
        ("x", "scale?"),
        {"epsilon": "float"},
        "x / sqrt(mean(x * x) + epsilon) * scale, the mean over the last dimension; scale is flat.",
    ),
    "squeeze_excitation": OpSpec(
        ("x", "w1", "b1?", "w2", "b2?"),
        {"inner_ops": "unary post-ops", "gate_ops": "unary post-ops"},
        "x [N, C, H, W] times a gate per image and channel: g(s w2 + b2) with s = f(m w1^T + b1), "
        "m [N, C] the mean of x over its pixels, w1 and w2 [S, C], f and g the post-ops.",
    ),
    "recurrent": OpSpec(
        ("x", "w", "r", "b", "h0?", "c0?"),
        {
            "mode": "'LSTM', 'GRU', 'RNN_TANH' or 'RNN_RELU'",
            "directions": "1, or 2: both ways",
            "lengths": "optional, of LSTM and GRU: the index in inputs of the lengths [N], int32 "
            "or int64, of the sequences",
        },
        "One recurrent layer over x [T, N, I]: outputs y [T, N, D*H], the final h [D, N, H] and, "
        "for LSTM, c [D, N, H].  w [D, I, G, H] and r [D, H, G, H] are constants, gates in the "
        "order i, f, g, o (LSTM) or z, r, n (GRU); b is [D, G, H], for GRU [D, 4, H]: the fourth "
        "is added to h R_n before the reset gate is applied.  Without h0 (and c0): zeros.  The "
        "second direction reads x from the end; its part of y stands at the steps that it read.  "
        "Behind the end of a sequence y is zero and the states stay; the second direction begins "
        "at that end.",
    ),
    "fused_pool2d": OpSpec(
        ("x",),
        {
            "mode": "'max', 'avg' (divides by the number of pixels inside the image), or "
            "'avg_padded' (divides by the full window)",
            "kernel": "[h, w]",
            "strides": "[h, w]",
            "paddings": "[top, bottom, left, right]; bottom and right follow from the output "
            "shape (ceil mode included) and may be negative: rows never read",
        },
        "Pooling of x [N, C, H, W]; global and evenly dividing adaptive pooling included.",
    ),
    "fused_pool3d": OpSpec(
        ("x",),
        {
            "mode": "as fused_pool2d",
            "kernel": "[d, h, w]",
            "strides": "[d, h, w]",
            "paddings": "[front, back, top, bottom, left, right], as fused_pool2d",
        },
        "Pooling of x [N, C, D, H, W].",
    ),
    "fused_elementwise": OpSpec(
        ("x", "*"),
        {"post_ops": "list of post-op tuples, not empty"},
        "y = x, then the post-ops; x has the shape of the result.  After the pipeline every "
        "floating-point pointwise op that post-ops can express is (part of) one of these or of "
        "another op's post-ops: a lone relu is fused_elementwise(x, post_ops=[('relu',)]).",
    ),
    "reshape": OpSpec(
        ("x",),
        {"shape": "the output shape, no -1 and no 0 placeholders"},
        "Same elements in row-major order (flatten, squeeze and unsqueeze become this).",
    ),
}

#: Ops that take ``post_ops``.
TAKES_POST_OPS = (
    "fused_conv2d",
    "fused_conv3d",
    "fused_conv2d_transpose",
    "fused_conv3d_transpose",
    "linear",
    "fused_matmul",
    "fused_elementwise",
)


def is_binary(post_op: tuple[object, ...]) -> bool:
    """True when ``post_op`` reads an operand from the node's inputs."""
    return post_op[0] in BINARY_POST_OPS
