"""Small nets and helpers for the tests of the native engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import paddle

from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.engines.native import NativeEngine, NativeExecutable

# Traces are allowed once the plugin watches who else builds programs; here nobody does.
STATIC_LOCK.open()

#: Largest error of an output relative to its range, in fp32.
TOLERANCE = 1e-5


def build(function: Callable[..., Any], inputs: Sequence[Any], **settings: Any) -> NativeExecutable:
    """``function`` as a native plan for inputs shaped like ``inputs``."""
    with paddle.no_grad():
        captured, _ = trace(function, list(inputs), {})
    return NativeEngine().build(captured, {"threads": 2, **settings})


def eager(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """What eager Paddle returns, as a list."""
    with paddle.no_grad():
        result = function(*inputs)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def assert_close(got: Sequence[Any], want: Sequence[Any], tolerance: float = TOLERANCE) -> None:
    """Same number, shapes, dtypes and values; NaN and infinities in the same places."""
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype
        assert tuple(a.shape) == tuple(b.shape)
        x, y = a.numpy(), b.numpy()
        if not np.issubdtype(y.dtype, np.floating):
            np.testing.assert_array_equal(x, y)
            continue
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        np.testing.assert_array_equal(x[np.isinf(x)], y[np.isinf(y)])
        finite = y[np.isfinite(y)]
        if finite.size:
            span = float(finite.max() - finite.min()) or float(np.abs(finite).max()) or 1.0
            assert np.abs(x[np.isfinite(x)] - finite).max() <= tolerance * span


def check(function: Callable[..., Any], *inputs: Any, **settings: Any) -> NativeExecutable:
    """Builds, runs twice (the second call reuses a session) and compares with eager."""
    executable = build(function, inputs, **settings)
    want = eager(function, inputs)
    for _ in range(2):
        assert_close(executable(list(inputs)), want)
    return executable


def calibrated(net: paddle.nn.Layer, *inputs: Any) -> paddle.nn.Layer:
    """``net`` in eval mode, its batch norms with statistics of real activations."""
    net.train()
    for layer in net.sublayers():
        if "Dropout" in type(layer).__name__:
            layer.eval()
    with paddle.no_grad():
        for _ in range(6):
            net(*[paddle.randn(x.shape) if x.dtype == paddle.float32 else x for x in inputs])
    net.eval()
    return net


class UNet(paddle.nn.Layer):
    """Conv-bn-relu blocks, max-pool, transposed convolutions, concat; stock oneDNN crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = self._block(3, 16)
        self.down2 = self._block(16, 32)
        self.pool = paddle.nn.MaxPool2D(2)
        self.up = paddle.nn.Conv2DTranspose(32, 16, 2, stride=2)
        self.merge = self._block(32, 16)
        self.head = paddle.nn.Conv2D(16, 1, 1)

    @staticmethod
    def _block(i: int, o: int) -> paddle.nn.Layer:
        nn = paddle.nn
        return nn.Sequential(
            nn.Conv2D(i, o, 3, padding=1),
            nn.BatchNorm2D(o),
            nn.ReLU(),
            nn.Conv2D(o, o, 3, padding=1),
            nn.BatchNorm2D(o),
            nn.LeakyReLU(0.1),
        )

    def forward(self, x: Any) -> Any:
        first = self.down1(x)
        second = self.down2(self.pool(first))
        return paddle.nn.functional.sigmoid(
            self.head(self.merge(paddle.concat([self.up(second), first], 1)))
        )


class Encoder(paddle.nn.Layer):
    """Embedding, transformer encoder, first token, linear head."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        nn = paddle.nn
        self.embedding = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 2)

    def forward(self, ids: Any) -> Any:
        return self.head(self.encoder(self.embedding(ids))[:, 0])


class Tagger(paddle.nn.Layer):
    """Two LSTM layers and a linear head over the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = paddle.nn.LSTM(24, 32, 2)
        self.head = paddle.nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        y, _ = self.lstm(x)
        return self.head(y[:, -1])
