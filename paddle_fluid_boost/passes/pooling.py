"""Pooling in one form, with window and padding resolved.

Global pooling is pooling with a window of the whole image.  Adaptive pooling to ``n`` rows is
pooling with window and stride ``in / n`` where that divides; where it does not, windows differ in
size and the op stays.  With ``ceil_mode`` the last window may hang over: the bottom padding is what
the output shape needs.  Averages divide by the pixels inside (``exclusive``) or by the window.
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Graph, Node
from ..ir.pattern import Match, op, value
from .base import PatternPass, is_float, is_static, replace
from .convolution import resolve_paddings


class LowerPooling(PatternPass):
    """See the module."""

    name = "lower_pooling"
    patterns: ClassVar = (op("pool2d|pool3d", value("x")), op("mean", value("x")))

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses what has no single window, and layouts other than NCHW."""
        node, x = match.root, match["x"]
        if node.op == "mean":
            return _mean_refusal(node)
        if node.attrs["data_format"] not in ("NCHW", "NCDHW"):
            return f"{node.op} in layout {node.attrs['data_format']}"
        if not is_float(x) or not is_static(x) or not is_static(node.output) or 0 in x.shape:
            return f"{node.op} on {x!r}"
        if not isinstance(node.attrs.get("kernel_size"), list):
            return f"the window of {node.op} is a tensor"
        if node.attrs["adaptive"] and not _divides(node):
            return "adaptive pooling with windows of different sizes"
        if _mode(node) == "avg_padded" and node.attrs["ceil_mode"]:
            return "average over padding with ceil_mode, which shrinks the last window"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The fused op; a mean over rows and columns is global average pooling.

        A window of one pixel (adaptive pooling to the size there is) returns its input.
        """
        node, x = match.root, match["x"]
        kernel, strides, paddings = _geometry(node)
        if set(kernel) == {1} and node.output.shape == x.shape and not any(paddings):
            replace(graph, match, x)
            return
        attrs = {
            "mode": "avg" if node.op == "mean" else _mode(node),
            "kernel": kernel,
            "strides": strides,
            "paddings": paddings,
        }
        output = node.output
        shape = (*x.shape[:2], 1, 1) if node.op == "mean" else output.shape
        name = "fused_pool3d" if node.op == "pool3d" else "fused_pool2d"
        new = graph.add(name, [x], attrs, shape=shape, dtype=x.dtype, before=node)
        if new.shape != output.shape:
            attrs = {"shape": list(output.shape)}
            new = graph.add("reshape", [new], attrs, shape=output.shape, dtype=x.dtype, before=node)
        replace(graph, match, new)


def _mean_refusal(node: Node) -> str | None:
    x, axis = node.inputs[0], node.attrs.get("axis")
    assert x is not None
    if x.rank != 4 or not isinstance(axis, list) or sorted(a % 4 for a in axis) != [2, 3]:
        return "mean over other dimensions than rows and columns"
    return None if is_float(x) and is_static(x) and 0 not in x.shape else f"mean on {x!r}"


def _mode(node: Node) -> str:
    if node.attrs["pooling_type"] == "max":
        return "max"
    whole = node.attrs["adaptive"] or node.attrs["global_pooling"]
    return "avg" if node.attrs["exclusive"] or whole else "avg_padded"


def _divides(node: Node) -> bool:
    x = node.inputs[0]
    assert x is not None
    return all(size % made == 0 for size, made in zip(x.shape[2:], node.output.shape[2:]))


def _geometry(node: Node) -> tuple[list[int], list[int], list[int]]:
    """(kernel, strides, paddings)."""
    x = node.inputs[0]
    assert x is not None
    image, made = list(x.shape[2:]), node.output.shape[2:]
    if node.op == "mean" or node.attrs["global_pooling"]:
        return image, [1] * len(image), [0] * (2 * len(image))
    if node.attrs["adaptive"]:
        window = [size // count for size, count in zip(image, made)]
        return window, list(window), [0] * (2 * len(window))
    kernel, strides = list(node.attrs["kernel_size"]), list(node.attrs["strides"])
    if len(kernel) == 1:
        kernel = kernel * len(image)
    sides = resolve_paddings(
        node.attrs["padding_algorithm"], node.attrs["paddings"], image, kernel, strides
    )
    for axis in range(len(image)):
        read = (made[axis] - 1) * strides[axis] + kernel[axis]
        sides[2 * axis + 1] = read - image[axis] - sides[2 * axis]
    return kernel, strides, sides
