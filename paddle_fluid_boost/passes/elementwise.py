"""Pointwise ops as one kind of node: ``fused_elementwise`` with post-ops.

Activations, ``scale`` and the four arithmetic operations, minimum and maximum, on floating point.
Of a binary op the operand of full shape becomes x, the other one may broadcast; ``a - x`` with
small a is ``-x + a``.  The next pass then fuses all of them by one rule.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar

from ..ir.graph import Constant, Graph, Node, Value
from ..ir.pattern import Match, op, value
from .base import PatternPass, PostOp, add_elementwise, broadcasts_to, is_float, is_static, replace

_Attrs = dict[str, Any]

#: Paddle's op -> the post-op, or post-ops, for its attributes.
_UNARY: dict[str, Callable[[_Attrs], PostOp | list[PostOp]]] = {
    "relu": lambda a: ("relu",),
    "relu6": lambda a: ("clip", 0.0, 6.0),
    "clip": lambda a: ("clip", float(a["min"]), float(a["max"])),
    "leaky_relu": lambda a: ("leaky_relu", a["negative_slope"]),
    "elu": lambda a: ("elu", a["alpha"]),
    "sigmoid": lambda a: ("sigmoid",),
    "tanh": lambda a: ("tanh",),
    "gelu": lambda a: ("gelu_tanh",) if a["approximate"] else ("gelu",),
    "silu": lambda a: ("swish", 1.0),
    "swish": lambda a: ("swish", 1.0),
    "hardswish": lambda a: ("hardswish",),
    "hardsigmoid": lambda a: ("hardsigmoid", a["slope"], a["offset"]),
    "mish": lambda a: ("mish",),
    "abs": lambda a: ("abs",),
    "sqrt": lambda a: ("sqrt",),
    "exp": lambda a: ("exp",),
    "square": lambda a: ("square",),
    "rsqrt": lambda a: _power(-0.5),
    "reciprocal": lambda a: ("pow", -1.0),
    "pow": lambda a: _power(float(a["y"])),
    "log": lambda a: ("log",),
    "softplus": lambda a: ("softplus", a["beta"]),
    "logsigmoid": lambda a: [("linear", -1.0, 0.0), ("softplus", 1.0), ("linear", -1.0, 0.0)],
    "hardtanh": lambda a: ("clip", a["t_min"], a["t_max"]),
    "selu": lambda a: [("elu", a["alpha"]), ("linear", a["scale"], 0.0)],
    "celu": lambda a: [
        ("linear", 1.0 / a["alpha"], 0.0),
        ("elu", 1.0),
        ("linear", a["alpha"], 0.0),
    ],
    "scale": lambda a: (
        ("linear", float(a["scale"]), float(a["bias"]))
        if a["bias_after_scale"]
        else ("linear", float(a["scale"]), float(a["scale"]) * float(a["bias"]))
    ),
}


def _power(exponent: float) -> PostOp | list[PostOp]:
    """Roots and squares are far quicker than powers."""
    known: dict[float, PostOp | list[PostOp]] = {
        2.0: ("square",),
        0.5: ("sqrt",),
        -0.5: [("sqrt",), ("pow", -1.0)],
    }
    return known.get(exponent, ("pow", exponent))


_BINARY = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "maximum": "max",
    "minimum": "min",
}
_COMMUTES = ("add", "multiply", "maximum", "minimum")
#: Attributes that must be plain numbers; Paddle allows tensors there.
_NUMBERS = ("min", "max", "scale", "bias", "y")
#: Paddle's softplus is the identity from here on (times beta); above, no float32 can tell.
_SOFTPLUS_THRESHOLD = 17.0


class LowerElementwise(PatternPass):
    """See the module."""

    name = "lower_elementwise"
    patterns: ClassVar = (
        op("|".join(_UNARY), value("x")),
        op("|".join(_BINARY), value("x"), value("y")),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses integers, mixed dtypes, and operands of which none has the full shape."""
        node = match.root
        values = [value for value in (*node.inputs, *node.outputs) if value is not None]
        if not all(is_float(v) and v.dtype == node.output.dtype for v in values):
            return f"{node.op} on {', '.join(sorted({v.dtype for v in values}))}"
        if not all(is_static(v) for v in values):
            return f"the shape of {node.op} depends on data"
        if node.op in _UNARY:
            known = [node.attrs.get(name, 0) for name in _NUMBERS]
            tensor = len(node.inputs) > 1 or not all(isinstance(n, (int, float)) for n in known)
            if node.op == "softplus" and node.attrs["threshold"] < _SOFTPLUS_THRESHOLD:
                return f"softplus that is cut off at {node.attrs['threshold']}"
            return f"a parameter of {node.op} is a tensor" if tensor else None
        return (
            None if _arrangement(node) else f"no operand of {node.op} has the shape of its result"
        )

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One node."""
        node = match.root
        if node.op in _UNARY:
            made = _UNARY[node.op](node.attrs)
            post_ops = made if isinstance(made, list) else [made]
            new = add_elementwise(graph, node, match["x"], post_ops)
        else:
            arranged = _arrangement(node)
            assert arranged is not None
            x, post_ops, operand = arranged
            new = add_elementwise(graph, node, x, post_ops, [operand])
        replace(graph, match, new)


def _arrangement(node: Node) -> tuple[Value, list[PostOp], Value] | None:
    """(x, post-ops, operand) of a binary op, x of full shape and, if possible, not constant."""
    first, second = node.inputs[:2]
    assert first is not None and second is not None
    shape = node.output.shape
    plain: list[PostOp] = [(_BINARY[node.op], 1)]
    usable = [
        v.shape == shape and broadcasts_to(w, shape)
        for v, w in (
            (first, second),
            (second, first),
        )
    ]
    commutes = node.op in _COMMUTES
    if usable[0] and not (commutes and usable[1] and isinstance(first, Constant)):
        return first, plain, second
    if usable[1] and commutes:
        return second, plain, first
    if usable[1] and node.op == "subtract":
        return second, [("linear", -1.0, 0.0), ("add", 1)], first
    return None
