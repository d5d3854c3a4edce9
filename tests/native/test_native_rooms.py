"""Concats that grow: what shares a room, that it is right, and that nothing is copied twice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import native_models as nm
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "ir"))
from graph_testing import graph_of

from paddle_fluid_boost.engines.native import planning, rooms
from paddle_fluid_boost.passes.pipeline import optimise


class Dense(nn.Layer):
    """A dense block: batch norm, activation, 1x1, 3x3, joined to what was there."""

    def __init__(self, start: int, growth: int, layers: int, listed: bool = False) -> None:
        super().__init__()
        self.listed = listed
        widths = [start + i * growth for i in range(layers)]
        self.first = nn.Conv2D(3, start, 3, padding=1)
        self.norms = nn.LayerList(nn.BatchNorm2D(w) for w in widths)
        self.narrow = nn.LayerList(nn.Conv2D(w, 32, 1) for w in widths)
        self.grow = nn.LayerList(nn.Conv2D(32, growth, 3, padding=1) for _ in widths)

    def forward(self, x: Any) -> Any:
        parts = [self.first(x)]
        for norm, narrow, grow in zip(self.norms, self.narrow, self.grow):
            x = parts[0] if len(parts) == 1 else paddle.concat(parts, axis=1)
            new = grow(narrow(F.relu(norm(x))))
            parts = [*parts, new] if self.listed else [x, new]
        return F.relu(paddle.concat(parts, axis=1))


def _steps(executable: Any, op: str) -> int:
    return sum(name == op for name, _ in executable._held[0][0].steps)


@pytest.mark.parametrize("algorithm", ["winograd4", "direct"])
@pytest.mark.parametrize("listed", [False, True])
def test_a_dense_block_copies_each_part_once(listed: bool, algorithm: str) -> None:
    x = paddle.randn([2, 3, 9, 13])
    net = nm.calibrated(Dense(40, 24, 4, listed), x)
    executable = nm.check(net, x, layout="nhwc", algorithm=algorithm)
    # The first part is copied; Winograd's convolutions write theirs where they belong.
    assert _steps(executable, "concat") == (1 if algorithm == "winograd4" else 5)


@pytest.mark.parametrize("layout, threads", [("nhwc", 1), ("nhwc", 3), ("any", 2)])
def test_any_layout_and_number_of_threads(layout: str, threads: int) -> None:
    x = paddle.randn([1, 3, 17, 16])
    net = nm.calibrated(Dense(20, 12, 3), x)
    nm.check(net, x, layout=layout, threads=threads)


@pytest.mark.parametrize("may_add, kept", [(9.0, True), (0.5, False)])
def test_a_room_that_costs_much_memory_is_not_kept(
    may_add: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_LARGE", 0)
    monkeypatch.setattr(planning, "_ROOMS_MAY_ADD", may_add)
    x = paddle.randn([1, 3, 12, 12])
    net = nm.calibrated(Dense(24, 24, 3), x)
    executable = nm.check(net, x, layout="nhwc", algorithm="winograd2")
    # Without a room, each of the three concats is made.
    assert (_steps(executable, "concat") < 3) == kept


def test_readers_of_a_part_and_of_smaller_concats() -> None:
    """Parts that others read too, that are results, inputs, or there twice."""
    w = [paddle.randn([24, c, 3, 3]) * 0.1 for c in (24, 48, 72)]

    def net(x: Any) -> Any:
        a = F.relu(F.conv2d(x, w[0], padding=1))
        first = paddle.concat([x, a], axis=1)
        b = F.conv2d(first, w[1], padding=1) + a
        second = paddle.concat([first, b], axis=1)
        c = F.conv2d(second, w[2], padding=1) + b
        third = paddle.concat([second, c], axis=1)
        twice = paddle.concat([third, c, c], axis=1)
        return b, third, F.max_pool2d(first, 2), second.mean([2, 3]), twice

    nm.check(net, paddle.randn([2, 24, 10, 10]), layout="nhwc", algorithm="winograd2")


def test_an_addend_is_not_overwritten_while_a_concat_needs_it() -> None:
    w = [paddle.randn([24, c, 3, 3]) * 0.1 for c in (24, 24, 72)]

    def net(x: Any) -> Any:
        a = F.relu(F.conv2d(x, w[0], padding=1))
        b = F.relu(F.conv2d(a, w[1], padding=1) + a)
        first = paddle.concat([a, b], axis=1)
        second = paddle.concat([first, b * 2], axis=1)
        return F.conv2d(second, w[2], padding=1) + a, first + 1

    nm.check(net, paddle.randn([1, 24, 12, 12]), layout="nhwc", algorithm="winograd4")


def test_what_shares_a_room() -> None:
    def net(a: Any, b: Any, c: Any) -> Any:
        x, y, z = F.relu(a), F.relu(b), F.sigmoid(c)
        nested = paddle.concat([paddle.concat([x, y], 1), z], 1)
        listed = paddle.concat([x, y, z], 1)
        other = paddle.concat([y, z], 1)
        return nested.mean(), listed.sum(), other.max(), paddle.concat([x, x], 1).min(), z

    inputs = [paddle.randn([1, c, 4, 4]) for c in (8, 16, 24)]
    graph = graph_of(net, inputs)
    optimise(graph)
    found = rooms.find(graph.nodes, graph.outputs)
    assert {room.shape()[1] for room in found.of_concat.values()} == {48}
    widths = sorted(concat.output.shape[1] for concat in found.of_concat)
    assert widths in ([24, 48], [24, 48, 48])  # equal concats may have been merged
    # y is read by a concat outside of the room, z is a result.
    assert [part.shape[1] for part in found.of_part] == []
    (room,) = set(found.of_concat.values())
    assert [room.channel_of(part) for part in room.parts] == [0, 8, 24]


@pytest.mark.parametrize("channels", [16, 20, 3, 64])
@pytest.mark.parametrize("act", [None, F.relu, F.silu])
def test_what_is_left_of_a_batch_norm(channels: int, act: Any) -> None:
    scale, shift = paddle.randn([1, channels, 1, 1]), paddle.randn([1, channels, 1, 1])
    w = paddle.randn([channels, 8, 3, 3])

    def net(x: Any) -> Any:
        y = F.max_pool2d(F.conv2d(x, w), 2) * scale + shift
        return act(y) if act else y

    executable = nm.check(net, paddle.randn([2, 8, 13, 11]), layout="nhwc")
    assert ("fused_elementwise", "kernel") in executable._held[0][0].steps


def test_not_a_number_stays_itself() -> None:
    scale, shift = paddle.randn([1, 24, 1, 1]), paddle.randn([1, 24, 1, 1])
    array = np.random.default_rng(0).standard_normal((1, 24, 8, 8), np.float32)
    array[0, 3, 2, 2], array[0, 20, 1, 1] = np.nan, np.inf

    def net(x: Any) -> Any:
        return F.relu(F.avg_pool2d(x, 1) * scale + shift)

    nm.check(net, paddle.to_tensor(array), layout="nhwc")
