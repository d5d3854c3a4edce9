"""Networks for text as people write them: encoders, a decoder, recurrent ones, recognisers."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn


class Encoder(nn.Layer):
    """Embedding, ``layers`` transformer layers, a classifier on the first position."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30522, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.classify = nn.Linear(256, 2)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        return self.classify(self.encoder(self.embedding(tokens))[:, 0])


class _Attention(nn.Layer):
    """Written out by hand, as in most code bases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor | None) -> paddle.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part(x).reshape([batch, length, self.heads, -1]).transpose([0, 2, 1, 3])
            for part in (self.query, self.key, self.value)
        )
        scores = paddle.matmul(query, key, transpose_y=True) / math.sqrt(width / self.heads)
        if mask is not None:
            scores = scores + mask
        mixed = paddle.matmul(F.softmax(scores, axis=-1), value)
        return self.out(mixed.transpose([0, 2, 1, 3]).reshape([batch, length, width]))


class _Block(nn.Layer):
    def __init__(self, width: int, heads: int, norm_first: bool) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_first = norm_first

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor | None = None) -> paddle.Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.narrow(F.gelu(self.wide(self.norm2(x))))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.narrow(F.gelu(self.wide(x))))


class Bert(nn.Layer):
    """As ERNIE and BERT: three embeddings, a padding mask, a pooler; four layers of 312."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(21128, 312), nn.Embedding(512, 312)
        self.kinds = nn.Embedding(2, 312)
        self.norm = nn.LayerNorm(312)
        self.blocks = nn.LayerList(_Block(312, 12, norm_first=False) for _ in range(4))
        self.pooler, self.classify = nn.Linear(312, 312), nn.Linear(312, 2)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        mask = (tokens == 0).astype("float32").unsqueeze([1, 2]) * -1e4
        positions = paddle.arange(tokens.shape[1]).unsqueeze(0)
        kinds = paddle.zeros_like(tokens)
        x = self.norm(self.words(tokens) + self.positions(positions) + self.kinds(kinds))
        for block in self.blocks:
            x = block(x, mask)
        return self.classify(paddle.tanh(self.pooler(x[:, 0])))


class Gpt(nn.Layer):
    """A decoder of six layers of 256: the scores of the next token over a whole prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(8000, 256), nn.Embedding(512, 256)
        self.blocks = nn.LayerList(_Block(256, 8, norm_first=True) for _ in range(6))
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 8000, bias_attr=False)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        length = tokens.shape[1]
        x = self.words(tokens) + self.positions(paddle.arange(length))
        mask = paddle.triu(paddle.full([length, length], -1e9), diagonal=1)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x)[:, -1])


class Recurrent(nn.Layer):
    """Two LSTM layers; the output of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, num_layers=2)

    def forward(self, sequence: paddle.Tensor) -> paddle.Tensor:
        return self.lstm(sequence)[0][:, -1]


class Tagger(nn.Layer):
    """Embedding, two bidirectional GRU layers, a tag for each token: as in word segmentation."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20000, 128)
        self.gru = nn.GRU(128, 128, num_layers=2, direction="bidirect")
        self.tags = nn.Linear(256, 57)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        return self.tags(self.gru(self.words(tokens))[0])


def _conv(inputs: int, outputs: int, stride: tuple[int, int] = (1, 1)) -> nn.Layer:
    conv = nn.Conv2D(inputs, outputs, 3, stride=stride, padding=1, bias_attr=False)
    return nn.Sequential(conv, nn.BatchNorm2D(outputs), nn.ReLU())


class Crnn(nn.Layer):
    """Text recognition: convolutions down to one row, a bidirectional LSTM, scores for CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            _conv(3, 32), nn.MaxPool2D(2), _conv(32, 64), nn.MaxPool2D(2),
            _conv(64, 128, (2, 1)), _conv(128, 128),
            _conv(128, 256, (2, 1)), _conv(256, 256, (2, 1)),
        )  # fmt: skip
        self.lstm = nn.LSTM(256, 96, num_layers=2, direction="bidirect")
        self.scores = nn.Linear(192, 6625)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        x = self.convolutions(image).squeeze(2).transpose([0, 2, 1])
        return F.softmax(self.scores(self.lstm(x)[0]), axis=-1)


class Svtr(nn.Layer):
    """Text recognition by attention over patches (SVTR, tiny), scores for CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential(_conv(3, 32, (2, 2)), _conv(32, 64, (2, 2)))
        self.first = nn.LayerList(_Block(64, 2, norm_first=True) for _ in range(2))
        self.merge = nn.Conv2D(64, 128, 3, stride=(2, 1), padding=1)
        self.second = nn.LayerList(_Block(128, 4, norm_first=True) for _ in range(2))
        self.scores = nn.Linear(128, 6625)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        x = self.patches(image)
        batch, channels, height, width = x.shape
        x = x.flatten(2).transpose([0, 2, 1])
        for block in self.first:
            x = block(x)
        x = self.merge(x.transpose([0, 2, 1]).reshape([batch, channels, height, width]))
        height = x.shape[2]
        x = x.flatten(2).transpose([0, 2, 1])
        for block in self.second:
            x = block(x)
        x = x.reshape([batch, height, width, -1]).mean(axis=1)
        return F.softmax(self.scores(x), axis=-1)
