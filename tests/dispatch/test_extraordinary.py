"""NaN, infinities and huge numbers come out of a compiled function exactly as of eager mode."""

from __future__ import annotations

import numpy
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

import paddle_fluid_boost as pfb
from paddle_fluid_boost.dispatch.explanations import find_unit
from paddle_fluid_boost.engines.ordinary import is_ordinary

ACTIVATIONS = {
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "gelu": F.gelu,
    "clip": lambda x: paddle.clip(x, -1, 1),
    "exp": paddle.exp,
    "pool": lambda x: F.max_pool2d(x, 2),
    "softmax": lambda x: F.softmax(x, -1),
}


class Net(nn.Layer):
    def __init__(self, activation) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)
        self.activation = activation

    def forward(self, x):
        return self.activation(self.conv(x))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_same_places_as_in_eager(name: str) -> None:
    net = Net(ACTIVATIONS[name])
    net.eval()
    eager = net.forward
    boosted = pfb.to_static(net)
    x = paddle.randn([1, 3, 8, 8])
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        for _ in range(5):
            boosted(x)
        unit = find_unit(boosted)
        assert pfb.explain(boosted).state == "compiled"
        for value in (float("nan"), float("inf"), -float("inf"), 3e38):
            y = x.clone()
            y[0, 0, 2, 2] = value
            numpy.testing.assert_array_equal(boosted(y).numpy(), eager(y).numpy())
        assert any("NaN" in reason for reason in unit.journal.refusals)
        before = unit.stats.totals().compiled_calls
        boosted(x)
        assert unit.stats.totals().compiled_calls == before + 1, "ordinary calls stay compiled"
    pfb.uninstall()


def test_infinities_that_belong_to_the_computation_are_let_through() -> None:
    def masked(x, mask):
        return F.softmax(x + mask, -1)

    boosted = pfb.to_static(masked)
    x = paddle.randn([4, 4])
    mask = paddle.triu(paddle.full([4, 4], -float("inf")), 1)
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        for _ in range(6):
            got = boosted(x, mask)
        assert find_unit(boosted).stats.totals().compiled_calls >= 2
        numpy.testing.assert_allclose(got.numpy(), masked(x, mask).numpy(), atol=1e-6)
    pfb.uninstall()


@pytest.mark.parametrize("count", [1, 7, 4096, 10_001])
def test_every_position_is_looked_at(count: int) -> None:
    x = paddle.zeros([count])
    assert is_ordinary(x)
    for position in {0, count // 2, count - 1}:
        for value in (float("nan"), float("inf"), -float("inf"), -2e18):
            y = x.clone()
            y[position] = value
            assert not is_ordinary(y)
            assert not is_ordinary(y.astype("float64"))
