"""Rules for pointwise ops: post-ops, and Paddle's own where no post-op expresses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...ir.graph import Node, Value
from .conversion import Converter, Unsupported, required, writes
from .wire import ELEMENT_TYPE

#: (converter, name of y, dtype, parameters) -> name of the result.
_Writer = Callable[..., str]


def apply_post_ops(
    model: Converter, y: str, node: Node, dtype: str, attribute: str = "post_ops"
) -> str:
    """``y`` after the node's post-ops."""
    for name, *parameters in node.attrs.get(attribute, ()):
        if name in _BINARY:
            y = model.add(_BINARY[name], y, model.name(node.inputs[parameters[0]]))
        else:
            y = _UNARY[name](model, y, dtype, *parameters)
    return y


_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min"}


def _plain(op: str) -> _Writer:
    return lambda model, y, dtype: model.add(op, y)


def _clip(model: Converter, y: str, dtype: str, low: float, high: float) -> str:
    if low == 0 and high == math.inf:
        return model.add("Relu", y)
    return model.add("Clip", y, model.scalar(low, dtype), model.scalar(high, dtype))


def _gelu(model: Converter, y: str, dtype: str) -> str:
    """In the spelling that runtimes recognise."""
    inner = model.add("Div", y, model.scalar(math.sqrt(2.0), dtype))
    curve = model.add("Add", model.add("Erf", inner), model.scalar(1.0, dtype))
    return model.add("Mul", model.add("Mul", y, curve), model.scalar(0.5, dtype))


def _gelu_tanh(model: Converter, y: str, dtype: str) -> str:
    cube = model.add("Pow", y, model.scalar(3.0, dtype))
    inner = model.add("Add", y, model.add("Mul", cube, model.scalar(0.044715, dtype)))
    scaled = model.add("Mul", inner, model.scalar(math.sqrt(2.0 / math.pi), dtype))
    curve = model.add("Add", model.add("Tanh", scaled), model.scalar(1.0, dtype))
    return model.add("Mul", model.add("Mul", y, model.scalar(0.5, dtype)), curve)


def _swish(model: Converter, y: str, dtype: str, beta: float) -> str:
    inner = y if beta == 1 else model.add("Mul", y, model.scalar(beta, dtype))
    return model.add("Mul", y, model.add("Sigmoid", inner))


def _softplus(model: Converter, y: str, dtype: str, beta: float) -> str:
    if beta == 1:
        return model.add("Softplus", y)
    inner = model.add("Softplus", model.add("Mul", y, model.scalar(beta, dtype)))
    return model.add("Div", inner, model.scalar(beta, dtype))


def _pow(model: Converter, y: str, dtype: str, exponent: float) -> str:
    if exponent == -1:
        return model.add("Reciprocal", y)
    return model.add("Pow", y, model.scalar(exponent, dtype))


def _linear(model: Converter, y: str, dtype: str, a: float, b: float) -> str:
    y = y if a == 1 else model.add("Mul", y, model.scalar(a, dtype))
    return y if b == 0 else model.add("Add", y, model.scalar(b, dtype))


_UNARY: dict[str, _Writer] = {
    "relu": _plain("Relu"),
    "clip": _clip,
    "leaky_relu": lambda m, y, dtype, alpha: m.add("LeakyRelu", y, alpha=float(alpha)),
    "elu": lambda m, y, dtype, alpha: m.add("Elu", y, alpha=float(alpha)),
    "sigmoid": _plain("Sigmoid"),
    "tanh": _plain("Tanh"),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "swish": _swish,
    "hardswish": _plain("HardSwish"),
    "hardsigmoid": lambda m, y, dtype, slope, offset: m.add(
        "HardSigmoid", y, alpha=float(slope), beta=float(offset)
    ),
    "mish": lambda m, y, dtype: m.add("Mul", y, m.add("Tanh", m.add("Softplus", y))),
    "abs": _plain("Abs"),
    "sqrt": _plain("Sqrt"),
    "exp": _plain("Exp"),
    "square": lambda m, y, dtype: m.add("Mul", y, y),
    "pow": _pow,
    "log": _plain("Log"),
    "softplus": _softplus,
    "linear": _linear,
}


@writes("fused_elementwise")
def elementwise(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    return apply_post_ops(model, model.name(x), node, x.dtype)


#: Paddle's op -> ONNX's of the same meaning.
_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "asin": "Asin",
    "atan": "Atan",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "log": "Log",
    "logical_not": "Not",
    "relu": "Relu",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softsign": "Softsign",
    "tan": "Tan",
}


