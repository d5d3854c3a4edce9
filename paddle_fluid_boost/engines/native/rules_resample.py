"""Rules for interpolation and for pooling with windows of different sizes.

Both make each pixel of the result from a few rows and a few columns of the image, each with a
weight: one table per axis, worked out here as Paddle's kernels work it out, run by
``csrc/native/windows.cc``.  What oneDNN's resampling computes as Paddle does is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.graph import Node
from .lowering import Lowering, NotNative, lowers, numbers, shape_of

#: One pixel of the result: (pixel of the image, weight) for each that it is made of.
_Taps = list[tuple[int, float]]
#: A whole axis, as the builder reads it: where the taps of each pixel begin, their sources, their
#: weights.
_Axis = tuple[list[int], list[int], list[float]]


def _axis(pixels: Sequence[_Taps]) -> _Axis:
    first = [0]
    for taps in pixels:
        first.append(first[-1] + len(taps))
    return (
        first,
        [tap[0] for taps in pixels for tap in taps],
        [t[1] for taps in pixels for t in taps],
    )


def _unchanged(size: int) -> _Axis:
    return _axis([[(i, 1.0)] for i in range(size)])


def _by_windows(
    low: Lowering, node: Node, shape: Sequence[int], axes: Sequence[_Axis], maximum: bool
) -> int:
    """The image, line or volume of ``shape`` [N, C, ...] with every axis made anew."""
    made, build = low.float(node.inputs[0]), low.builder
    batch, channels, *sides = shape
    out = shape_of(node.output)
    if len(sides) == 1:
        made = build.reshape(made, [batch, channels, 1, sides[0]])
        made = build.windows(made, _unchanged(1), axes[0], maximum)
    elif len(sides) == 2:
        made = build.windows(made, axes[0], axes[1], maximum)
    else:
        # Rows and columns of every slice first, then the slices.
        made = build.reshape(made, [batch, channels * sides[0], *sides[1:]])
        made = build.windows(made, axes[1], axes[2], maximum)
        pixels = out[3] * out[4]
        made = build.reshape(made, [batch, channels, sides[0], pixels])
        made = build.windows(made, axes[0], _unchanged(pixels), maximum)
    return int(build.reshape(made, out))


# -- interpolation ---------------------------------------------------------------------------------


@lowers("nearest_interp", "linear_interp", "bilinear_interp", "trilinear_interp", "bicubic_interp")
def resize(low: Lowering, node: Node) -> int:
    x = node.inputs[0]
    low.float(x)
    assert x is not None
    layout = node.attrs.get("data_format", node.attrs.get("data_layout", "NCHW"))
    if not layout.startswith("NC"):
        raise NotNative("channels last")
    if any(value is not None for value in node.inputs[1:]):
        raise NotNative("a size or a scale given as a tensor")
    out = shape_of(node.output)
    if list(out[2:]) == list(x.shape[2:]):  # Paddle copies, whatever scale is given
        return _by_windows(low, node, x.shape, [_unchanged(side) for side in out[2:]], False)
    kind = _onednn_kind(node, x.shape, out)
    if kind is not None:
        return int(low.builder.resize(low.float(x), kind, out))
    scales = _given_scale(node, len(out) - 2) or [0.0] * (len(out) - 2)
    axes = [
        _axis(_interpolated(node, side, made, scale))
        for side, made, scale in zip(x.shape[2:], out[2:], scales)
    ]
    return _by_windows(low, node, x.shape, axes, False)


def _onednn_kind(node: Node, shape: Sequence[int], out: Sequence[int]) -> str | None:
    """What oneDNN calls it, where it computes what Paddle does."""
    if node.attrs["align_corners"] or len(shape) != 4:
        return None
    if 1 in (*shape[2:], *out[2:]):
        # From a single pixel oneDNN 3.6 writes past the end of its result; where one pixel is
        # made it takes the middle, Paddle the first.
        return None
    ratios = [made / side for made, side in zip(out[2:], shape[2:])]
    if _given_scale(node, 2) not in ([], ratios):
        return None
    if node.op == "nearest_interp":
        # oneDNN rounds the source position, Paddle cuts it off: equal only when each source pixel
        # is repeated a whole number of times.
        return "nearest" if all(ratio == int(ratio) for ratio in ratios) else None
    plain = node.op == "bilinear_interp" and node.attrs["align_mode"] == 0
    return "linear" if plain else None


def _given_scale(node: Node, axes: int) -> list[float]:
    """The scale Paddle computes positions with, where it is not output size over input size."""
    scale = node.attrs.get("scale") or []
    scale = [float(s) for s in (scale if isinstance(scale, list) else [scale])]
    return scale * axes if len(scale) == 1 else scale


def _interpolated(node: Node, size: int, made: int, scale: float) -> list[_Taps]:
    """The taps of an axis of ``size`` pixels that becomes one of ``made``, in single precision."""
    corners = bool(node.attrs["align_corners"])
    images = node.op in ("nearest_interp", "bilinear_interp", "bicubic_interp")
    if made == 1 and (corners or images):  # lines and volumes take the middle
        ratio = np.float32(0)
    elif corners:
        ratio = np.float32((size - 1) / (made - 1))
    else:
        ratio = np.float32(1.0 / scale) if scale > 0 else np.float32(size) / np.float32(made)
    half = np.float32(0.5)
    if node.op == "nearest_interp":
        shift = half if corners else np.float32(0)
        return [[(min(int(ratio * i + shift), size - 1), 1.0)] for i in range(made)]
    if node.op == "bicubic_interp":
        positions = [ratio * i if corners else ratio * (i + half) - half for i in range(made)]
        return [_cubic(float(position), size) for position in positions]
    if not corners and node.attrs["align_mode"] == 0:
        positions = [max(ratio * (i + half) - half, np.float32(0)) for i in range(made)]
    else:
        positions = [ratio * i for i in range(made)]
    return [_linear(float(position), size) for position in positions]


def _linear(position: float, size: int) -> _Taps:
    before = min(int(position), size - 1)
    part = position - before
    return [(before, 1.0 - part), (min(before + 1, size - 1), part)]


def _cubic(position: float, size: int) -> _Taps:
    """Four pixels with the weights of the cubic convolution, a = -0.75."""
    a, before = -0.75, math.floor(position)
    part = position - before

    def near(x: float) -> float:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: float) -> float:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = [far(part + 1), near(part), near(1 - part), far(2 - part)]
    return [(min(max(before - 1 + i, 0), size - 1), weight) for i, weight in enumerate(weights)]


# -- pooling ---------------------------------------------------------------------------------------


@lowers("pool2d", "pool3d", "max_pool2d_with_index", "max_pool3d_with_index")
def uneven_pool(low: Lowering, node: Node) -> int:
    """Adaptive pooling: row i of n is made from rows floor(i H / n) to ceil((i + 1) H / n)."""
    x = node.inputs[0]
    low.float(x)
    assert x is not None
    if not node.attrs.get("adaptive") or node.attrs.get("global_pooling"):
        raise NotNative("pooling that no pass brought into one form")
    if node.attrs.get("data_format", "NCHW") not in ("NCHW", "NCDHW"):
        raise NotNative("channels last")
    if any(low.is_used(value) for value in node.outputs[1:]):
        raise NotNative("the positions of the maxima are read")
    numbers(node, "kernel_size")
    maximum = node.op.startswith("max") or node.attrs["pooling_type"] == "max"
    out = shape_of(node.output)
    axes = [_axis(_windows(size, made)) for size, made in zip(x.shape[2:], out[2:])]
    return _by_windows(low, node, x.shape, axes, maximum)


def _windows(size: int, made: int) -> list[_Taps]:
    bounds = [(i * size // made, -(-(i + 1) * size // made)) for i in range(made)]
    return [[(k, 1.0 / (end - begin)) for k in range(begin, end)] for begin, end in bounds]
