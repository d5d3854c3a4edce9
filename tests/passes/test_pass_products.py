"""Convolutions, pooling, matrix products and what folds into their constants."""

import numpy as np
import paddle
import paddle.nn.functional as F
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

from paddle_fluid_boost.passes.batch_norm import LowerBatchNorm
from paddle_fluid_boost.passes.constant_folding import FoldConstants
from paddle_fluid_boost.passes.convolution import LowerConvolution
from paddle_fluid_boost.passes.elementwise import LowerElementwise
from paddle_fluid_boost.passes.fold_batch_norm import FoldBatchNorm
from paddle_fluid_boost.passes.fold_batch_norm_forward import FoldBatchNormForward
from paddle_fluid_boost.passes.fold_bias import FoldBias, FoldScale
from paddle_fluid_boost.passes.pooling import LowerPooling
from paddle_fluid_boost.passes.post_ops import FusePostOps
from paddle_fluid_boost.passes.products import AbsorbTransposes, LowerProducts
from paddle_fluid_boost.passes.qkv import MergeProjections

IMAGE = random_input(2, 4, 9, 10)
ROWS = random_input(3, 5, 8)
CONV = [FoldConstants(), LowerConvolution()]
LINEAR = [FoldConstants(), LowerProducts()]


def made(build):
    """A layer with the same names and weights in every run."""
    with fresh_names():
        return calibrated(build())


