"""Small networks of the kinds that people run, in ordinary dygraph code, for the passes to meet."""

from __future__ import annotations

from typing import Any, Callable

import paddle
import paddle.nn.functional as F
from graph_testing import random_input
from paddle import nn


def conv_norm(inputs: int, outputs: int, side: int, act: type | None, **more: Any) -> nn.Layer:
    layers = [
        nn.Conv2D(inputs, outputs, side, padding=side // 2, bias_attr=False, **more),
        nn.BatchNorm2D(outputs),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


class SqueezeExcitation(nn.Layer):
    """conv-bn-relu, then channels gated by their own average."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = conv_norm(8, 8, 3, nn.ReLU)
        self.down, self.up = nn.Conv2D(8, 4, 1), nn.Conv2D(4, 8, 1)

    def forward(self, x: Any) -> Any:
        x = self.conv(x)
        gate = F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))
        return x * F.sigmoid(self.up(gate))


class UNet(nn.Layer):
    """Encoder, decoder with transposed convolutions, skips by concat."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = self.block(3, 8), self.block(8, 16)
        self.up = nn.Conv2DTranspose(16, 8, 2, 2)
        self.last, self.head = self.block(16, 8), nn.Conv2D(8, 1, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Layer:
        return nn.Sequential(
            nn.Conv2D(inputs, outputs, 3, padding=1),
            nn.BatchNorm2D(outputs),
            nn.LeakyReLU(0.1),
        )

    def forward(self, x: Any) -> Any:
        first = self.one(x)
        deep = self.two(F.max_pool2d(first, 2))
        joined = paddle.concat([self.up(deep), first], 1)
        return F.sigmoid(self.head(self.last(joined)))


class Yolo(nn.Layer):
    """Cross-stage blocks, spatial pyramid pooling, an upsampled neck, boxes decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_norm(3, 8, 3, nn.Silu, stride=2)
        self.left, self.right = conv_norm(8, 8, 1, nn.Silu), conv_norm(8, 8, 1, nn.Silu)
        self.inner = nn.Sequential(conv_norm(8, 8, 1, nn.Silu), conv_norm(8, 8, 3, nn.Silu))
        self.join = conv_norm(16, 16, 1, nn.Silu)
        self.down = conv_norm(16, 16, 3, nn.Silu, stride=2)
        self.pyramid = conv_norm(64, 16, 1, nn.Silu)
        self.head = nn.Conv2D(32, 3 * 7, 1)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        left = self.left(x)
        fine = self.join(paddle.concat([left + self.inner(left), self.right(x)], 1))
        y = self.down(fine)
        pools = [y]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        y = F.interpolate(self.pyramid(paddle.concat(pools, 1)), scale_factor=2, mode="nearest")
        out = self.head(paddle.concat([y, fine], 1))
        n, _, h, w = out.shape
        out = F.sigmoid(out.reshape([n, 3, 7, h, w]).transpose([0, 1, 3, 4, 2]))
        centre = (out[..., :2] * 2.0 - 0.5) * 8.0
        size = (out[..., 2:4] * 2.0) ** 2
        return paddle.concat([centre, size, out[..., 4:]], -1).reshape([n, -1, 7])


class TextRecogniser(nn.Layer):
    """Convolutions, bidirectional LSTM, class scores per column (CRNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(3, 8, 3, nn.Hardswish),
            nn.MaxPool2D(2),
            conv_norm(8, 16, 3, nn.Swish),
            nn.MaxPool2D((2, 1)),
        )
        self.rnn = nn.LSTM(16 * 4, 12, direction="bidirect")
        self.scores = nn.Linear(24, 11)

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        n, c, h, w = y.shape
        y = y.reshape([n, c * h, w]).transpose([0, 2, 1])
        return F.softmax(self.scores(self.rnn(y)[0]))


class Svtr(nn.Layer):
    """A mixing block of a text recogniser: patches, packed attention, norm before, gelu."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential(conv_norm(3, 8, 3, nn.GELU, stride=2), nn.Conv2D(8, 16, 1))
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose([0, 2, 1])
        n, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape([n, length, 3, 4, 4]).transpose([2, 0, 3, 1, 4])
        q, k, v = qkv[0] * 0.5, qkv[1], qkv[2]
        weights = F.softmax(q.matmul(k.transpose([0, 1, 3, 2])), axis=-1)
        x = x + self.proj(weights.matmul(v).transpose([0, 2, 1, 3]).reshape([n, length, width]))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Layer):
    """GPT-like: learned positions, causal mask, gelu by hand, scores by the tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(16) for _ in range(3))
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, ids: Any) -> Any:
        n, length = ids.shape
        x = self.words(ids) + self.positions(paddle.arange(length))
        mask = paddle.triu(paddle.full([length, length], -1e9), 1)
        qkv = self.qkv(self.norm1(x)).reshape([n, length, 3, 4, 4])
        q, k, v = qkv.transpose([2, 0, 3, 1, 4]).unbind(0)
        scores = paddle.matmul(q, k, transpose_y=True) / 2.0 + mask
        y = paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3]).reshape([n, length, 16])
        x = x + self.proj(y)
        u = self.wide(self.norm2(x))
        u = 0.5 * u * (1 + paddle.tanh(0.7978845608 * (u + 0.044715 * u**3)))
        x = self.norm3(x + self.narrow(u))
        return paddle.matmul(x, self.words.weight, transpose_y=True)


