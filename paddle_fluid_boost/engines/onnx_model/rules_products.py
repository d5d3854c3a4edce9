"""Rules for products: convolution, matrix product, attention, recurrence."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Constant, Node, Value
from .conversion import Converter, Unsupported, required, writes
from .rules_pointwise import apply_post_ops


@writes("fused_conv2d", "fused_conv3d")
def convolution(model: Converter, node: Node) -> str:
    x, w, b = node.inputs[:3]
    a = node.attrs
    made = model.add(
        "Conv",
        model.name(x),
        model.name(w),
        model.optional(b),
        strides=a["strides"],
        dilations=a["dilations"],
        pads=_pads(a["paddings"]),
        group=a["groups"],
    )
    return apply_post_ops(model, made, node, node.output.dtype)


@writes("fused_conv2d_transpose", "fused_conv3d_transpose")
def transposed_convolution(model: Converter, node: Node) -> str:
    x, w, b = node.inputs[:3]
    a = node.attrs
    ends = a["paddings"][1::2]
    made = model.add(
        "ConvTranspose",
        model.name(x),
        model.name(w),
        model.optional(b),
        strides=a["strides"],
        dilations=a["dilations"],
        pads=[*a["paddings"][::2], *(max(end, 0) for end in ends)],
        output_padding=[max(-end, 0) for end in ends],
        group=a["groups"],
    )
    return apply_post_ops(model, made, node, node.output.dtype)


def _pads(sides: list[int]) -> list[int]:
    """[top, bottom, left, right] in ONNX's order: all begins, then all ends.

    A negative end means rows that no window reads; ONNX leaves those unread too.
    """
    return [*sides[::2], *(max(end, 0) for end in sides[1::2])]


@writes("fused_pool2d", "fused_pool3d")
def pool(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    a = node.attrs
    highest = a["mode"] == "max"
    if list(a["kernel"]) == list(x.shape[2:]) and not any(a["paddings"]):
        return model.add("GlobalMaxPool" if highest else "GlobalAveragePool", model.name(x))
    for axis, (kernel, stride) in enumerate(zip(a["kernel"], a["strides"])):
        begin, end = a["paddings"][2 * axis : 2 * axis + 2]
        rows = (x.shape[2 + axis] + begin + max(end, 0) - kernel) // stride + 1
        if rows != node.output.shape[2 + axis]:
            raise Unsupported("a window that ONNX would place once more")
    window = {"kernel_shape": a["kernel"], "strides": a["strides"], "pads": _pads(a["paddings"])}
    if highest:
        return model.add("MaxPool", model.name(x), **window)
    counted = int(a["mode"] == "avg_padded")
    return model.add("AveragePool", model.name(x), count_include_pad=counted, **window)


@writes("max_pool2d_with_index")
def max_pool_with_index(model: Converter, node: Node) -> str:
    """Adaptive pooling to a size that divides the image's; nobody may read the indices."""
    x = required(node.inputs[0])
    if model.is_used(node.outputs[1]):
        raise Unsupported("the indices are read")
    if not node.attrs["adaptive"]:
        raise Unsupported("not adaptive")
    window = [side // made for side, made in zip(x.shape[2:], node.output.shape[2:])]
    if any(side % made for side, made in zip(x.shape[2:], node.output.shape[2:])):
        raise Unsupported("adaptive pooling with windows of different sizes")
    return model.add("MaxPool", model.name(x), kernel_shape=window, strides=window)


@writes("linear")
def linear(model: Converter, node: Node) -> str:
    x, w, b = node.inputs[:3]
    if b is not None and len(required(x).shape) == 2:
        made = model.add("Gemm", model.name(x), model.name(w), model.name(b))
    else:
        made = model.add("MatMul", model.name(x), model.name(w))
        made = made if b is None else model.add("Add", made, model.name(b))
    return apply_post_ops(model, made, node, node.output.dtype)


@writes("fused_matmul", "matmul", "bmm")
def matmul(model: Converter, node: Node) -> str:
    x, y = (required(value) for value in node.inputs[:2])
    operands = [
        _swapped(model, value, bool(node.attrs.get(flag)))
        for value, flag in ((x, "transpose_x"), (y, "transpose_y"))
    ]
    return apply_post_ops(model, model.add("MatMul", *operands), node, node.output.dtype)


def _swapped(model: Converter, value: Value, swap: bool) -> str:
    name, rank = model.name(value), len(value.shape)
    if not swap or rank < 2:
        return name
    return model.transpose(name, [*range(rank - 2), rank - 1, rank - 2])


@writes("attention")
def attention(model: Converter, node: Node) -> str:
    """softmax(scale q k^T + mask) v, spelled out."""
    q, k, v = (required(value) for value in node.inputs[:3])
    mask = node.inputs[3]
    rank = len(q.shape)
    heads_inside = node.attrs["layout"] == "BSHD"
    query, key, value = (model.name(one) for one in (q, k, v))
    if heads_inside:
        query, value = (model.transpose(name, [0, 2, 1, 3]) for name in (query, value))
        key = model.transpose(key, [0, 2, 3, 1])
    else:
        key = model.transpose(key, [*range(rank - 2), rank - 1, rank - 2])
    scale = model.scalar(float(node.attrs["scale"]), q.dtype)
    scores = model.add("Mul", model.add("MatMul", query, key), scale)
    if mask is not None:
        scores = model.add("Add", scores, model.name(mask))
    made = model.add("MatMul", model.add("Softmax", scores, axis=rank - 1), value)
    return model.transpose(made, [0, 2, 1, 3]) if heads_inside else made


#: mode -> (ONNX's operator, our gates in its order, its activations in one direction).
_RECURRENT = {
    "LSTM": ("LSTM", [0, 3, 1, 2], ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": ("GRU", [0, 1, 2], ["Sigmoid", "Tanh"]),
    "RNN_TANH": ("RNN", [0], ["Tanh"]),
    "RNN_RELU": ("RNN", [0], ["Relu"]),
}


@writes("recurrent")
def recurrent(model: Converter, node: Node) -> list[str | None]:
    """ONNX wants [directions, gates * hidden, ...] weights and makes [T, directions, N, H]."""
    x, w, r, b = node.inputs[:4]
    weights = [value.compute() for value in (w, r, b) if isinstance(value, Constant)]
    if len(weights) != 3:
        raise Unsupported("weights that are not constants")
    if "lengths" in node.attrs:
        raise Unsupported("every sequence has a length of its own")
    op, order, activations = _RECURRENT[node.attrs["mode"]]
    directions = node.attrs["directions"]
    hidden = weights[1].shape[1]
    attributes = {
        "hidden_size": hidden,
        "direction": "bidirectional" if directions == 2 else "forward",
        "activations": activations * directions,
        **({"linear_before_reset": 1} if op == "GRU" else {}),
    }
    states = [model.optional(value) for value in node.inputs[4:]]
    inputs = [
        model.name(x),
        model.constant(_onnx_gates(weights[0], order)),
        model.constant(_onnx_gates(weights[1], order)),
        model.constant(_onnx_biases(weights[2], order, op)),
        "",
        *states,
    ]
    made = model.add_many(op, inputs, 3 if op == "LSTM" else 2, **attributes)
    steps, batch = required(x).shape[:2]
    y = model.transpose(made[0], [0, 2, 1, 3]) if directions == 2 else made[0]
    return [model.reshape(y, [steps, batch, directions * hidden]), *made[1:]]


def _onnx_gates(weight: np.ndarray, order: list[int]) -> np.ndarray:
    """[D, I, G, H] to [D, G * H, I]."""
    directions, width = weight.shape[:2]
    return weight[:, :, order].transpose(0, 2, 3, 1).reshape(directions, -1, width)


def _onnx_biases(bias: np.ndarray, order: list[int], op: str) -> np.ndarray:
    """[D, G, H] to [D, 2 * G * H]: one for each product; GRU's fourth belongs to the second."""
    directions = bias.shape[0]
    first = bias[:, order]
    second = np.zeros_like(first)
    if op == "GRU":
        second[:, 2] = bias[:, 3]
    return np.concatenate([first, second], 1).reshape(directions, -1)


@writes("squeeze_excitation")
def squeeze_excitation(model: Converter, node: Node) -> str:
    """As the pointwise convolutions it was made of, which runtimes fuse in their own layout."""
    x, w1, b1, w2, b2 = node.inputs[:5]
    dtype = required(x).dtype
    squeezed = model.add("GlobalAveragePool", model.name(x))
    inner = _pointwise(model, squeezed, w1, b1, turned=False)
    inner = apply_post_ops(model, inner, node, dtype, "inner_ops")
    gate = _pointwise(model, inner, w2, b2, turned=True)
    gate = apply_post_ops(model, gate, node, dtype, "gate_ops")
    return model.add("Mul", model.name(x), gate)


def _pointwise(model: Converter, x: str, w: Value | None, b: Value | None, turned: bool) -> str:
    if not isinstance(w, Constant):
        raise Unsupported("weights that are not constants")
    kernel = w.compute()
    kernel = (kernel.T if turned else kernel)[:, :, None, None]
    return model.add("Conv", x, model.constant(kernel), model.optional(b))
