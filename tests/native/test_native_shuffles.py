"""Channel shuffles of a concat: what counts as one, and that it is right."""

from __future__ import annotations

from typing import Any

import native_models as nm
import paddle
import paddle.nn.functional as F
import pytest


def _shuffle(a: Any, b: Any) -> Any:
    batch, channels, height, width = a.shape
    both = paddle.concat([a, b], axis=1).reshape([batch, 2, channels, height, width])
    return both.transpose([0, 2, 1, 3, 4]).reshape([batch, 2 * channels, height, width])


def _count(executable: Any) -> int:
    return sum(op == "channel_shuffle" for op, _ in executable._held[0][0].steps)


@pytest.mark.parametrize("channels", [2, 7, 16, 20, 33, 58, 96])
@pytest.mark.parametrize("halved", [False, True])
def test_every_width(channels: int, halved: bool) -> None:
    w = paddle.randn([channels, channels, 1, 1])

    def net(x: Any, y: Any) -> Any:
        mixed = _shuffle(F.relu(F.conv2d(x, w)), F.conv2d(y, w))
        if not halved:
            return mixed * 2
        left, right = paddle.split(mixed, 2, axis=1)
        return left + 1, F.conv2d(right, w)

    inputs = [paddle.randn([2, channels, 5, 7]) for _ in range(2)]
    assert _count(nm.check(net, *inputs, layout="nhwc")) == 1


@pytest.mark.parametrize("layout, threads", [("nhwc", 1), ("nhwc", 3), ("any", 2)])
def test_any_layout_and_number_of_threads(layout: str, threads: int) -> None:
    w = paddle.randn([24, 24, 3, 3]) * 0.1

    def net(x: Any) -> Any:
        left, right = paddle.split(x, 2, axis=1)
        for _ in range(3):
            mixed = _shuffle(left, F.relu(F.conv2d(right, w, padding=1)))
            left, right = paddle.split(mixed, 2, axis=1)
        return _shuffle(left, right)

    nm.check(net, paddle.randn([1, 48, 31, 33]), layout=layout, threads=threads)


def test_parts_of_a_larger_image() -> None:
    w = paddle.randn([60, 8, 1, 1])

    def net(x: Any) -> Any:
        y = F.conv2d(x, w)
        return _shuffle(y[:, 3:23], y[:, 40:60])

    assert _count(nm.check(net, paddle.randn([2, 8, 6, 5]), layout="nhwc")) == 1


def test_an_addend_is_not_overwritten_before_it_is_shuffled() -> None:
    first, second, third = (paddle.randn([24, 24, 1, 1]) for _ in range(3))

    def net(x: Any) -> Any:
        a, b = F.relu(F.conv2d(x, first)), F.relu(F.conv2d(x, second))
        both = paddle.concat([a, b], axis=1)
        c = F.relu(F.conv2d(x, third) + a)
        moved = both.reshape([1, 2, 24, 6, 6]).transpose([0, 2, 1, 3, 4])
        return moved.reshape([1, 48, 6, 6]) * 2, c

    nm.check(net, paddle.randn([1, 24, 6, 6]), layout="nhwc")


def test_what_is_not_one() -> None:
    def read_elsewhere(x: Any, y: Any) -> Any:
        both = paddle.concat([x, y], axis=1)
        moved = both.reshape([2, 2, 8, 5, 6]).transpose([0, 2, 1, 3, 4])
        return moved.reshape([2, 16, 5, 6]), both + 1

    def other_order(x: Any, y: Any) -> Any:
        both = paddle.concat([x, y], axis=1).reshape([2, 2, 8, 5, 6])
        return both.transpose([0, 2, 1, 4, 3]).reshape([2, 16, 5, 6])

    def other_groups(x: Any, y: Any) -> Any:
        both = paddle.concat([x, y], axis=1).reshape([2, 4, 4, 5, 6])
        return both.transpose([0, 2, 1, 3, 4]).reshape([2, 16, 5, 6])

    for net in (read_elsewhere, other_order, other_groups):
        inputs = [paddle.randn([2, 8, 5, 6]) for _ in range(2)]
        assert _count(nm.check(net, *inputs, layout="nhwc")) == 0