CONVOLUTIONS = {
    "plain": lambda: nn.Conv2D(4, 6, 3, bias_attr=False),
    "strided_padded": lambda: nn.Conv2D(4, 6, 3, 2, 1, bias_attr=False),
    "four_paddings": lambda: nn.Conv2D(4, 6, 3, 2, [0, 1, 2, 3], bias_attr=False),
    "same": lambda: nn.Conv2D(4, 6, 4, 3, "SAME", bias_attr=False),
    "same_ignores_dilation": lambda: nn.Conv2D(4, 6, 3, 1, "SAME", 2, bias_attr=False),
    "valid": lambda: nn.Conv2D(4, 6, 3, 2, "VALID", bias_attr=False),
    "dilated": lambda: nn.Conv2D(4, 6, 3, 1, 2, 2, bias_attr=False),
    "grouped": lambda: nn.Conv2D(4, 6, 3, groups=2, bias_attr=False),
    "depthwise": lambda: nn.Conv2D(4, 4, 3, 1, 1, groups=4, bias_attr=False),
    "transposed": lambda: nn.Conv2DTranspose(4, 6, 3, 2, 1, bias_attr=False),
    "transposed_output_padding": lambda: nn.Conv2DTranspose(4, 6, 3, 2, 0, 1, bias_attr=False),
    "transposed_grouped": lambda: nn.Conv2DTranspose(4, 6, 3, 2, groups=2, bias_attr=False),
    "transposed_depthwise": lambda: nn.Conv2DTranspose(4, 4, 2, 2, groups=4, bias_attr=False),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_in_one_form(name):
    outcome = after_passes(made(CONVOLUTIONS[name]), [IMAGE], CONV)
    assert outcome.ops in (["fused_conv2d"], ["fused_conv2d_transpose"])
    assert outcome.error < 1e-6
    assert_golden(outcome, f"lower_convolution_{name}")


VOLUME = random_input(2, 4, 5, 6, 7)
VOLUMES = {
    "plain": lambda: nn.Conv3D(4, 6, 3, bias_attr=False),
    "strided_padded": lambda: nn.Conv3D(4, 6, 3, [1, 2, 1], [0, 1, 2], bias_attr=False),
    "same": lambda: nn.Conv3D(4, 6, [2, 3, 4], 2, "SAME", bias_attr=False),
    "grouped_dilated": lambda: nn.Conv3D(4, 6, 2, 1, 0, [1, 2, 1], groups=2, bias_attr=False),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_convolution_of_volumes_in_one_form(name):
    outcome = after_passes(made(VOLUMES[name]), [VOLUME], CONV)
    assert outcome.ops == ["fused_conv3d"] and outcome.error < 1e-6
    assert_golden(outcome, f"lower_convolution_3d_{name}")


def test_bias_batch_norm_and_activation_fold_into_a_convolution_of_volumes():
    layer = made(lambda: nn.Sequential(nn.Conv3D(4, 6, 3), nn.BatchNorm3D(6), nn.ReLU()))
    passes = [*CONV, FoldBias(), FoldBatchNorm(), LowerElementwise(), FusePostOps()]
    outcome = after_passes(layer, [VOLUME], passes)
    assert outcome.ops == ["fused_conv3d"] and outcome.error < 2e-6
    assert_golden(outcome, "fold_batch_norm_3d")


def test_transposed_convolution_of_volumes():
    layer = made(lambda: nn.Conv3DTranspose(4, 6, 3, 2, 1, [1, 0, 1], groups=2))
    passes = [*CONV, FoldBias(), LowerElementwise(), FusePostOps()]
    outcome = after_passes(lambda x: F.relu(layer(x)), [random_input(2, 4, 3, 4, 5)], passes)
    assert outcome.ops == ["fused_conv3d_transpose"] and outcome.error < 2e-6
    assert_golden(outcome, "lower_convolution_transposed_volume")


def test_transposed_convolution_with_channels_last_stays():
    layer = made(lambda: nn.Conv3DTranspose(4, 6, 3, data_format="NDHWC"))
    outcome = after_passes(layer, [random_input(2, 3, 4, 5, 4)], [LowerConvolution()])
    assert "fused_conv3d_transpose" not in outcome.ops
    assert outcome.record.refused == ["conv3d_transpose in layout NHWC"]


VOLUME_POOLINGS = {
    "max_ceil": lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True),
    "average": lambda x: F.avg_pool3d(x, 3, 2, 1),
    "average_padded": lambda x: F.avg_pool3d(x, 3, 2, 1, exclusive=False),
    "adaptive": lambda x: F.adaptive_avg_pool3d(x, [5, 3, 1]),
    "global": lambda x: F.adaptive_avg_pool3d(x, 1),
}


@pytest.mark.parametrize("name", VOLUME_POOLINGS)
def test_pooling_of_volumes_in_one_form(name):
    outcome = after_passes(VOLUME_POOLINGS[name], [VOLUME], [LowerPooling()])
    assert outcome.ops[0] == "fused_pool3d" and outcome.error < 1e-6
    assert_golden(outcome, f"lower_pooling_3d_{name}")


def test_convolution_with_channels_last_is_refused():
    layer = made(lambda: nn.Conv2D(10, 6, 3, bias_attr=False, data_format="NHWC"))
    outcome = after_passes(layer, [IMAGE], CONV)
    assert outcome.ops == ["conv2d"]
    assert outcome.record.refused == ["conv2d in layout NHWC"]


POOLINGS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_ceil": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average_padded": lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False),
    "average_ceil": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, [3, 2]),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "mean": lambda x: x.mean([2, 3]),
    "mean_kept": lambda x: x.mean([-1, -2], keepdim=True),
}


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling_in_one_form(name):
    outcome = after_passes(POOLINGS[name], [IMAGE], [LowerPooling()])
    assert outcome.ops[0] == "fused_pool2d" and outcome.error < 1e-6
    assert_golden(outcome, f"lower_pooling_{name}")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda x: F.adaptive_avg_pool2d(x, [2, 3]),
            "adaptive pooling with windows of different sizes",
        ),
        (
            lambda x: F.avg_pool2d(x, 2, 2, 1, ceil_mode=True, exclusive=False),
            "average over padding with ceil_mode, which shrinks the last window",
        ),
        (lambda x: x.mean(1), "mean over other dimensions than rows and columns"),
    ],
)
def test_pooling_that_has_no_single_window_is_refused(call, reason):
    outcome = after_passes(call, [IMAGE], [LowerPooling()])
    assert outcome.record.fired == 0 and outcome.record.refused == [reason]


@pytest.mark.parametrize("name", ["strided_padded", "depthwise", "transposed_grouped"])
def test_batch_norm_folds_into_the_convolution(name):
    def build():
        conv = CONVOLUTIONS[name]()
        return nn.Sequential(conv, nn.BatchNorm2D(4 if name == "depthwise" else 6))

    outcome = after_passes(made(build), [IMAGE], [*CONV, FoldBatchNorm()])
    assert outcome.ops in (["fused_conv2d"], ["fused_conv2d_transpose"])
    assert outcome.error < 1e-6
    assert_golden(outcome, f"fold_batch_norm_{name}")


def test_batch_norm_folds_into_a_biased_linear():
    layer = made(lambda: nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1D(6)))
    passes = [*LINEAR, FoldBias(), FoldBatchNorm()]
    outcome = after_passes(layer, [random_input(5, 8)], passes)
    assert outcome.ops == ["linear"] and outcome.error < 1e-6
    assert_golden(outcome, "fold_batch_norm_linear")


