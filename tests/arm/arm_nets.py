"""The networks of the ARM lane, and the bundles of them that are made on x86 and loaded on ARM.

``python arm_nets.py FOLDER`` exports each and writes what eager returns there beside it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class Images(nn.Layer):
    """Convolutions, one of them depthwise, batch norm, a squeeze-and-excitation gate, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2D(3, 16, 3, stride=2, padding=1, bias_attr=False)
        self.norm = nn.BatchNorm2D(16)
        self.depthwise = nn.Conv2D(16, 16, 5, padding=2, groups=16)
        self.squeeze, self.excite = nn.Conv2D(16, 8, 1), nn.Conv2D(8, 16, 1)
        self.last = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = F.hardswish(self.norm(self.first(x)))
        x = F.relu6(self.depthwise(x))  # a LeakyReLU saved by Paddle 3.3 cannot be loaded by 3.2
        gate = F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))
        x = F.max_pool2d(x * F.hardsigmoid(self.excite(gate)), 2)
        return F.softmax(self.last(x.mean([2, 3])))


class Words(nn.Layer):
    """Token numbers to an encoder with a mask, and to an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.lstm = nn.LSTM(32, 16, direction="bidirect")

    def forward(self, tokens: Any) -> Any:
        mask = ((tokens == 0).cast("float32") * -1e4).unsqueeze([1, 2])
        x = self.embedding(tokens)
        return self.encoder(x, mask), self.lstm(x)[0]


#: name -> (network, shape, dtype).
NETS = {"images": (Images, (2, 3, 32, 32), "float32"), "words": (Words, (2, 9), "int64")}


def make(name: str) -> tuple[Any, np.ndarray]:
    """The network, the same every time on one machine, and an input."""
    net, shape, dtype = NETS[name]
    paddle.seed(3)
    made = net()
    made.eval()
    random = np.random.default_rng(3)
    data = random.standard_normal(shape) if dtype == "float32" else random.integers(0, 50, shape)
    return made, data.astype(dtype)


def run(net: Any, data: np.ndarray) -> list[np.ndarray]:
    """The outputs."""
    with paddle.no_grad():
        result = net(paddle.to_tensor(data))
    return [t.numpy() for t in (result if isinstance(result, (list, tuple)) else [result])]


def main(folder: str) -> None:
    """Exports every network to ``folder``."""
    import paddle_fluid_boost as pfb

    for name, (_, shape, dtype) in NETS.items():
        net, data = make(name)
        argument = "tokens" if dtype == "int64" else "x"
        spec = f"{argument}:{dtype}={','.join(map(str, shape))}"
        report = pfb.export(net, os.path.join(folder, name), to="bundle", shapes=[spec], force=True)
        np.savez(os.path.join(folder, f"{name}.npz"), data, *run(net, data))
        print(report)


if __name__ == "__main__":
    main(sys.argv[1])