class Bert(nn.Layer):
    """Three embeddings, a padding mask, two encoder layers, a pooled first token."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.segments, self.norm = nn.Embedding(2, 16), nn.LayerNorm(16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu")
        self.encoder, self.pooler = nn.TransformerEncoder(layer, 2), nn.Linear(16, 16)

    def forward(self, ids: Any, segments: Any, valid: Any) -> Any:
        positions = self.positions(paddle.arange(ids.shape[1]).unsqueeze(0))
        x = self.norm(self.words(ids) + positions + self.segments(segments))
        mask = ((1.0 - valid.astype("float32")) * -1e4).unsqueeze([1, 2])
        y = self.encoder(x, mask)
        return y, F.tanh(self.pooler(y[:, 0]))


class Tagger(nn.Layer):
    """Embedding, two-layer bidirectional GRU, a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scores = nn.Embedding(50, 8), nn.Linear(20, 5)
        self.rnn = nn.GRU(8, 10, 2, direction="bidirect")

    def forward(self, ids: Any) -> Any:
        return self.scores(self.rnn(self.words(ids))[0])


def token_ids(*shape: int, below: int = 50) -> Any:
    return (random_input(*shape, seed=9) * 100).abs().astype("int64") % below


Recipe = tuple[Callable[[], nn.Layer], Callable[[], list[Any]]]


def _image(*shape: int) -> Callable[[], list[Any]]:
    return lambda: [random_input(*shape)]


SMALL: dict[str, Recipe] = {
    "squeeze_excitation": (SqueezeExcitation, _image(2, 8, 8, 8)),
    "unet": (UNet, _image(1, 3, 16, 16)),
    "yolo": (Yolo, _image(1, 3, 32, 32)),
    "text_recogniser": (TextRecogniser, _image(1, 3, 16, 40)),
    "svtr": (Svtr, _image(2, 3, 8, 16)),
    "decoder": (Decoder, lambda: [token_ids(2, 7)]),
    "bert": (Bert, lambda: [token_ids(2, 6), token_ids(2, 6, below=2), token_ids(2, 6, below=2)]),
    "tagger": (Tagger, lambda: [token_ids(1, 9)]),
    "encoder_norm_first": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, normalize_before=True),
        _image(2, 5, 16),
    ),
    "transformer_decoder": (
        lambda: nn.TransformerDecoderLayer(16, 4, 32),
        lambda: [random_input(2, 4, 16), random_input(2, 6, 16, seed=2)],
    ),
    "mobilenet_v3_small": (paddle.vision.models.mobilenet_v3_small, _image(1, 3, 64, 64)),
}

_SIDES = {"inception_v3": 128, "googlenet": 224, "alexnet": 224}
VISION: dict[str, Recipe] = {
    name: (
        getattr(paddle.vision.models, name),
        _image(1, 3, _SIDES.get(name, 64), _SIDES.get(name, 64)),
    )
    for name in (
        "resnet18",
        "resnet50",
        "resnext50_32x4d",
        "mobilenet_v1",
        "mobilenet_v2",
        "mobilenet_v3_large",
        "vgg11",
        "squeezenet1_1",
        "shufflenet_v2_x1_0",
        "shufflenet_v2_swish",
        "densenet121",
        "googlenet",
        "inception_v3",
        "alexnet",
    )
}
