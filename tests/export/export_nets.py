"""Small networks that the tests of export share; also named on the command line by the tests."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class SmallNet(nn.Layer):
    """Convolutions, batch norm, LeakyReLU (which breaks Paddle2ONNX), a dictionary of results."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(3, 8, 3, padding=1),
            nn.BatchNorm2D(8),
            nn.LeakyReLU(0.1),
            nn.Conv2D(8, 16, 3, stride=2),
            nn.ReLU(),
        )
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        y = self.features(x).mean([2, 3])
        return {"logits": self.head(y), "feature": y.reshape([y.shape[0], 4, -1])}


class FixedPool(nn.Layer):
    """Adaptive pooling to 3x3: ONNX has no such thing for open height and width."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)

    def forward(self, x):
        return F.adaptive_avg_pool2d(self.conv(x), 3)


class Branch(nn.Layer):
    """A branch on a value: captured by Paddle's AST way only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0:
            x = self.linear(x)
        return x * 2.0


class Random(nn.Layer):
    def forward(self, x):
        return x + paddle.rand(x.shape)


class Unknown(nn.Layer):
    """An op that Paddle2ONNX does not know."""

    def forward(self, x):
        return paddle.kron(x, x)


def square(x):
    return x * x


def make_branch() -> nn.Layer:
    return Branch()


class Broken(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        raise RuntimeError("no configuration")