def test_folded_weights_follow_the_parameters():
    layer = made(lambda: nn.Sequential(nn.Conv2D(4, 6, 3, bias_attr=False), nn.BatchNorm2D(6)))
    outcome = after_passes(layer, [IMAGE], [*CONV, FoldBatchNorm()])
    weights, bias = outcome.graph.constants
    assert {id(t) for t in weights.sources} >= {id(layer[0].weight), id(layer[1]._variance)}
    before = bias.compute()
    layer[1].bias.set_value(layer[1].bias + 2.0)
    np.testing.assert_allclose(bias.compute(), before + 2.0, rtol=1e-6)


def test_batch_norm_is_not_folded_where_it_must_not():
    def shared():
        conv, norm = nn.Conv2D(4, 6, 3, bias_attr=False), nn.BatchNorm2D(6)

        class Shared(nn.Layer):
            def __init__(self):
                super().__init__()
                self.conv, self.norm = conv, norm

            def forward(self, x):
                y = self.conv(x)
                return self.norm(y), F.relu(y)

        return Shared()

    outcome = after_passes(made(shared), [IMAGE], [*CONV, FoldBatchNorm()])
    assert "batch_norm" in outcome.ops and outcome.record.fired == 0
    assert "is also read by relu" in outcome.record.refused[0]

    conv = made(lambda: nn.Conv2D(4, 6, 3, bias_attr=False))
    norm = made(lambda: nn.BatchNorm2D(6))

    def live_statistics(x):
        mean, variance = F.relu(norm._mean + x.mean()), norm._variance
        return F.batch_norm(conv(x), mean, variance, norm.weight, norm.bias)

    outcome = after_passes(live_statistics, [IMAGE], [*CONV, FoldBatchNorm()])
    assert outcome.record.refused == ["the batch norm's statistics or weights are not constants"]


def test_batch_norm_is_not_folded_over_an_activation_or_where_its_statistics_are_read():
    def build():
        return nn.Sequential(nn.Conv2D(4, 6, 3, bias_attr=False), nn.ReLU(), nn.BatchNorm2D(6))

    passes = [*CONV, LowerElementwise(), FusePostOps(), FoldBatchNorm()]
    outcome = after_passes(made(build), [IMAGE], passes)
    assert outcome.ops == ["fused_conv2d", "batch_norm"] and outcome.error < 1e-6
    reason = "an activation stands between the product and the batch norm"
    assert outcome.record.refused == [reason]

    graph = graph_of(made(lambda: nn.BatchNorm2D(4)), [IMAGE])
    graph.outputs.append(graph.nodes[0].outputs[1])
    refused = LowerBatchNorm().run(graph).refused
    assert refused == ["the statistics of the batch norm are read"]


def test_batch_norm_folds_forward_without_padding_only():
    layer = made(lambda: nn.Sequential(nn.BatchNorm2D(4), nn.Conv2D(4, 6, 3)))
    passes = [*CONV, FoldBatchNormForward()]
    outcome = after_passes(layer, [IMAGE], passes)
    assert outcome.ops == ["fused_conv2d", "add"] and outcome.error < 2e-6
    assert_golden(outcome, "fold_batch_norm_forward")

    layer = made(lambda: nn.Sequential(nn.BatchNorm2D(4), nn.Conv2D(4, 6, 3, padding=1)))
    outcome = after_passes(layer, [IMAGE], passes)
    assert outcome.record.fired == 0
    assert outcome.record.refused == ["the convolution after the batch norm pads with zeros"]


def test_lone_batch_norm_becomes_pointwise():
    outcome = after_passes(made(lambda: nn.BatchNorm2D(4)), [IMAGE], [LowerBatchNorm()])
    assert outcome.ops == ["fused_elementwise"] and outcome.error < 1e-6
    assert_golden(outcome, "lower_batch_norm")


@pytest.mark.parametrize("settings", [{"weight_attr": False}, {"bias_attr": False}])
def test_batch_norm_with_one_of_weight_and_bias(settings):
    def build():
        return nn.BatchNorm2D(4, **settings)

    norm = build()
    norm._mean.set_value(paddle.to_tensor([0.1, -0.2, 0.3, 0.0]))
    norm._variance.set_value(paddle.to_tensor([0.5, 1.5, 0.7, 1.0]))
    given = norm.bias if norm.weight is None or "weight_attr" in settings else norm.weight
    given.set_value(paddle.to_tensor([0.4, 1.3, -0.6, 0.9]))
    norm.eval()
    assert after_passes(norm, [IMAGE], [LowerBatchNorm()]).error < 1e-6
    both = nn.Sequential(nn.Conv2D(4, 4, 3, bias_attr=False), norm)
    both.eval()
    outcome = after_passes(both, [IMAGE], [*CONV, FoldBatchNorm()])
    assert outcome.ops == ["fused_conv2d"] and outcome.error < 2e-6


