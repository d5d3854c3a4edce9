"""RMS norms written out by hand."""

import paddle
import pytest
from graph_testing import after_passes, assert_golden, fresh_names, random_input
from paddle import nn

from paddle_fluid_boost.passes.constant_folding import FoldConstants
from paddle_fluid_boost.passes.rms_norm import RecogniseRmsNorm
from paddle_fluid_boost.passes.scalars import UnifyScalarArithmetic

X = random_input(2, 3, 8)
PASSES = [FoldConstants(), UnifyScalarArithmetic(), RecogniseRmsNorm()]


def by_rsqrt(x):
    return x * paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def by_root(x):
    return x / paddle.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def by_power(x):
    return paddle.pow(paddle.mean(paddle.square(x), -1, keepdim=True) + 1e-6, -0.5) * x


def weight(*shape):
    with fresh_names():
        made = nn.Linear(8, 1).create_parameter(list(shape))
    made.set_value(random_input(*shape, seed=3))
    return made


@pytest.mark.parametrize("normalise", [by_rsqrt, by_root, by_power])
def test_written_by_hand(normalise):
    scale = weight(8)
    outcome = after_passes(lambda x: scale * normalise(x), [X], PASSES)
    assert outcome.ops == ["fused_rms_norm"] and outcome.error < 1e-6
    assert_golden(outcome, f"recognise_rms_norm_{normalise.__name__}")
    outcome = after_passes(normalise, [X], PASSES)
    assert outcome.ops == ["fused_rms_norm"] and outcome.error < 1e-6


def test_scale_of_full_rank_is_flattened():
    scale = weight(1, 1, 8)
    outcome = after_passes(lambda x: by_rsqrt(x) * scale, [X], PASSES)
    assert outcome.ops == ["fused_rms_norm"] and outcome.error < 1e-6


def test_refuses_a_scale_that_is_not_per_element():
    scale = weight(3, 1)
    outcome = after_passes(lambda x: by_rsqrt(x) * scale, [X], PASSES)
    assert outcome.ops == ["fused_rms_norm", "multiply"] and outcome.error < 1e-6
    scale = weight(3, 8)
    outcome = after_passes(lambda x: by_rsqrt(x) * scale, [X], PASSES)
    assert outcome.ops == ["fused_rms_norm", "multiply"] and outcome.error < 1e-6


def test_the_mean_over_another_dimension_stays():
    outcome = after_passes(
        lambda x: x * paddle.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6), [X], PASSES
    )
    assert outcome.record.fired == 0 and "fused_rms_norm" not in outcome.ops


def test_refuses_when_the_mean_is_read_elsewhere():
    def call(x):
        mean = x.pow(2).mean(-1, keepdim=True)
        return x * paddle.rsqrt(mean + 1e-6), mean

    outcome = after_passes(call, [X], PASSES)
    assert outcome.record.fired == 0
    assert any("is also an output of the graph" in reason for reason in outcome.record.refused)
