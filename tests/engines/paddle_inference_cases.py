"""Nets and helpers for the tests of the Paddle Inference engine."""

from __future__ import annotations

import os
import time
from typing import Any, Callable

import paddle
import paddle.nn.functional as F
from paddle import nn

from paddle_fluid_boost.capture.program import CapturedProgram
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.engines.paddle_inference import PaddleInference

ENGINE = PaddleInference()
PLAIN = {"onednn": False, "threads": 1}
ONEDNN = {"onednn": True, "threads": 1}
BOTH = (PLAIN, ONEDNN)


def capture(call: Callable[..., Any], *args: Any) -> CapturedProgram:
    """The program of ``call(*args)``."""
    with paddle.no_grad():
        return trace(call, args, {})[0]


def calibrated(net: nn.Layer, *args: Any) -> nn.Layer:
    """``net`` in eval mode with batch-norm statistics of real data."""
    net.train()
    with paddle.no_grad():
        net(*args)
    net.eval()
    return net


def eager(call: Callable[..., Any], *args: Any) -> list[Any]:
    with paddle.no_grad():
        result = call(*args)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def error(got: Any, want: Any) -> float:
    """Largest difference relative to the range of ``want``."""
    assert list(got.shape) == list(want.shape)
    assert got.dtype == want.dtype
    if want.size == 0:
        return 0.0
    a, b = got.astype("float64").numpy(), want.astype("float64").numpy()
    return float(abs(a - b).max() / max(b.max() - b.min(), 1e-6))


def assert_same(got: list[Any], want: list[Any], tolerance: float = 1e-4) -> None:
    assert len(got) == len(want)
    for index, (a, b) in enumerate(zip(got, want)):
        assert error(a, b) <= tolerance, f"output {index}"
        assert a.stop_gradient


def exit_status_of_fork(work: Callable[[], int], timeout: float = 30.0) -> int:
    """What ``work`` returns in a forked child; -9 when it hangs."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


def small_cnn() -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5)
    )


def encoder() -> nn.Layer:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, activation="gelu"), 2)


class SequenceTagger(nn.Layer):
    """Token numbers (int64) to LSTM states."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, 2)

    def forward(self, tokens: Any) -> Any:
        return self.lstm(self.embedding(tokens))[0]


class UNet(nn.Layer):
    """Convolutions with LeakyReLU, which oneDNN's fusion cannot take, and Conv2DTranspose."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()

        def block(inward: int, outward: int) -> nn.Layer:
            return nn.Sequential(
                nn.Conv2D(inward, outward, 3, padding=1), nn.BatchNorm2D(outward), nn.LeakyReLU(0.1)
            )

        self.down = block(3, width)
        self.middle = block(width, 2 * width)
        self.up = nn.Conv2DTranspose(2 * width, width, 2, stride=2)
        self.merge = block(2 * width, width)
        self.last = nn.Conv2D(width, 2, 1)

    def forward(self, x: Any) -> Any:
        skip = self.down(x)
        up = self.up(self.middle(F.max_pool2d(skip, 2)))
        return F.sigmoid(self.last(self.merge(paddle.concat([up, skip], 1))))


class Upsampler(nn.Layer):
    """``interpolate``: its attributes are lists of doubles, which oneDNN's path refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return F.interpolate(self.conv(x), scale_factor=2, mode="bilinear")


def dilated_separable() -> nn.Layer:
    """1-D dilated depthwise convolutions with PReLU: under oneDNN, memory nobody wrote."""
    layers: list[nn.Layer] = []
    for dilation in (1, 2):
        conv = nn.Conv1D(64, 64, 3, padding=dilation, dilation=dilation, groups=64)
        layers += [nn.Conv1D(64, 64, 1), nn.PReLU(), conv, nn.PReLU()]
    return nn.Sequential(*layers)


class ManyOutputs(nn.Layer):
    """0-d, int64, equal, constant, input and parameter outputs; one input is not read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([3])
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Any, unread: Any, n: Any, zero_d: Any) -> tuple[Any, ...]:
        y = self.linear(x)
        return (
            *(y, y, y.reshape([-1]), y + n.astype("float32"), x.sum(), n + 1, zero_d * 2),
            *(self.weight, self.weight * 2, x.reshape([-1]), paddle.ones([3]), paddle.ones([3]), x),
        )


def many_inputs() -> tuple[Any, ...]:
    return (
        paddle.randn([2, 3]),
        paddle.randn([7]),
        paddle.arange(4),
        paddle.to_tensor(3.0),
    )
