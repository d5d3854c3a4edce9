"""Views, transposes, scalars, activations and layer norm: one spelling for each."""

import math

import paddle
import paddle.nn.functional as F
import pytest
from graph_testing import after_passes, assert_golden, fresh_names, random_input
from paddle import nn

from paddle_fluid_boost.passes.activations import RecogniseActivations
from paddle_fluid_boost.passes.constant_folding import FoldConstants
from paddle_fluid_boost.passes.layer_norm import RecogniseLayerNorm
from paddle_fluid_boost.passes.scalars import UnifyScalarArithmetic
from paddle_fluid_boost.passes.slices import MoveSlices, SplitUnbind
from paddle_fluid_boost.passes.transposes import SimplifyTransposes
from paddle_fluid_boost.passes.views import SimplifyViews

X = random_input(2, 3, 4)
FOLD = [FoldConstants()]
ACTIVATIONS = [UnifyScalarArithmetic(), RecogniseActivations()]


def test_chain_of_views_becomes_one_reshape():
    def call(x):
        return F.relu(x.flatten(1).unsqueeze(0).reshape([4, 6]))

    outcome = after_passes(call, [X], [SimplifyViews()])
    assert outcome.ops == ["reshape", "relu"] and outcome.error == 0
    assert_golden(outcome, "simplify_views")


def test_views_that_cancel_go():
    outcome = after_passes(
        lambda x: F.relu(x.reshape([6, 4]).reshape([2, 3, 4])), [X], [SimplifyViews()]
    )
    assert outcome.ops == ["relu"] and outcome.error == 0


def test_view_of_data_dependent_size_is_refused():
    def call(x):
        return paddle.nonzero(x).flatten()

    outcome = after_passes(call, [X], [SimplifyViews()])
    assert outcome.ops == ["nonzero", "flatten"] and outcome.error == 0
    assert outcome.record.refused == ["the shape of flatten depends on data"]


def test_transposes_compose_cancel_and_become_views():
    def call(x):
        composed = x.transpose([1, 0, 2]).transpose([2, 1, 0])
        cancelled = x.transpose([2, 0, 1]).transpose([1, 2, 0])
        viewed = x.unsqueeze(0).transpose([1, 0, 2, 3])
        return composed, F.relu(cancelled), viewed

    outcome = after_passes(call, [X], [SimplifyTransposes()])
    assert outcome.ops == ["transpose", "unsqueeze", "reshape", "relu"] and outcome.error == 0
    assert_golden(outcome, "simplify_transposes")


def test_single_transpose_stays():
    outcome = after_passes(lambda x: x.transpose([1, 0, 2]), [X], [SimplifyTransposes()])
    assert outcome.ops == ["transpose"] and outcome.record.fired == 0


def test_scalars_become_one_scale():
    def call(x):
        return (3.0 - (x * 2.0 + 1.0) / 4.0) - 0.5

    outcome = after_passes(call, [X], [UnifyScalarArithmetic()])
    assert outcome.ops == ["scale"] and outcome.error < 1e-6
    assert_golden(outcome, "unify_scalar_arithmetic")


def test_powers_and_maximum():
    def call(x):
        zero = paddle.zeros([1])
        return x**2, paddle.abs(x) ** 0.5, paddle.maximum(x, zero)

    outcome = after_passes(call, [X], [UnifyScalarArithmetic()])
    assert outcome.ops == ["square", "abs", "sqrt", "relu"] and outcome.error < 1e-6


def test_scalars_on_integers_and_shared_results_are_refused():
    outcome = after_passes(
        lambda x: x + paddle.full([], 2, "int64"),
        [paddle.arange(4)],
        [UnifyScalarArithmetic()],
    )
    assert outcome.record.fired == 0 and outcome.record.refused == ["arithmetic on int64"]

    def shared(x):
        y = x * 2.0
        return y * 3.0, F.relu(y)

    outcome = after_passes(shared, [X], [UnifyScalarArithmetic()])
    assert outcome.ops == ["scale", "scale", "relu"]
    assert "is also read by relu" in outcome.record.refused[0]


