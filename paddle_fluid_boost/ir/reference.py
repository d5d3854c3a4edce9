"""Runs any graph, op by op, through eager Paddle: what every op *means*, in executable form.

Slow and simple on purpose.  Tests compare passes and engines with it; engines use
:func:`host_call` for the ops that they do not implement themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..errors import EngineError
from . import _paddle
from .graph import Constant, Graph, Node, Value
from .ops import BINARY_POST_OPS
from .reference_recurrent import recurrent

Tensor = Any


def run(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of ``graph`` for eager tensors ``inputs``, in order.

    Raises EngineError when the number of inputs is wrong, ValueError when a shape is.
    """
    if len(inputs) != len(graph.inputs):
        raise EngineError(f"the graph needs {len(graph.inputs)} inputs, got {len(inputs)}")
    for value, tensor in zip(graph.inputs, inputs):
        if -1 not in value.shape and tuple(tensor.shape) != value.shape:
            raise ValueError(f"input {value.name}: needs {value.shape}, got {tuple(tensor.shape)}")
    with paddle.no_grad():
        return _run(graph, inputs)


def _run(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    env: dict[Value, Tensor] = dict(zip(graph.inputs, inputs))
    for constant in graph.constants:
        env[constant] = constant_tensor(constant)
    for node in graph.nodes:
        results = host_call(node, [None if v is None else env[v] for v in node.inputs])
        env.update(zip(node.outputs, results))
    return [env[value] for value in graph.outputs]


def constant_tensor(constant: Constant) -> Tensor:
    """``constant`` as an eager tensor: the live parameter itself where it is one."""
    if constant.tensor is not None:
        return constant.tensor.detach()
    return tensor_of(constant.compute())


def tensor_of(array: np.ndarray) -> Tensor:
    """An eager CPU tensor with a copy of ``array``."""
    return _paddle.to_tensor(array)


def array_of(tensor: Tensor) -> np.ndarray:
    """The content of an eager tensor; bfloat16 as uint16 bits."""
    return tensor.numpy()


def host_call(node: Node, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Runs one node on eager tensors.

    Args:
        tensors: parallel to ``node.inputs``, None where that is None.

    Returns:
        Parallel to ``node.outputs``; None for an output that eager does not return (such as the
        saved mean of a layer norm).  Results may be views of the arguments.

    Raises:
        EngineError: Paddle has no eager function of that name, or an attribute is missing.
    """
    special = _SPECIAL.get(node.op)
    if special is not None:
        return special(node, tensors)
    return _eager_call(node, tensors)


# -- Paddle's own ops --------------------------------------------------------------------------


def _eager_call(node: Node, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    if not _paddle.has_eager(node.op):
        raise EngineError(f"Paddle has no eager function for op '{node.op}'")
    formals = _paddle.formals(node.op)
    groups = node.input_groups
    if not groups and formals is not None:
        groups = tuple((formal.name, None) for formal in formals[: len(tensors)])
    operands = _grouped(groups, tensors)
    if formals is None:
        arguments = [*operands.values(), *node.attrs.values()]
    else:
        arguments = [_argument(node, formal, operands) for formal in formals]
    return _flattened(node, _paddle.eager(node.op)(*arguments))


def _argument(node: Node, formal: _paddle.Formal, operands: dict[str, Any]) -> Any:
    if formal.name in operands:
        tensor = operands[formal.name]
        # A non-const reference is written to: the graph's values are never.
        return tensor.clone() if formal.type == "Tensor&" else tensor
    if formal.name in node.attrs:
        value = node.attrs[formal.name]
        return _paddle.dtype_of(value) if formal.type == "DataType" else value
    if formal.type.endswith("Place&"):
        return _paddle.default_place()
    raise EngineError(f"op '{node.op}' has no attribute '{formal.name}'")


def _grouped(
    groups: Sequence[tuple[str, int | None]], tensors: Sequence[Tensor | None]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    position = 0
    for name, length in groups or [(f"arg{i}", None) for i in range(len(tensors))]:
        if length is None:
            found[name] = tensors[position]
        else:
            found[name] = list(tensors[position : position + length])
        position += 1 if length is None else length
    return found


def _flattened(node: Node, returned: Any) -> list[Tensor | None]:
    """What eager returned, as one entry per output; outputs it left out come last and are None."""
    groups = node.output_groups or [("out", None)] * len(node.outputs)
    if len(groups) == 1:
        returned = (returned,)
    elif not isinstance(returned, tuple):
        returned = tuple(returned) if isinstance(returned, list) else (returned,)
    results: list[Tensor | None] = []
    for (_, length), result in zip(groups, returned):
        if length is None:
            results.append(result)
        elif length:
            results.extend(result if isinstance(result, (list, tuple)) else [result])
    return results + [None] * (len(node.outputs) - len(results))


# Paddle 3.3 maps the arguments of these by hand-written code that follows the public function, not
# the op, and aborts the process when it meets the op's: so the public function is called.


def _argmax(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    a = node.attrs
    axis = None if a["flatten"] else a["axis"]
    public = paddle.argmax if node.op == "argmax" else paddle.argmin
    return [public(tensors[0], axis, a["keepdims"], a["dtype"])]


def _sum(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    a = node.attrs
    dtype = None if a["dtype"] == "undefined" else a["dtype"]
    return [paddle.sum(tensors[0], a["axis"] or None, dtype, a["keepdim"])]


def _gelu(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    return [F.gelu(tensors[0], node.attrs["approximate"])]


# -- control flow --------------------------------------------------------------------------------


def _if(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    given = _grouped(node.input_groups, tensors)
    taken = 0 if bool(given["cond"]) else 1
    return list(_run(node.regions[taken], given["then" if taken == 0 else "else"]))


def _while(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    given = _grouped(node.input_groups, tensors)
    condition, state = given["cond"], given["state"]
    while bool(condition):
        condition, *state = _run(node.regions[0], [*state, *given["captured"]])
    return list(state)


# -- fused ops -------------------------------------------------------------------------------------


def apply_post_ops(
    y: Tensor, node: Node, tensors: Sequence[Tensor], attribute: str = "post_ops"
) -> Tensor:
    """``y`` after the node's post-ops; ``tensors`` parallel to the node's inputs."""
    for name, *parameters in node.attrs.get(attribute, ()):
        if name in BINARY_POST_OPS:
            y = _BINARY[name](y, tensors[parameters[0]])
        else:
            y = _UNARY[name](y, *parameters)
    return y


_UNARY: dict[str, Any] = {
    "relu": F.relu,
    "clip": lambda y, lo, hi: paddle.clip(y, lo, hi),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "sigmoid": F.sigmoid,
    "tanh": paddle.tanh,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate=True),
    "swish": lambda y, beta: y * F.sigmoid(beta * y),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "abs": paddle.abs,
    "sqrt": paddle.sqrt,
    "exp": paddle.exp,
    "square": paddle.square,
    "pow": paddle.pow,
    "log": paddle.log,
    "softplus": lambda y, beta: F.softplus(y, beta, threshold=60.0),
    "linear": lambda y, a, b: y * a + b,
}

_BINARY: dict[str, Any] = {
    "add": paddle.add,
    "sub": paddle.subtract,
    "mul": paddle.multiply,
    "div": paddle.divide,
    "max": paddle.maximum,
    "min": paddle.minimum,
}


def _convolution(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    x, w, b = tensors[:3]
    a = node.attrs
    convolve = F.conv3d if node.op == "fused_conv3d" else F.conv2d
    y = convolve(x, w, b, a["strides"], a["paddings"], a["dilations"], a["groups"])
    return [apply_post_ops(y, node, tensors)]


def _transposed_convolution(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    x, w, b = tensors[:3]
    a = node.attrs
    axes = len(a["strides"])
    convolve = F.conv3d_transpose if axes == 3 else F.conv2d_transpose
    y = convolve(x, w, None, a["strides"], 0, groups=a["groups"], dilation=a["dilations"])
    y = _pad(y, [-side for side in a["paddings"]], 0.0)
    if b is not None:
        y = y + b.reshape([1, -1, *[1] * axes])
    return [apply_post_ops(y, node, tensors)]


def _pad(x: Tensor, sides: Sequence[int], value: float) -> Tensor:
    """``x`` [N, C, ...] with two sides per axis added; negative sides are cut off."""
    pairs = list(zip(sides[::2], sides[1::2]))
    for axis, (begin, end) in enumerate(pairs, start=2):
        x = x.slice([axis], [max(-begin, 0)], [x.shape[axis] + min(end, 0)])
    added = [max(side, 0) for pair in reversed(pairs) for side in pair]
    layout = "NCDHW" if len(pairs) == 3 else "NCHW"
    return F.pad(x, added, value=value, data_format=layout) if any(added) else x


def _pool(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    x = tensors[0]
    a = node.attrs
    kernel, strides, paddings = a["kernel"], a["strides"], a["paddings"]
    volume = len(kernel) == 3
    if a["mode"] == "max":
        pool = F.max_pool3d if volume else F.max_pool2d
        return [pool(_pad(x, paddings, -math.inf), kernel, strides)]
    pool = F.avg_pool3d if volume else F.avg_pool2d
    y = pool(_pad(x, paddings, 0.0), kernel, strides)
    if a["mode"] == "avg":
        inside = _pad(paddle.ones([1, 1, *x.shape[2:]], x.dtype), paddings, 0.0)
        y = y / pool(inside, kernel, strides)
    return [y]


def _linear(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    x, w, b = tensors[:3]
    y = paddle.matmul(x, w)
    if b is not None:
        y = y + b
    return [apply_post_ops(y, node, tensors)]


def _matmul(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    a = node.attrs
    y = paddle.matmul(tensors[0], tensors[1], a["transpose_x"], a["transpose_y"])
    return [apply_post_ops(y, node, tensors)]


def _attention(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    q, k, v, mask = tensors[:4]
    heads_inside = node.attrs["layout"] == "BSHD"
    if heads_inside:
        q, k, v = (paddle.transpose(t, [0, 2, 1, 3]) for t in (q, k, v))
    scores = paddle.matmul(q * node.attrs["scale"], k, transpose_y=True)
    if mask is not None:
        scores = scores + mask
    y = paddle.matmul(F.softmax(scores), v)
    return [paddle.transpose(y, [0, 2, 1, 3]) if heads_inside else y]


def _add_layer_norm(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    x, y, scale, bias = tensors[:4]
    total = x + y
    shape = total.shape[node.attrs["begin_norm_axis"] :]
    scale, bias = (None if t is None else t.reshape(shape) for t in (scale, bias))
    return [F.layer_norm(total, shape, scale, bias, node.attrs["epsilon"]), total]


def _embedding_layer_norm(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    count = 2 * node.attrs["tables"]
    lookups, addends = tensors[:count], tensors[count:-2]
    total = sum(F.embedding(ids, table) for ids, table in zip(lookups[::2], lookups[1::2]))
    for addend in addends:
        total = total + addend
    scale, bias = tensors[-2:]
    return [F.layer_norm(total, total.shape[-1:], scale, bias, node.attrs["epsilon"]), total]


def _rms_norm(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    x, scale = tensors[:2]
    y = x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + node.attrs["epsilon"])
    return [y if scale is None else y * scale]


def _squeeze_excitation(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    x, w1, b1, w2, b2 = tensors[:5]
    squeezed = paddle.matmul(x.mean([2, 3]), w1, transpose_y=True)
    squeezed = squeezed if b1 is None else squeezed + b1
    gate = paddle.matmul(apply_post_ops(squeezed, node, tensors, "inner_ops"), w2)
    gate = gate if b2 is None else gate + b2
    return [x * apply_post_ops(gate, node, tensors, "gate_ops").unsqueeze([2, 3])]


def _elementwise(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    return [apply_post_ops(tensors[0], node, tensors)]


def _reshape(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    shape = node.attrs.get("shape")
    if not isinstance(shape, list):
        return _eager_call(node, tensors)
    return [paddle.reshape(tensors[0], shape)]


_SPECIAL: dict[str, Any] = {
    "argmax": _argmax,
    "argmin": _argmax,
    "sum": _sum,
    "gelu": _gelu,
    "if": _if,
    "while": _while,
    "fused_conv2d": _convolution,
    "fused_conv3d": _convolution,
    "fused_conv2d_transpose": _transposed_convolution,
    "fused_conv3d_transpose": _transposed_convolution,
    "fused_pool2d": _pool,
    "fused_pool3d": _pool,
    "linear": _linear,
    "fused_matmul": _matmul,
    "attention": _attention,
    "add_layer_norm": _add_layer_norm,
    "embedding_layer_norm": _embedding_layer_norm,
    "fused_rms_norm": _rms_norm,
    "recurrent": recurrent,
    "squeeze_excitation": _squeeze_excitation,
    "fused_elementwise": _elementwise,
    "reshape": _reshape,
}
