"""The pipeline over whole networks: right to 1e-5 of the output's range, and fused as expected."""

from collections import Counter

import pytest
from graph_testing import after_passes, calibrated, fresh_names
from zoo_networks import SMALL, VISION

from paddle_fluid_boost.ir.ops import FUSED_OPS
from paddle_fluid_boost.passes.pipeline import PASSES

#: Paddle's own ops that are left on purpose: there is nothing to fuse in them.
PLAIN = {
    "attention", "cast", "concat", "embedding", "layer_norm", "nearest_interp", "pool2d",
    "slice", "softmax", "split", "transpose",
}  # fmt: skip

#: network -> number of nodes after the passes: a fusion lost shows as a larger number.
NODES = {
    "squeeze_excitation": 2,
    "unet": 7,
    "yolo": 26,
    "text_recogniser": 11,
    "svtr": 16,
    "decoder": 14,
    "bert": 30,
    "tagger": 6,
    "encoder_norm_first": 12,
    "transformer_decoder": 22,
    "mobilenet_v3_small": 47,
}


def optimised(recipe):
    build, inputs = recipe
    with fresh_names():
        layer = calibrated(build())
    return after_passes(layer, inputs(), PASSES)


@pytest.mark.parametrize("name", SMALL)
def test_small_network(name):
    outcome = optimised(SMALL[name])
    counts = Counter(outcome.ops)
    assert outcome.error < 1e-5
    assert set(counts) <= PLAIN | set(FUSED_OPS), counts
    assert len(outcome.ops) == NODES[name], counts


@pytest.mark.long
@pytest.mark.parametrize("name", VISION)
def test_vision_network(name):
    outcome = optimised(VISION[name])
    assert outcome.error < 1e-5
    assert set(outcome.ops) <= PLAIN | set(FUSED_OPS)