GELU_TANH = math.sqrt(2 / math.pi)
SPELLINGS = {
    "gelu_1": (lambda x: 0.5 * x * (1 + paddle.erf(x / math.sqrt(2.0))), ("gelu",)),
    "gelu_2": (lambda x: x * (paddle.erf(x / math.sqrt(2.0)) + 1) / 2, ("gelu",)),
    "gelu_3": (lambda x: x * (0.5 * (1 + paddle.erf(x * math.sqrt(0.5)))), ("gelu",)),
    "gelu_tanh_1": (
        lambda x: 0.5 * x * (1 + paddle.tanh(GELU_TANH * (x + 0.044715 * x**3))),
        ("gelu_tanh",),
    ),
    "gelu_tanh_2": (
        lambda x: 0.5 * x * (1 + paddle.tanh(GELU_TANH * (x + 0.044715 * x * x * x))),
        ("gelu_tanh",),
    ),
    "silu": (lambda x: x * F.sigmoid(x), ("swish", 1.0)),
    "swish": (lambda x: F.sigmoid(1.5 * x) * x, ("swish", 1.5)),
    "hardswish_1": (lambda x: x * F.relu6(x + 3) / 6, ("hardswish",)),
    "hardswish_2": (lambda x: x * (paddle.clip(x + 3, 0, 6) / 6), ("hardswish",)),
    "hardswish_3": (lambda x: x * F.hardsigmoid(x), ("hardswish",)),
    "hardsigmoid_1": (lambda x: F.relu6(x + 3) / 6, ("hardsigmoid", 1 / 6, 0.5)),
    "hardsigmoid_2": (lambda x: paddle.clip(0.2 * x + 0.5, 0, 1), ("hardsigmoid", 0.2, 0.5)),
    "mish": (lambda x: x * paddle.tanh(F.softplus(x)), ("mish",)),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_activation_written_by_hand(name):
    call, post_op = SPELLINGS[name]
    outcome = after_passes(call, [X * 3], ACTIVATIONS)
    assert outcome.ops == ["fused_elementwise"]
    ((kind, *numbers),) = outcome.graph.nodes[0].attrs["post_ops"]
    assert kind == post_op[0] and numbers == pytest.approx(list(post_op[1:]), rel=1e-6)
    assert outcome.error < 1e-6
    assert_golden(outcome, f"activation_{name}")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: 0.5 * x * (1 + paddle.erf(x / 1.5)),
        lambda x: x * F.relu6(x + 2) / 6,
        lambda x: paddle.clip(0.2 * x + 0.5, 0, 2),
        lambda x: F.relu(x) * F.sigmoid(x),
    ],
)
def test_nearly_an_activation_stays(call):
    outcome = after_passes(call, [X], ACTIVATIONS)
    assert outcome.record.fired == 0 and outcome.error < 1e-6


def test_activation_with_a_shared_part_is_refused():
    def call(x):
        gate = F.sigmoid(x)
        return x * gate, gate

    outcome = after_passes(call, [X], ACTIVATIONS)
    assert outcome.record.fired == 0
    assert "is also an output of the graph" in outcome.record.refused[0]


def _centred(x):
    return x - x.mean(-1, keepdim=True)


def _by_sqrt(x):
    d = _centred(x)
    return d / paddle.sqrt((d * d).mean(-1, keepdim=True) + 1e-5)


def _by_rsqrt(x):
    d = _centred(x)
    return d * paddle.rsqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("normalise", [_by_sqrt, _by_rsqrt])
def test_layer_norm_written_by_hand(normalise):
    with fresh_names():
        norm = nn.LayerNorm(4)
        norm.weight.set_value(random_input(4, seed=3))
        norm.bias.set_value(random_input(4, seed=4))

    def call(x):
        return normalise(x) * norm.weight + norm.bias

    passes = [UnifyScalarArithmetic(), RecogniseLayerNorm()]
    outcome = after_passes(call, [X], passes)
    assert outcome.ops == ["layer_norm"] and outcome.error < 1e-6
    assert_golden(outcome, f"recognise_layer_norm_{normalise.__name__.strip('_')}")
    outcome = after_passes(normalise, [X], passes)
    assert outcome.ops == ["layer_norm"] and outcome.error < 1e-6


def test_layer_norm_over_another_axis_or_with_scalar_weight_stays():
    def other_axis(x):
        d = x - x.mean(1, keepdim=True)
        return d / paddle.sqrt((d * d).mean(1, keepdim=True) + 1e-5)

    passes = [UnifyScalarArithmetic(), RecogniseLayerNorm()]
    outcome = after_passes(other_axis, [X], passes)
    assert outcome.record.fired == 0 and "layer_norm" not in outcome.ops

    weight = nn.Linear(4, 3).bias
    outcome = after_passes(lambda x: _by_sqrt(x) * weight.reshape([3, 1]), [X], [*FOLD, *passes])
    assert outcome.ops == ["layer_norm", "multiply"] and outcome.error < 1e-6


def test_packed_projection_is_sliced_before_the_transpose():
    x = random_input(2, 5, 3, 2, 4)

    def call(x):
        q, k, v = x.transpose([2, 0, 3, 1, 4]).unbind(0)
        return q, k * 2.0, v

    outcome = after_passes(call, [x], [SplitUnbind(), MoveSlices()])
    assert outcome.ops.count("slice") == 3 and outcome.ops.count("transpose") == 3
    assert outcome.error == 0
    assert_golden(outcome, "move_slices")


def test_slices_stay_behind_a_transpose_that_is_needed_whole():
    def call(x):
        y = x.transpose([1, 0, 2])
        return y[0], F.relu(y)

    outcome = after_passes(call, [X], [MoveSlices()])
    assert outcome.record.fired == 0
    assert outcome.record.refused == ["the transposed tensor is also needed whole"]
