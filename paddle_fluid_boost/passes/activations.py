"""Recognises activations written out by hand.

* gelu:        x/2 * (1 + erf(x / sqrt 2)), and with tanh(sqrt(2/pi) (x + 0.044715 x^3)) for erf
* silu, swish: x * sigmoid(beta x)
* hardsigmoid: clip(slope x + offset, 0, 1), relu6(x + 3) / 6
* hardswish:   x * hardsigmoid(x, 1/6, 1/2)
* mish:        x * tanh(softplus(x))

Runs after ``unify_scalar_arithmetic``, which brought all factors and summands into ``scale``; each
formula still has several spellings, depending on where its author put the factors.
"""

from __future__ import annotations

import math
from typing import Callable, ClassVar

from ..ir.graph import Graph, Node
from ..ir.pattern import Match, OpPattern, Pattern, op, value
from .base import PatternPass, PostOp, add_elementwise, is_float, replace

_X = value("x")


def _times(a: float, x: Pattern, name: str = "") -> OpPattern:
    return op("scale", x, name=name, scale=a, bias=0.0)


def _gate_spellings(half_gate: Pattern, one_gate: Pattern) -> list[OpPattern]:
    """x * gate with gate = (1 + f)/2: the factor 1/2 may sit in any of three places."""
    return [
        op("multiply", _X, half_gate, commutative=True),
        op("multiply", _times(0.5, _X), one_gate, commutative=True),
        _times(0.5, op("multiply", _X, one_gate, commutative=True)),
    ]


def _gelu(f: Pattern) -> list[OpPattern]:
    return _gate_spellings(op("scale", f, scale=0.5, bias=0.5), op("scale", f, scale=1.0, bias=1.0))


_PART = 0.044715
_CUBE_SPELLINGS: list[Pattern] = [
    _times(_PART, op("pow", _X, y=3.0)),
    _times(_PART, op("multiply", op("square", _X), _X, commutative=True)),
    _times(_PART, op("multiply", op("multiply", _X, _X), _X, commutative=True)),
    op(
        "multiply",
        op("multiply", _times(_PART, _X), _X, commutative=True),
        _X,
        commutative=True,
    ),
]
_TANH_SPELLINGS = [
    op(
        "tanh",
        _times(math.sqrt(2 / math.pi), op("add", _X, cube, commutative=True)),
    )
    for cube in _CUBE_SPELLINGS
]
_ERF = op("erf", _times(math.sqrt(0.5), _X))
_SIXTH = 1.0 / 6.0


def _clips_to(lo: float, hi: float) -> Callable[[Node], bool]:
    def clips(node: Node) -> bool:
        if node.op == "relu6":
            return (lo, hi) == (0.0, 6.0)
        return (node.attrs.get("min"), node.attrs.get("max")) == (lo, hi)

    return clips


_SHIFTED_RELU6 = op("relu6|clip", op("scale", _X, scale=1.0, bias=3.0), where=_clips_to(0.0, 6.0))
_BETA_X = op("scale", _X, name="beta", bias=0.0)
_HARDSIGMOID = op("hardsigmoid", _X, slope=1.0 / 6.0, offset=0.5)

#: (what it is, spellings).
_SPELLINGS: list[tuple[str, list[OpPattern]]] = [
    ("gelu", _gelu(_ERF)),
    ("gelu_tanh", [p for f in _TANH_SPELLINGS for p in _gelu(f)]),
    (
        "swish",
        [
            op("multiply", _X, op("sigmoid", _X), commutative=True),
            op("multiply", _X, op("sigmoid", _BETA_X), commutative=True),
        ],
    ),
    (
        "hardswish",
        [
            _times(_SIXTH, op("multiply", _X, _SHIFTED_RELU6, commutative=True)),
            op("multiply", _X, _times(_SIXTH, _SHIFTED_RELU6), commutative=True),
            op("multiply", _times(_SIXTH, _X), _SHIFTED_RELU6, commutative=True),
            op("multiply", _X, _HARDSIGMOID, commutative=True),
        ],
    ),
    (
        "hardsigmoid",
        [
            _times(_SIXTH, _SHIFTED_RELU6),
            op("clip", op("scale", _X, name="inner"), where=_clips_to(0.0, 1.0)),
        ],
    ),
    (
        "mish",
        [op("multiply", _X, op("tanh", op("softplus", _X, beta=1.0)), commutative=True)],
    ),
]


class RecogniseActivations(PatternPass):
    """See the module."""

    name = "recognise_activations"
    latest_first = True
    patterns: ClassVar = tuple(p for _, spellings in _SPELLINGS for p in spellings)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses integers."""
        return None if is_float(match["x"]) else f"activation on {match['x'].dtype}"

    def rewrite(self, graph: Graph, match: Match) -> None:
        """One pointwise node."""
        replace(graph, match, add_elementwise(graph, match.root, match["x"], [_post_op(match)]))


def _post_op(match: Match) -> PostOp:
    kind = next(name for name, spellings in _SPELLINGS if match.pattern in spellings)
    if kind == "swish":
        beta = match.nodes.get("beta")
        return "swish", 1.0 if beta is None else beta.attrs["scale"]
    if kind == "hardsigmoid":
        inner = match.nodes.get("inner")
        if inner is None:
            return "hardsigmoid", _SIXTH, 0.5
        return "hardsigmoid", inner.attrs["scale"], inner.attrs["bias"]
    return (kind,)
