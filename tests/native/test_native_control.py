"""Programs with branches and loops: their bodies are plans too."""

from __future__ import annotations

from typing import Any

import native_models as nm
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

cond, while_loop = paddle.static.nn.cond, paddle.static.nn.while_loop


class Gate(nn.Layer):
    """One of two small networks, by what the input says."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2D(3, 16, 3, padding=1), nn.BatchNorm2D(16), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2D(3, 16, 1), nn.Hardswish())
        self.head = nn.Conv2D(16, 4, 1)

    def forward(self, x: Any) -> Any:
        return self.head(cond(x.mean() > 0, lambda: self.one(x), lambda: self.two(x)))


class Refiner(nn.Layer):
    """The same layer over and over, as often as the second input says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Any, times: Any) -> Any:
        def turn(i: Any, y: Any) -> list[Any]:
            return [i + 1, F.tanh(self.layer(y)) + x]

        # Eager mode overwrites the tensors that a loop starts from.
        start = [paddle.zeros([1], "int64"), x * 1.0]
        i, y = while_loop(lambda i, y: i < times, turn, start)
        return y * 2.0, i


def test_both_branches_are_native() -> None:
    x = paddle.randn([2, 3, 8, 8])
    net = nm.calibrated(Gate(), x)
    executable = nm.build(net, [x.abs()], layout="nhwc")
    for given in (x.abs(), -x.abs(), x.abs()):
        nm.assert_close(executable([given]), nm.eager(net, [given]))
    assert executable.host_ops == []
    steps = {(op, how) for op, how, _ in executable.profile([x], repeats=1)}
    assert ("if", "plans") in steps and ("fused_conv2d", "host") not in steps


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_loop_turns_as_often_as_it_should(turns: int) -> None:
    x, net = paddle.randn([4, 16]), Refiner()
    executable = nm.build(net, [x, paddle.to_tensor([3])])
    given = [x, paddle.to_tensor([turns])]
    nm.assert_close(executable(given), nm.eager(net, given))
    assert executable.host_ops == []


def test_a_branch_inside_a_loop_with_a_kernel_of_paddles() -> None:
    def call(x: Any) -> Any:
        def turn(i: Any, y: Any) -> list[Any]:
            y = cond(y.sum() > 4.0, lambda: y * 0.25, lambda: paddle.cumsum(y, 1) + x)
            return [i + 1, y]

        return while_loop(lambda i, y: i < 6, turn, [paddle.zeros([1], "int64"), x * 1.0])[1]

    x = paddle.uniform([3, 5], min=0.1, max=0.4)
    executable = nm.check(call, x)
    assert executable.host_ops == ["cumsum"]


def test_branches_that_return_what_they_are_given() -> None:
    def call(x: Any) -> Any:
        y = x * 3.0
        a, b = cond(x.sum() > 0, lambda: (x, y), lambda: (y, x))
        return a + 1.0, b, x

    executable = nm.build(call, [paddle.ones([2, 5])])
    for given in (paddle.ones([2, 5]), -paddle.ones([2, 5])):
        nm.assert_close(executable([given]), nm.eager(call, [given]))


def test_branches_of_different_shapes_are_refused() -> None:
    from paddle_fluid_boost.errors import EngineError

    def call(x: Any) -> Any:
        return cond(x.sum() > 0, lambda: x[:1], lambda: x)

    with pytest.raises(EngineError, match="depends on data"):
        nm.build(call, [paddle.ones([2, 5])])
