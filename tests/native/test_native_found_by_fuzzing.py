"""What random graphs have found, each as small as it gets."""

from __future__ import annotations

from typing import Any, Callable

import native_models as nm
import paddle
import paddle.nn.functional as F
import pytest

MATRIX, KERNEL = paddle.randn([1, 1, 8, 8]), paddle.randn([8, 8, 1, 1])


@pytest.mark.parametrize("side", [3, 13])
def test_one_matrix_for_a_whole_batch(side: int) -> None:
    """oneDNN packed it for one member of the batch and read past it."""
    x = paddle.randn([2, 8, side, side])
    rows = [2 * side, 1, side, 8]
    nm.check(lambda z: paddle.matmul(z.transpose([0, 2, 3, 1]).reshape(rows), MATRIX), x)
    nm.check(lambda z: F.conv2d_transpose(z, KERNEL), x)


RESIZED: dict[str, tuple[list[int], Callable[[Any], Any]]] = {
    "from one pixel": ([2, 3, 1, 1], lambda z: F.interpolate(z, [1, 1], mode="bilinear")),
    "one pixel repeated": ([2, 3, 1, 1], lambda z: F.interpolate(z, [2, 2], mode="nearest")),
    "to one pixel": ([1, 3, 4, 4], lambda z: F.interpolate(z, [1, 1], mode="bilinear")),
    "to one pixel, bicubic": ([1, 3, 4, 4], lambda z: F.interpolate(z, [1, 1], mode="bicubic")),
    "to one number": ([1, 3, 4], lambda z: F.interpolate(z, [1], mode="linear", data_format="NCW")),
    "size unchanged by a scale": (
        [1, 3, 2, 2],
        lambda z: F.interpolate(z, scale_factor=[1.3, 1.3], mode="bilinear"),
    ),
    "a scale of which one axis makes nothing": (
        [1, 3, 2, 2],
        lambda z: F.interpolate(z, scale_factor=[1.3, 2.0], mode="nearest"),
    ),
}


@pytest.mark.parametrize("layout", ["any", "nhwc"])
@pytest.mark.parametrize("what", list(RESIZED))
def test_sizes_at_the_edge(what: str, layout: str) -> None:
    shape, function = RESIZED[what]
    nm.check(function, paddle.randn(shape), layout=layout)