def test_batch_norm_in_channels_last_is_refused():
    layer = made(lambda: nn.BatchNorm2D(10, data_format="NHWC"))
    outcome = after_passes(layer, [IMAGE], [LowerBatchNorm()])
    assert outcome.record.refused == ["batch norm in layout NHWC"]


def test_products_in_one_form():
    layer = made(lambda: nn.Linear(8, 6))

    def call(x):
        y = paddle.matmul(x, layer.weight)
        z = paddle.matmul(y, layer.weight, transpose_y=True)
        return paddle.matmul(z, x.transpose([0, 2, 1]))

    outcome = after_passes(call, [ROWS], [AbsorbTransposes(), LowerProducts()])
    assert outcome.ops == ["linear", "linear", "fused_matmul"] and outcome.error < 1e-6
    assert_golden(outcome, "lower_products")


def test_products_of_vectors_and_integers_are_refused():
    outcome = after_passes(lambda x: paddle.matmul(x, x[0, 0]), [ROWS], [LowerProducts()])
    assert outcome.record.refused == ["matmul of a vector"]


def test_other_transposes_are_not_absorbed():
    def call(x):
        return paddle.matmul(x, x.transpose([1, 2, 0])[:, :, :3].transpose([1, 0, 2])[:3])

    outcome = after_passes(lambda x: paddle.bmm(x, x.transpose([0, 2, 1])), [ROWS], [])
    assert outcome.error == 0
    x = random_input(4, 4, 4)
    outcome = after_passes(
        lambda x: paddle.matmul(x, x.transpose([1, 0, 2])), [x], [AbsorbTransposes()]
    )
    assert outcome.ops == ["transpose", "matmul"] and outcome.record.fired == 0


def test_bias_folds():
    layer = made(lambda: nn.Sequential(nn.Conv2D(4, 6, 3), nn.Conv2DTranspose(6, 4, 2)))
    outcome = after_passes(layer, [IMAGE], [*CONV, FoldBias()])
    assert outcome.ops == ["fused_conv2d", "fused_conv2d_transpose"] and outcome.error < 1e-6
    assert_golden(outcome, "fold_bias_convolution")

    layer = made(lambda: nn.Linear(8, 6))
    outcome = after_passes(lambda x: layer(x) + layer.bias, [ROWS], [*LINEAR, FoldBias()])
    assert outcome.ops == ["linear"] and outcome.error < 1e-6
    assert_golden(outcome, "fold_bias_linear")


def test_bias_that_differs_within_a_channel_is_refused():
    layer = made(lambda: nn.Linear(8, 5, bias_attr=False))
    other = nn.Linear(8, 5).bias
    outcome = after_passes(
        lambda x: layer(x) + other.reshape([5, 1]), [ROWS], [*LINEAR, FoldBias()]
    )
    assert outcome.ops == ["linear", "add"] and outcome.error < 1e-6
    reason = "a constant of shape [5, 1] is not one number per channel"
    assert outcome.record.refused == [reason]


def test_scale_folds():
    layer = made(lambda: nn.Linear(8, 6))
    passes = [*LINEAR, FoldBias(), FoldScale()]
    outcome = after_passes(lambda x: layer(x) * 0.5 + 1.0, [ROWS], passes)
    assert outcome.ops == ["linear"] and outcome.error < 1e-6
    assert_golden(outcome, "fold_scale")


def test_scale_of_a_shared_product_is_refused():
    layer = made(lambda: nn.Linear(8, 6))

    def call(x):
        y = layer(x)
        return y * 2.0, F.relu(y)

    outcome = after_passes(call, [ROWS], [*LINEAR, FoldBias(), FoldScale()])
    assert outcome.record.fired == 0
    assert "is also read by relu" in outcome.record.refused[0]


def _projections(biases):
    class Projections(nn.Layer):
        def __init__(self):
            super().__init__()
            self.parts = nn.LayerList(
                [nn.Linear(8, n, bias_attr=None if b else False) for n, b in zip((4, 4, 6), biases)]
            )

        def forward(self, x):
            return [part(x) for part in self.parts]

    return Projections


def test_projections_merge():
    layer = made(_projections([True, True, True]))
    passes = [*LINEAR, FoldBias(), MergeProjections()]
    outcome = after_passes(layer, [ROWS], passes)
    assert outcome.ops == ["linear", "split"] and outcome.error < 1e-6
    assert_golden(outcome, "merge_projections")


def test_projections_of_different_kinds_are_refused():
    layer = made(_projections([True, False, True]))
    outcome = after_passes(layer, [ROWS], [*LINEAR, FoldBias(), MergeProjections()])
    assert outcome.ops == ["linear"] * 3
    assert outcome.record.refused == ["some projections have a bias and some have none"]
