"""Constructs that converters trip over, each as a function that makes (callable, inputs)."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.vision.ops import deform_conv2d


def image(*shape):
    paddle.seed(7)
    return paddle.randn(shape or [2, 8, 8, 8])


def of_image(call):
    return lambda: (call, [image()])


def of(call, *shapes):
    return lambda: (call, [image(*shape) for shape in shapes])


def layer(make, *shapes):
    def made():
        paddle.seed(3)
        one = make()
        one.eval()
        return one, [image(*shape) for shape in shapes]

    return made


class Deformable(nn.Layer):
    def __init__(self):
        super().__init__()
        self.offset = nn.Conv2D(8, 18, 3, padding=1)
        self.weight = self.create_parameter([4, 8, 3, 3])

    def forward(self, x):
        return deform_conv2d(x, self.offset(x), self.weight, padding=1)


def assign_number(x):
    y = x * 1.0
    y[:, 0] = 0.5
    return y


def assign_tensor(x):
    y = x * 1.0
    y[1:, 2:5] = x[:1, 0:3]
    return y


#: Rewritten before Paddle2ONNX sees them, which fails on them or gets them wrong.
REWRITTEN = {
    "leaky_relu": of_image(lambda x: F.leaky_relu(x, 0.1)),
    "rrelu": of_image(lambda x: F.rrelu(x, training=False)),
    "celu": of_image(lambda x: F.celu(x, 0.7)),
    "softplus": of_image(lambda x: F.softplus(x, 2.0, 15.0)),
    "softplus_low_threshold": of_image(lambda x: F.softplus(x, 2.0, 1.0)),
    "stanh": of_image(paddle.stanh),
    "gelu_tanh": of_image(lambda x: F.gelu(x, True)),
    "maxout": of_image(lambda x: F.maxout(x, 2)),
    "masked_fill": of(lambda x: paddle.masked_fill(x, x > 0, -1e4), [4, 3]),
    "expm1": of(lambda x: paddle.expm1(x * 1e-2), [4, 3]),
    "lerp": of(lambda x, y: paddle.lerp(x, y, 0.3), [4, 3], [4, 3]),
    "addmm": of(lambda x, y, z: paddle.addmm(x, y, z, alpha=0.3, beta=0.4), [4, 4], [4, 3], [3, 4]),
    "logit": of(lambda x: paddle.logit(F.sigmoid(x), 1e-2), [4, 3]),
    "trunc": of(lambda x: paddle.trunc(x * 3), [4, 3]),
    "group_norm": layer(lambda: nn.GroupNorm(2, 8), [2, 8, 4, 4]),
    "group_norm_epsilon": layer(lambda: nn.GroupNorm(2, 8, epsilon=0.05), [2, 8, 4, 4]),
    "channel_shuffle": of_image(lambda x: F.channel_shuffle(x, 2)),
    "pixel_unshuffle": of_image(lambda x: F.pixel_unshuffle(x, 2)),
    "pad_value": of_image(lambda x: F.pad(x, [1, 0, 2, 1], value=0.5)),
    "mean_all": of_image(lambda x: x.mean()),
    "sum_all": of_image(lambda x: x.sum()),
    "max_all": of_image(lambda x: x.max()),
    "mean_all_keepdim": of_image(lambda x: x.mean(keepdim=True)),
    "std": of_image(lambda x: x.std()),
    "amax": of_image(lambda x: x.amax(1)),
    "interpolate_scale": of_image(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "interpolate_nearest": of_image(lambda x: F.interpolate(x, scale_factor=2, mode="nearest")),
    "interpolate_corners": of_image(
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True)
    ),
    "adaptive_average": of_image(lambda x: F.adaptive_avg_pool2d(x, 3)),
    "adaptive_average_uneven": of_image(lambda x: F.adaptive_avg_pool2d(x, [3, 5])),
    "adaptive_maximum": of_image(lambda x: F.adaptive_max_pool2d(x, 3)),
    "deformable_without_mask": layer(Deformable, [2, 8, 8, 8]),
    "assign_number": of(assign_number, [4, 6]),
    "assign_tensor": of(assign_tensor, [4, 6]),
    "lstm_stacked": layer(lambda: nn.LSTM(8, 6, 2, direction="bidirect"), [2, 5, 8]),
    "gru_stacked": layer(lambda: nn.GRU(8, 6, 3), [2, 5, 8]),
}

#: Converted as they are.
AS_THEY_ARE = {
    "convolution": layer(lambda: nn.Conv2D(8, 4, 3, padding="SAME"), [2, 8, 7, 7]),
    "transposed": layer(lambda: nn.Conv2DTranspose(8, 4, 2, stride=2), [2, 8, 7, 7]),
    "prelu": layer(lambda: nn.PReLU(8, 0.2), [2, 8, 4, 4]),
    "rank_0": of(lambda x: x[0, 0] + 1.5, [4, 3]),
    "attention": layer(lambda: nn.MultiHeadAttention(16, 4), [2, 5, 16]),
    "encoder": layer(lambda: nn.TransformerEncoderLayer(16, 4, 32), [2, 5, 16]),
    "lstm": layer(lambda: nn.LSTM(8, 6), [2, 5, 8]),
    "top_k": of(lambda x: paddle.topk(x, 3), [4, 6]),
    "grid_sample": of(F.grid_sample, [1, 8, 8, 8], [1, 4, 4, 2]),
    "where": of(lambda x: paddle.where(x > 0, x, -x), [4, 6]),
    "einsum": of(lambda x, y: paddle.einsum("bij,bjk->bik", x, y), [2, 3, 4], [2, 4, 5]),
}

CONSTRUCTS = {**REWRITTEN, **AS_THEY_ARE}
