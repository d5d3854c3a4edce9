"""Convolutions in one form, with all padding resolved.

``conv2d``, ``depthwise_conv2d`` and their transposes become ``fused_conv2d`` and
``fused_conv2d_transpose`` with four explicit paddings, ``conv3d`` and its transpose become
``fused_conv3d`` and ``fused_conv3d_transpose`` with six: ``SAME`` pads so that the output has
ceil(in / stride) rows, the extra one at the bottom, and ignores dilation, as Paddle does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..ir.graph import Graph, Node, Value
from ..ir.pattern import Match, op, value
from .base import PatternPass, is_float, is_static, replace

_CONVOLUTIONS = "conv2d|depthwise_conv2d|conv3d"
_TRANSPOSED = "conv2d_transpose|depthwise_conv2d_transpose|conv3d_transpose"


def resolve_paddings(
    algorithm: str,
    paddings: Sequence[int],
    image: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
) -> list[int]:
    """Two sides per axis for Paddle's padding attributes: [top, bottom, left, right] of an image.

    image, kernel, strides: one number per axis, [h, w] or [d, h, w].
    """
    if algorithm == "VALID":
        return [0] * (2 * len(image))
    if algorithm == "SAME":
        sides: list[int] = []
        for size, window, stride in zip(image, kernel, strides):
            total = max((-(-size // stride) - 1) * stride + window - size, 0)
            sides += [total // 2, total - total // 2]
        return sides
    if len(paddings) == len(image):
        return [side for side in paddings for _ in (0, 1)]
    return list(paddings)


class LowerConvolution(PatternPass):
    """See the module."""

    name = "lower_convolution"
    patterns: ClassVar = (op(f"{_CONVOLUTIONS}|{_TRANSPOSED}", value("x"), value("w")),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses channels-last layouts, integers and paddings that depend on open sizes."""
        node, x = match.root, match["x"]
        if node.attrs["data_format"] not in ("NCHW", "NCDHW"):
            return f"{node.op} in layout {node.attrs['data_format']}"
        if not is_float(x) or not _paddings_are_known(node, x):
            return f"{node.op} on {x!r}"
        if 0 in x.shape:
            return f"{node.op} on an empty tensor"
        if len(node.inputs) > 2 and any(value is not None for value in node.inputs[2:]):
            return f"{node.op} with an output size or bias given as a tensor"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The fused op without bias or post-ops yet."""
        node, x, w = match.root, match["x"], match["w"]
        transposed = "transpose" in node.op
        strides, same = list(node.attrs["strides"]), node.attrs["padding_algorithm"] == "SAME"
        dilations = [1] * len(strides) if same else list(node.attrs["dilations"])
        paddings = resolve_paddings(
            node.attrs["padding_algorithm"],
            node.attrs["paddings"],
            x.shape[2:],
            w.shape[2:],
            strides,
        )
        if transposed:
            paddings = _transposed_paddings(node, x, w, paddings, strides, dilations)
        attrs = {
            "strides": strides,
            "paddings": paddings,
            "dilations": dilations,
            "groups": node.attrs["groups"],
            "post_ops": [],
        }
        new = graph.add(
            _fused_name(node),
            [x, w, None],
            attrs,
            shape=node.output.shape,
            dtype=node.output.dtype,
            before=node,
        )
        replace(graph, match, new)


def _paddings_are_known(node: Node, x: Value) -> bool:
    """``SAME`` and the far sides of a transposed convolution follow from the image."""
    if node.attrs["padding_algorithm"] == "SAME" or "transpose" in node.op:
        return is_static(x) and is_static(node.output)
    return True


def _fused_name(node: Node) -> str:
    if node.op.startswith("conv3d"):
        return f"fused_{node.op}"
    return "fused_conv2d_transpose" if "transpose" in node.op else "fused_conv2d"


def _transposed_paddings(
    node: Node,
    x: Value,
    w: Value,
    paddings: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Bottom and right follow from the output shape, which holds output_padding already."""
    sides: list[int] = []
    for axis in range(len(strides)):
        full = (x.shape[2 + axis] - 1) * strides[axis]
        full += (w.shape[2 + axis] - 1) * dilations[axis] + 1
        begin = paddings[2 * axis]
        sides += [begin, full - begin - node.output.shape[2 + axis]]
    return sides
