"""The same architectures in PyTorch, for torch.compile and TorchScript.  Weights are their own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class _Residual(nn.Module):
    def __init__(self, inputs: int, width: int, outputs: int, stride: int) -> None:
        super().__init__()
        if outputs == width:  # basic block
            shapes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        else:  # bottleneck
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.layers = nn.Sequential()
        for i, (a, b, side, step) in enumerate(shapes):
            conv = nn.Conv2d(a, b, side, step, side // 2, bias=False)
            self.layers.append(nn.Sequential(conv, nn.BatchNorm2d(b)))
            if i + 1 < len(shapes):
                self.layers.append(nn.ReLU())
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


def resnet(blocks: tuple[int, ...], expansion: int) -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for i in range(count):
            stride = 2 if stage and not i else 1
            net.append(_Residual(inputs, width, width * expansion, stride))
            inputs = width * expansion
    return net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)])


class _Gate(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), nn.ReLU(),
            nn.Conv2d(inner, channels, 1), nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.layers(x)


class _Inverted(nn.Module):
    def __init__(
        self, inputs: int, side: int, wide: int, outputs: int, gate: bool, act: type, stride: int
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential()
        if wide != inputs:
            self.layers.extend(
                [nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), act()]
            )
        depthwise = nn.Conv2d(wide, wide, side, stride, side // 2, groups=wide, bias=False)
        self.layers.extend([depthwise, nn.BatchNorm2d(wide), act()])
        if gate:
            self.layers.append(_Gate(wide, max(8, (wide // 4 + 4) // 8 * 8)))
        self.layers.extend([nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)])
        self.keeps = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.keeps else self.layers(x)


def mobilenet_v3_small() -> nn.Module:
    relu, hard = nn.ReLU, nn.Hardswish
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), hard())
    for row in (
        (16, 3, 16, 16, True, relu, 2), (16, 3, 72, 24, False, relu, 2),
        (24, 3, 88, 24, False, relu, 1), (24, 5, 96, 40, True, hard, 2),
        (40, 5, 240, 40, True, hard, 1), (40, 5, 240, 40, True, hard, 1),
        (40, 5, 120, 48, True, hard, 1), (48, 5, 144, 48, True, hard, 1),
        (48, 5, 288, 96, True, hard, 2), (96, 5, 576, 96, True, hard, 1),
        (96, 5, 576, 96, True, hard, 1),
    ):  # fmt: skip
        net.append(_Inverted(*row))
    return net.extend(
        [
            nn.Conv2d(96, 576, 1, bias=False), nn.BatchNorm2d(576), hard(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 1024), hard(),
            nn.Linear(1024, 1000),
        ]
    )  # fmt: skip


class Encoder(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30522, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.classify = nn.Linear(256, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.classify(self.encoder(self.embedding(tokens))[:, 0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return self.lstm(sequence)[0][:, -1]


#: Those of the zoo that exist here too.
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: resnet((2, 2, 2, 2), 1),
    "resnet50": lambda: resnet((3, 4, 6, 3), 4),
    "mobilenet_v3_small": mobilenet_v3_small,
    "encoder4": lambda: Encoder(4),
    "encoder12": lambda: Encoder(12),
    "lstm": Recurrent,
}
