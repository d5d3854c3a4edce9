"""Networks of every common kind are captured whole, compiled, and give eager's results."""

from __future__ import annotations

from collections.abc import Callable

import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

import paddle_fluid_boost as pfb


class Tagger(nn.Layer):
    """Embedding, two-way LSTM, classifier: its LSTM holds a buffer without memory."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.lstm = nn.LSTM(16, 16, 2, direction="bidirect")
        self.classify = nn.Linear(32, 9)

    def forward(self, words):
        hidden, _ = self.lstm(self.embed(words))
        return F.softmax(self.classify(hidden), -1)


class Recurrent(nn.Layer):
    """Returns a tensor and the state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 16)

    def forward(self, x):
        hidden, state = self.gru(x)
        return hidden[:, -1], state


class Detector(nn.Layer):
    """A YOLO-like head: strides in a list, a dictionary of settings, grids made on the fly."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.LayerList(
            nn.Sequential(
                nn.Conv2D(3 if i == 0 else 8, 8, 3, 2, 1), nn.BatchNorm2D(8), nn.LeakyReLU(0.1)
            )
            for i in range(2)
        )
        self.heads = nn.LayerList(nn.Conv2D(8, 7, 1) for _ in range(2))
        self.strides = [2, 4]
        self.settings = {"scale": 2}

    def forward(self, x):
        found = []
        for stage, head, stride in zip(self.stages, self.heads, self.strides):
            x = stage(x)
            y = head(x)
            batch, channels, height, width = y.shape
            rows, columns = paddle.meshgrid(paddle.arange(height), paddle.arange(width))
            grid = paddle.stack([columns, rows], -1).astype("float32")
            y = y.transpose([0, 2, 3, 1])
            centre = (F.sigmoid(y[..., :2]) * self.settings["scale"] + grid) * stride
            parts = [centre, paddle.exp(y[..., 2:4]), F.sigmoid(y[..., 4:])]
            found.append(paddle.concat(parts, -1).reshape([batch, -1, channels]))
        return paddle.concat(found, 1)


class UNet(nn.Layer):
    """One level down and up with a skip connection."""

    def __init__(self) -> None:
        super().__init__()

        def block(inside: int, outside: int) -> nn.Layer:
            return nn.Sequential(
                nn.Conv2D(inside, outside, 3, padding=1), nn.BatchNorm2D(outside), nn.ReLU()
            )

        self.left, self.bottom, self.right = block(3, 8), block(8, 16), block(16, 8)
        self.up = nn.Conv2DTranspose(16, 8, 2, 2)
        self.out = nn.Conv2D(8, 1, 1)

    def forward(self, x):
        skip = self.left(x)
        deep = self.up(self.bottom(F.max_pool2d(skip, 2)))
        return F.sigmoid(self.out(self.right(paddle.concat([deep, skip], 1))))


class Decoder(nn.Layer):
    """A GPT-like block with causal mask and tied embedding."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(50, width), nn.Embedding(16, width)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, ids):
        batch, length = ids.shape
        x = self.embed(ids) + self.position(paddle.arange(length))
        packed = self.qkv(self.norm(x)).reshape([batch, length, 3, self.heads, -1])
        q, k, v = packed.transpose([2, 0, 3, 1, 4]).unbind(0)
        scores = q @ k.transpose([0, 1, 3, 2]) / q.shape[-1] ** 0.5
        mask = paddle.triu(paddle.full([length, length], -1e9), 1)
        mixed = (F.softmax(scores + mask, -1) @ v).transpose([0, 2, 1, 3])
        x = x + self.project(mixed.reshape([batch, length, -1]))
        x = x + self.shrink(F.gelu(self.grow(self.norm(x))))
        return x @ self.embed.weight.t()


def words() -> paddle.Tensor:
    return paddle.randint(0, 50, [2, 12])


def encoder() -> nn.Layer:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, activation="gelu"), 2)


NETS: dict[str, tuple[Callable[[], nn.Layer], Callable[[], paddle.Tensor]]] = {
    "tagger": (Tagger, words),
    "recurrent": (Recurrent, lambda: paddle.randn([2, 5, 8])),
    "detector": (Detector, lambda: paddle.randn([1, 3, 32, 32])),
    "unet": (UNet, lambda: paddle.randn([1, 3, 32, 32])),
    "decoder": (Decoder, words),
    "encoder": (encoder, lambda: paddle.randn([2, 6, 32])),
    "mobilenet": (
        lambda: paddle.vision.models.mobilenet_v3_small(scale=0.35),
        lambda: paddle.randn([1, 3, 64, 64]),
    ),
}


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", NETS)
def test_compiled_whole_and_equal(name: str) -> None:
    make, example = NETS[name]
    paddle.seed(7)
    net = make()
    net.eval()
    eager = net.forward
    boosted = pfb.to_static(net)
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        for seed in range(5):
            paddle.seed(seed)
            x = example()
            got, want = first(boosted(x)), first(eager(x))
            scale = float(want.abs().max())
            assert float((got - want).abs().max()) <= 1e-5 * scale
        report = pfb.explain(boosted)
    assert report.state == "compiled", report
    assert report.signatures[0].calls == 5
    pfb.uninstall()
