"""What the whole pipeline makes of small graphs: each of its passes is needed for one of them."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
import pytest
from graph_testing import after_passes, calibrated, random_input
from paddle import nn

from paddle_fluid_boost.passes.pipeline import PASSES

IMAGE, ROWS, CUBE = random_input(2, 4, 8, 8), random_input(3, 8), random_input(2, 3, 4)
WEIGHT = nn.Linear(8, 6).weight
TABLE = nn.Embedding(5, 4).weight
IDS = paddle.to_tensor([[0, 1, 2], [2, 3, 4]])


def conv(inputs: int = 4, outputs: int = 4, kernel: int = 3, **more: Any) -> nn.Layer:
    return nn.Conv2D(inputs, outputs, kernel, **more)


def norm_by_hand(x: Any) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / paddle.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def unread(x: Any) -> Any:
    paddle.tanh(x)
    return F.relu(x)


def attend(x: Any) -> Any:
    return paddle.matmul(F.softmax(paddle.matmul(x, x, transpose_y=True) * 0.5), x)


class Packed(nn.Layer):
    """Projections in one matrix, taken apart by ``unbind``."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 12)

    def forward(self, x: Any) -> Any:
        packed = self.project(x).reshape([2, 3, 3, 2, 2]).transpose([2, 0, 3, 1, 4])
        q, k, v = packed.unbind(0)
        return paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True)), v)


class Parts(nn.Layer):
    """Two convolutions whose results are joined before the activation."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = conv(), conv()

    def forward(self, x: Any) -> Any:
        return F.relu(paddle.concat([self.one(x), self.two(x)], 1))


class Excited(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.excite = conv(4, 2, 1), conv(2, 4, 1)

    def forward(self, x: Any) -> Any:
        gate = self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1))))
        return x * F.sigmoid(gate)


class Projections(nn.Layer):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.LayerList(nn.Linear(8, 4) for _ in range(count))

    def forward(self, x: Any) -> Any:
        return [layer(x) for layer in self.layers]


# what: (function, inputs, ops that are left)
PIPELINE = {
    "identities": (
        lambda x: F.relu(F.dropout(x, 0.5, training=False)), [ROWS], ["fused_elementwise"],
    ),
    "constants": (lambda x: paddle.matmul(x, WEIGHT.reshape([6, 8]).T), [ROWS], ["linear"]),
    "equal": (lambda x: F.softmax(x) + F.softmax(x), [ROWS], ["softmax", "fused_elementwise"]),
    "dead": (unread, [ROWS], ["fused_elementwise"]),
    "views": (lambda x: x.unsqueeze(0).flatten(), [ROWS], ["reshape"]),
    "packed": (
        Packed(), [CUBE], ["linear", "reshape", *["slice", "transpose"] * 3, "attention"],
    ),
    "transposes": (
        lambda x: paddle.matmul(x, x.transpose([0, 2, 1])), [CUBE], ["fused_matmul"],
    ),
    "transposed matrix": (lambda x, y: paddle.matmul(x, y.T), [ROWS, ROWS * 2], ["fused_matmul"]),
    "transposed twice": (
        lambda x: F.relu(x.transpose([0, 2, 1]).transpose([0, 2, 1])), [CUBE],
        ["fused_elementwise"],
    ),
    "numbers": (lambda x: (x * 2.0 + 1.0) * 3.0 - 1.0, [ROWS], ["fused_elementwise"]),
    "activation": (lambda x: x * F.sigmoid(x), [ROWS], ["fused_elementwise"]),
    "layer norm": (norm_by_hand, [CUBE], ["layer_norm"]),
    "rms norm": (
        lambda x: x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5), [CUBE],
        ["fused_rms_norm"],
    ),
    "attention": (attend, [CUBE], ["attention"]),
    "convolution": (
        nn.Sequential(conv(bias_attr=False), nn.BatchNorm2D(4), nn.ReLU()), [IMAGE],
        ["fused_conv2d"],
    ),
    "norm before": (nn.Sequential(nn.BatchNorm2D(4), conv()), [IMAGE], ["fused_conv2d"]),
    "scaled": (lambda x: paddle.matmul(x, WEIGHT) * 0.5 + 1.0, [ROWS], ["linear"]),
    "pooling": (lambda x: F.max_pool2d(x, 2), [IMAGE], ["fused_pool2d"]),
    "recurrent": (nn.GRU(4, 5), [CUBE], ["transpose", "recurrent", "transpose"]),
    "two projections": (Projections(2), [ROWS], ["linear", "split"]),
    "projections": (Projections(3), [ROWS], ["linear", "split"]),
    "norm": (nn.BatchNorm2D(4), [IMAGE], ["fused_elementwise"]),
    "parts": (Parts(), [IMAGE], ["fused_conv2d", "fused_conv2d", "concat"]),
    "sum and norm": (lambda x, y: F.layer_norm(x + y, [4]), [CUBE, CUBE * 2], ["add_layer_norm"]),
    "looked up": (
        lambda i: F.layer_norm(F.embedding(i, TABLE), [4]), [IDS], ["embedding_layer_norm"],
    ),
    "gate": (Excited(), [IMAGE], ["squeeze_excitation"]),
}  # fmt: skip


@pytest.mark.parametrize("what", list(PIPELINE))
def test_what_is_left(what: str) -> None:
    function, inputs, left = PIPELINE[what]
    if isinstance(function, nn.Layer):
        calibrated(function)
    outcome = after_passes(function, inputs, PASSES)
    assert outcome.error < 5e-6
    assert outcome.ops == left
