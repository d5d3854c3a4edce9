"""A graph as an ONNX model, written without the ``onnx`` package.

What Paddle2ONNX offers was weighed: it needs a process of its own (it may abort), a second or more,
misreads attributes that Paddle stores as doubles, and sees the program before our passes.  Here a
graph that the passes have brought into one form is written in a few milliseconds; an op without a
rule is an error that names it.
"""

from . import (
    rules_pointwise,  # noqa: F401 - enters its rules in the table, as the others do
    rules_products,  # noqa: F401
    rules_reduce,  # noqa: F401
    rules_shape,  # noqa: F401
)
from .conversion import OnnxModel, convert

__all__ = ["OnnxModel", "convert"]
