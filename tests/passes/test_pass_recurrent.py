"""LSTM, GRU and simple recurrent layers taken apart into layers."""

import paddle
import pytest
from graph_testing import (
    after_passes,
    assert_golden,
    calibrated,
    fresh_names,
    graph_of,
    random_input,
)
from paddle import nn

from paddle_fluid_boost.passes.constant_folding import FoldConstants
from paddle_fluid_boost.passes.dead_code import EliminateDeadCode
from paddle_fluid_boost.passes.recurrent import LowerRecurrent

SEQUENCE = random_input(2, 5, 6)
PASSES = [FoldConstants(), LowerRecurrent(), EliminateDeadCode()]


def made(build):
    """A layer with the same names and weights in every run."""
    with fresh_names():
        return calibrated(build())


LAYERS = {
    "lstm": lambda: nn.LSTM(6, 8),
    "lstm_two_layers": lambda: nn.LSTM(6, 8, 2),
    "lstm_both_ways": lambda: nn.LSTM(6, 8, 2, direction="bidirect"),
    "lstm_time_major": lambda: nn.LSTM(6, 8, time_major=True),
    "gru": lambda: nn.GRU(6, 8),
    "gru_both_ways": lambda: nn.GRU(6, 8, 2, direction="bidirect"),
    "simple_tanh": lambda: nn.SimpleRNN(6, 8, 2),
    "simple_relu": lambda: nn.SimpleRNN(6, 8, activation="relu", direction="bidirect"),
    "dropout_in_inference": lambda: nn.GRU(6, 8, 2, dropout=0.5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_by_layer(name):
    outcome = after_passes(made(LAYERS[name]), [SEQUENCE], PASSES)
    assert "rnn" not in outcome.ops and "recurrent" in outcome.ops
    assert outcome.error < 1e-6
    assert_golden(outcome, f"lower_recurrent_{name}")


def test_initial_states_are_split_between_the_layers():
    net = made(lambda: nn.LSTM(6, 8, 2, direction="bidirect"))
    states = random_input(4, 2, 8, seed=3), random_input(4, 2, 8, seed=4)
    outcome = after_passes(lambda x, h, c: net(x, (h, c)), [SEQUENCE, *states], PASSES)
    assert outcome.ops.count("split") == 2 and outcome.error < 1e-6
    assert_golden(outcome, "lower_recurrent_initial_states")


def test_one_state_of_zeros_beside_one_given():
    net = made(lambda: nn.LSTM(6, 8))
    outcome = after_passes(
        lambda x, h: net(x, (h, paddle.zeros([1, 2, 8]))), [SEQUENCE, random_input(1, 2, 8)], PASSES
    )
    assert outcome.ops.count("recurrent") == 1 and outcome.error < 1e-6


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_lengths_go_to_every_layer(kind):
    net = made(lambda: getattr(nn, kind)(6, 8, 2, direction="bidirect"))
    lengths = paddle.to_tensor([3, 5])
    call = lambda x, n: paddle.utils.flatten(net(x, None, n))  # noqa: E731
    outcome = after_passes(call, [SEQUENCE, lengths], PASSES)
    assert outcome.ops.count("recurrent") == 2 and outcome.error < 1e-6
    assert_golden(outcome, f"lower_recurrent_lengths_{kind.lower()}")


def test_unread_states_are_not_joined():
    net = made(lambda: nn.LSTM(6, 8, 3))
    outcome = after_passes(lambda x: net(x)[0], [SEQUENCE], PASSES)
    assert "concat" not in outcome.ops and outcome.error < 1e-6


def refused(net, *inputs):
    """The reasons for which the pass left a network alone."""
    graph = graph_of(net, inputs)
    FoldConstants().run(graph)
    record = LowerRecurrent().run(graph)
    assert record.fired == 0 and any(node.op.startswith("rnn") for node in graph.nodes)
    return record.refused


def test_refuses_lengths_of_a_simple_cell():
    net = made(lambda: nn.SimpleRNN(6, 8))
    lengths = paddle.to_tensor([3, 5])
    assert refused(lambda x, n: net(x, None, n), SEQUENCE, lengths) == [
        "a simple cell, and every sequence has a length of its own"
    ]


def test_refuses_dropout_in_training():
    net = made(lambda: nn.LSTM(6, 8, 2, dropout=0.5))
    net.train()
    assert refused(net, SEQUENCE) == ["dropout between layers, in training"]


def test_refuses_double_precision():
    paddle.set_default_dtype("float64")
    try:
        net = nn.GRU(6, 8)
    finally:
        paddle.set_default_dtype("float32")
    net.eval()
    (reason,) = refused(net, SEQUENCE.astype("float64"))
    assert reason.startswith("rnn on") and "float64" in reason


def test_refuses_weights_that_are_inputs():
    net = made(lambda: nn.SimpleRNN(6, 8))

    def call(x, w):
        weights = [w, *net._all_weights[1:]]
        states = [paddle.zeros([1, 5, 8])]
        settings = (0.0, False, 6, 8, 1, "RNN_TANH", 0, True)
        return paddle._C_ops.rnn(x, states, weights, None, net._dropout_state, *settings)[0]

    assert refused(call, SEQUENCE, random_input(8, 6)) == ["weights are not constants"]


def test_refuses_cells_without_bias():
    # Paddle's own kernel crashes on these: only the capture can be looked at.
    net = made(lambda: nn.LSTM(6, 8, bias_ih_attr=False, bias_hh_attr=False))
    assert refused(net, SEQUENCE) == ["a cell without its two biases"]