@writes(*_SAME)
def unary(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    name = model.name(x)
    if node.op == "logical_not":
        name = as_type(model, name, x.dtype, "bool")
    return model.add(_SAME[node.op], name)


#: Paddle's op -> (ONNX's, whether it is for truth values).
_PAIRS = {
    "add": ("Add", False),
    "subtract": ("Sub", False),
    "multiply": ("Mul", False),
    "maximum": ("Max", False),
    "minimum": ("Min", False),
    "elementwise_pow": ("Pow", False),
    "equal": ("Equal", False),
    "less_than": ("Less", False),
    "less_equal": ("LessOrEqual", False),
    "greater_than": ("Greater", False),
    "greater_equal": ("GreaterOrEqual", False),
    "logical_and": ("And", True),
    "logical_or": ("Or", True),
    "logical_xor": ("Xor", True),
}


@writes(*_PAIRS, "not_equal")
def binary(model: Converter, node: Node) -> str:
    op, of_truth = _PAIRS["equal" if node.op == "not_equal" else node.op]
    left, right = _pair(model, node, "bool" if of_truth else None)
    made = model.add(op, left, right)
    return model.add("Not", made) if node.op == "not_equal" else made


@writes("divide")
def divide(model: Converter, node: Node) -> str:
    if not node.output.dtype.startswith("float"):
        raise Unsupported("a division of integers")
    return model.add("Div", *_pair(model, node))


@writes("remainder")
def remainder(model: Converter, node: Node) -> str:
    if not node.output.dtype.startswith("int"):
        raise Unsupported("a remainder of floats")
    return model.add("Mod", *_pair(model, node))


def _pair(model: Converter, node: Node, dtype: str | None = None) -> tuple[str, str]:
    x, y = (required(value) for value in node.inputs[:2])
    if node.attrs.get("axis", -1) != -1:
        raise Unsupported("an operand aligned elsewhere than at the end")
    if dtype is None and x.dtype != y.dtype:
        raise Unsupported(f"operands of {x.dtype} and {y.dtype}")
    left, right = model.name(x), model.name(y)
    if dtype is not None:
        left, right = as_type(model, left, x.dtype, dtype), as_type(model, right, y.dtype, dtype)
    return left, right


@writes("scale")
def scale(model: Converter, node: Node) -> str:
    """Of integers; those of floats are post-ops."""
    x = required(node.inputs[0])
    a, b = (node.attrs[name] for name in ("scale", "bias"))
    if not all(isinstance(number, (int, float)) and number == int(number) for number in (a, b)):
        raise Unsupported("integers times a fraction")
    a, b = int(a), int(b)
    b = b if node.attrs["bias_after_scale"] else a * b
    return _linear(model, model.name(x), x.dtype, a, b)


@writes("cast")
def cast(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    return as_type(model, model.name(x), x.dtype, node.output.dtype)


def as_type(model: Converter, name: str, have: str, want: str) -> str:
    """``name``, of dtype ``have``, as ``want``."""
    return name if have == want else model.add("Cast", name, to=ELEMENT_TYPE[want])


@writes("where")
def where(model: Converter, node: Node) -> str:
    return model.add("Where", *(model.name(value) for value in node.inputs[:3]))


@writes("isfinite")
def isfinite(model: Converter, node: Node) -> str:
    x = model.name(node.inputs[0])
    return model.add("Not", model.add("Or", model.add("IsNaN", x), model.add("IsInf", x)))


@writes("log2", "log10", "log1p")
def logarithm(model: Converter, node: Node) -> str:
    x = required(node.inputs[0])
    if node.op == "log1p":
        shifted = model.add("Add", model.name(x), model.scalar(1.0, x.dtype))
        return model.add("Log", shifted)
    base = math.log(2.0 if node.op == "log2" else 10.0)
    return model.add("Div", model.add("Log", model.name(x)), model.scalar(base, x.dtype))


@writes("swiglu")
def swiglu(model: Converter, node: Node) -> str:
    """silu(x) * y; without y, x holds both side by side."""
    x, y = required(node.inputs[0]), node.inputs[1]
    gate = model.name(x)
    if y is None:
        gate, other = model.add_many("Split", [gate], 2, axis=len(x.shape) - 1, num_outputs=2)
    else:
        other = model.name(y)
    return model.add("Mul", _swish(model, gate, x.dtype, 1.0), other)


@writes("prelu")
def prelu(model: Converter, node: Node) -> str:
    x, slopes = (required(value) for value in node.inputs[:2])
    if node.attrs["data_format"] != "NCHW" or node.attrs["mode"] not in ("all", "channel"):
        raise Unsupported(f"{node.attrs['mode']} slopes, {node.attrs['data_format']}")
    shape = [slopes.size] + [1] * (len(x.shape) - 2)
    return model.add("PRelu", model.name(x), model.reshape(model.name(slopes), shape))


def same_type(values: list[Value]) -> None:
    """Refuses operands of different dtypes."""
    if len({value.dtype for value in values}) > 1:
        raise Unsupported("operands of different dtypes")


def plain_number(node: Node, name: str) -> Any:
    """A number attribute that is known at compile time."""
    value = node.attrs.get(name)
    if not isinstance(value, (int, float, bool)):
        raise Unsupported(f"attribute '{name}' is not known at compile time")
    return value
