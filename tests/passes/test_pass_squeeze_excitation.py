"""Squeeze-and-excitation blocks as one node."""

import paddle.nn.functional as F
import pytest
from graph_testing import after_passes, assert_golden, calibrated, fresh_names, random_input
from paddle import nn

from paddle_fluid_boost.passes.pipeline import PASSES

IMAGE = random_input(2, 8, 5, 6)


class Block(nn.Layer):
    """The block of MobileNetV3 and EfficientNet, with what may vary."""

    def __init__(self, inner=F.relu, gate=F.hardsigmoid, kernel=1, groups=1, bias=None):
        super().__init__()
        self.squeeze = nn.Conv2D(8, 4, 1, bias_attr=bias)
        self.excite = nn.Conv2D(4, 8, kernel, padding=kernel // 2, groups=groups, bias_attr=bias)
        self.inner, self.gate = inner, gate

    def gates(self, x):
        return self.gate(self.excite(self.inner(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))

    def forward(self, x):
        return x * self.gates(x)


def made(**settings):
    """A block with the same names and weights in every run."""
    with fresh_names():
        return calibrated(Block(**settings))


BLOCKS = {
    "hardsigmoid": {},
    "sigmoid_silu": {"inner": F.silu, "gate": F.sigmoid},
    "without_bias": {"bias": False},
    "without_activation": {"inner": lambda x: x, "gate": lambda x: x},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block_is_one_node(name):
    outcome = after_passes(made(**BLOCKS[name]), [IMAGE], PASSES)
    assert outcome.ops == ["squeeze_excitation"] and outcome.error < 1e-6
    assert_golden(outcome, f"fuse_squeeze_excitation_{name}")


def test_gate_on_the_left_and_mean_written_out():
    net = made()

    def call(x):
        return net.gate(net.excite(F.relu(net.squeeze(x.mean([2, 3], keepdim=True))))) * x

    outcome = after_passes(call, [IMAGE], PASSES)
    assert outcome.ops == ["squeeze_excitation"] and outcome.error < 1e-6


def _refused(call):
    outcome = after_passes(call, [IMAGE], PASSES)
    assert "squeeze_excitation" not in outcome.ops and outcome.error < 1e-6


def test_another_image_is_gated():
    net = made()
    _refused(lambda x: F.relu(x) * net.gates(x))


def test_the_gate_is_read_elsewhere():
    net = made()

    def call(x):
        gates = net.gates(x)
        return x * gates, gates

    _refused(call)


@pytest.mark.parametrize("settings", [{"kernel": 3}, {"groups": 2}])
def test_the_gate_is_no_plain_product(settings):
    _refused(made(**settings))


def test_the_mean_is_not_over_the_whole_image():
    net = made()
    _refused(lambda x: x * net.gate(net.excite(F.relu(net.squeeze(F.avg_pool2d(x, [1, 6]))))))


def test_the_product_goes_on_in_the_same_node():
    net = made()
    _refused(lambda x: F.relu(net(x)) + 1.0)
