"""The networks that are measured, each with an input; weights are random but always the same."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

#: name -> what it is, for tables.
DESCRIPTIONS = {
    "resnet18": "ResNet-18, 1x3x224x224",
    "resnet50": "ResNet-50, 1x3x224x224",
    "mobilenet_v3_small": "MobileNetV3-small, 1x3x224x224",
    "encoder4": "transformer encoder, 4 layers, d=256, L=128, with embedding",
    "encoder12": "transformer encoder, 12 layers, d=256, L=128",
    "lstm": "LSTM, 2 layers of 128, 50 steps",
}


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


class Recurrent(nn.Layer):
    """Two LSTM layers; the output of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, num_layers=2)

    def forward(self, sequence: paddle.Tensor) -> paddle.Tensor:
        return self.lstm(sequence)[0][:, -1]


def build(name: str) -> tuple[nn.Layer, paddle.Tensor]:
    """The network in eval mode, and one input for it."""
    paddle.seed(0)
    random = np.random.RandomState(0)
    if name.startswith("encoder"):
        net: nn.Layer = Encoder(int(name[len("encoder") :]))
        data = random.randint(0, 30522, (1, 128)).astype("int64")
    elif name == "lstm":
        net, data = Recurrent(), random.randn(1, 50, 64).astype("float32")
    else:
        net = getattr(paddle.vision.models, name)(pretrained=False)
        data = random.randn(1, 3, 224, 224).astype("float32")
    net.eval()
    return net, paddle.to_tensor(data)
