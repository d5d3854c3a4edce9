"""Exact rewrites of what Paddle2ONNX 2.1 refuses, crashes on or gets wrong.

Each file holds one family; ``table.py`` is the table and the walk.
"""

from . import activations, elementwise, layout, pooling, recurrent, reduce, resize, set_value
from .table import RULES, Refused, rewrite_program

__all__ = [
    "RULES",
    "Refused",
    "activations",
    "elementwise",
    "layout",
    "pooling",
    "recurrent",
    "reduce",
    "resize",
    "rewrite_program",
    "set_value",
]
