"""``tools/bench memory``: its parts measure what they say."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from paddle_fluid_boost.engines.native import NativeEngine


def _net():
    net = paddle.nn.Sequential(
        *(paddle.nn.Conv2D(i, 4, 3, padding=1) for i in (3, 4, 4, 4)), paddle.nn.Flatten()
    )
    net.eval()
    return net


@pytest.mark.skipif(NativeEngine().unavailable() is not None, reason="no native engine")
def test_activations_of_eager_and_of_a_plan(bench_module):
    memory = bench_module("memory")
    outcome = memory._measure_activations(_net())
    one = 4 * 512 * 512 * 4 / 2**20  # MiB of one intermediate: eager holds two at once, or more
    assert outcome["eager"] >= 2 * one
    assert one <= outcome["plan"] < 4 * one


def test_soak_of_eager(bench_module):
    memory = bench_module("memory")
    call = memory.WAYS["eager"](paddle.nn.AdaptiveAvgPool2D(1))
    outcome = memory._measure_soak(call, calls=20, seed=0)
    assert len(outcome["resident"]) == 21
    assert 0 < outcome["start"] <= outcome["peak"]
    np.testing.assert_array_less(0, outcome["milliseconds"])
