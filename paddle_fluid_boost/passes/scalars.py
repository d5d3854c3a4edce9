"""Arithmetic with numbers in one form: ``scale(x) = a * x + b``.

``x + c``, ``x - c``, ``c - x``, ``x * c`` and ``x / c`` with a literal number c become ``scale``,
and ``scale(scale(x))`` becomes one: a2 (a1 x + b1) + b2 = (a2 a1) x + (a2 b1 + b2).  Powers 2 and
0.5 become ``square`` and ``sqrt``, other numbers ``pow``, and ``max(x, 0)`` ``relu``.  Later passes
then know a single spelling.  Only on floating point, and only where the result has the shape and
dtype of x.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..ir.graph import Constant, Graph, Node
from ..ir.pattern import Match, constant, op, value
from .base import PatternPass, is_float, replace, scalar


def _is_number(value: Constant) -> bool:
    return scalar(value) is not None


def _scale_is_known(node: Node) -> bool:
    numbers = (node.attrs.get("scale"), node.attrs.get("bias"))
    return all(isinstance(number, (int, float)) for number in numbers)


_NUMBER = constant("c", _is_number)
_SCALE = op("scale", value("x"), name="first", where=_scale_is_known)


class UnifyScalarArithmetic(PatternPass):
    """See the module."""

    name = "unify_scalar_arithmetic"
    patterns: ClassVar = (
        op("add|multiply|maximum", value("x"), _NUMBER, commutative=True),
        op("subtract|divide|elementwise_pow", value("x"), _NUMBER),
        op("subtract", _NUMBER, value("x"), name="reversed"),
        op("pow", value("x"), where=lambda node: node.attrs.get("y") in (2, 0.5)),
        op("scale", value("x"), where=lambda n: _scale_is_known(n) and not _after(n)),
        op("scale", _SCALE, name="second", where=_scale_is_known),
    )

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses integers, results of another type than x, and ``max`` with other than 0."""
        x, output = match["x"], match.root.output
        if match.root.op == "maximum" and scalar(match["c"]) != 0.0:
            return "maximum with a number other than 0"
        if isinstance(x, Constant):
            return "both operands are constants"
        if not is_float(x):
            return f"arithmetic on {x.dtype}"
        if (x.shape, x.dtype) != (output.shape, output.dtype):
            return f"{match.root.op} with a number changes the type of its operand"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The canonical op in place of the matched ones."""
        name, attrs = _canonical(match)
        output = match.root.output
        new = graph.add(
            name, [match["x"]], attrs, shape=output.shape, dtype=output.dtype, before=match.root
        )
        replace(graph, match, new)


def _after(node: Node) -> bool:
    return bool(node.attrs["bias_after_scale"])


def _affine(node: Node) -> tuple[float, float]:
    """(a, b) of a ``scale`` node, whichever comes first in it."""
    a, b = float(node.attrs["scale"]), float(node.attrs["bias"])
    return (a, b) if _after(node) else (a, a * b)


def _canonical(match: Match) -> tuple[str, dict[str, Any]]:
    node = match.root
    if node.op == "maximum":
        return "relu", {}
    if node.op == "pow":
        return ("square" if node.attrs["y"] == 2 else "sqrt"), {}
    if node.op == "scale":
        a, b = _affine(node)
        if "first" in match.nodes:
            a1, b1 = _affine(match.node("first"))
            a, b = a * a1, a * b1 + b
        return "scale", {"scale": a, "bias": b, "bias_after_scale": True}
    c = scalar(match["c"])
    assert c is not None
    if node.op == "elementwise_pow":
        return "pow", {"y": c}
    if node.op == "add":
        a, b = 1.0, c
    elif node.op == "subtract":
        a, b = (-1.0, c) if "reversed" in match.nodes else (1.0, -c)
    else:
        a, b = (c, 0.0) if node.op == "multiply" else (1.0 / c, 0.0)
    return "scale", {"scale": a, "bias": b, "bias_after_scale": True}
