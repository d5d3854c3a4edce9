"""The pipeline works inside branches and loops too."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
import pytest
from graph_testing import (
    Outcome,
    assert_golden,
    calibrated,
    eager,
    fresh_names,
    graph_of,
    random_input,
    relative_error,
)
from paddle import nn

from paddle_fluid_boost.ir import reference
from paddle_fluid_boost.passes.pipeline import optimise

cond, while_loop = paddle.static.nn.cond, paddle.static.nn.while_loop


class Branching(nn.Layer):
    """A convolution block or a product of channels, by the sign of the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2D(3, 4, 3, padding=1), nn.BatchNorm2D(4), nn.ReLU())
        self.other = nn.Conv2D(3, 4, 1)

    def forward(self, x: Any) -> Any:
        return cond(x.mean() > 0, lambda: self.block(x), lambda: F.sigmoid(self.other(x))) * 2.0


class Looping(nn.Layer):
    """One layer over and over."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any, times: Any) -> Any:
        start = [paddle.zeros([1], "int64"), x * 1.0]
        turn = lambda i, y: [i + 1, F.tanh(self.layer(y)) + x]  # noqa: E731
        return while_loop(lambda i, y: i < times, turn, start)[1]


def made(kind: type[nn.Layer]) -> nn.Layer:
    with fresh_names():
        return calibrated(kind())


def optimised(net: nn.Layer, inputs: list[Any]) -> Outcome:
    graph = graph_of(net, inputs)
    records = optimise(graph, verifying=True)
    error = relative_error(reference.run(graph, inputs), eager(net, inputs))
    return Outcome(graph, records[-1], error)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_are_fused(sign: float) -> None:
    image = random_input(1, 3, 4, 4).abs() * sign
    outcome = optimised(made(Branching), [image])
    assert outcome.error < 1e-6
    assert_golden(outcome, "pipeline_branches")


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_bodies_of_loops_are_fused(turns: int) -> None:
    inputs = [random_input(2, 4), paddle.to_tensor([turns])]
    outcome = optimised(made(Looping), inputs)
    assert outcome.error < 1e-6
    assert_golden(outcome, "pipeline_loop")
