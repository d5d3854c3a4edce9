"""Vision networks as people write them: text detection, object detection, segmentation."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn


def _conv(inputs: int, outputs: int, side: int, act: type | None = nn.ReLU, **more: Any) -> Any:
    layers = [
        nn.Conv2D(inputs, outputs, side, padding=side // 2, bias_attr=False, **more),
        nn.BatchNorm2D(outputs),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


class _Gate(nn.Layer):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2D(channels, channels // 4, 1)
        self.up = nn.Conv2D(channels // 4, channels, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        gate = F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))
        return x * F.hardsigmoid(self.up(gate))


class _Inverted(nn.Layer):
    """Expand, depthwise, gate, project; with a residual where the shapes allow it."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inputs
        self.expand = _conv(inputs, wide, 1, nn.Hardswish)
        self.depthwise = _conv(wide, wide, 5, nn.Hardswish, stride=stride, groups=wide)
        self.gate = _Gate(wide)
        self.project = _conv(wide, outputs, 1, None)
        self.keeps = stride == 1 and inputs == outputs

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = self.project(self.gate(self.depthwise(self.expand(x))))
        return x + y if self.keeps else y


def _enlarged(x: paddle.Tensor, times: int) -> paddle.Tensor:
    """By size and not by factor, as Paddle2ONNX cannot convert the latter."""
    return F.interpolate(x, size=[times * side for side in x.shape[2:]], mode="nearest")


class TextDetector(nn.Layer):
    """As PP-OCR's: a light backbone, a feature pyramid, a map of text probabilities (DB)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 16, 3, nn.Hardswish, stride=2)
        widths = (16, 24, 40, 80)
        before = (16, *widths)
        self.stages = nn.LayerList(
            nn.Sequential(_Inverted(i, o, 2), _Inverted(o, o, 1)) for i, o in zip(before, widths)
        )
        self.inner = nn.LayerList(nn.Conv2D(w, 96, 1, bias_attr=False) for w in widths)
        self.outer = nn.LayerList(nn.Conv2D(96, 24, 3, padding=1, bias_attr=False) for _ in widths)
        self.head = nn.Sequential(
            _conv(96, 24, 3),
            nn.Conv2DTranspose(24, 24, 2, 2),
            nn.BatchNorm2D(24),
            nn.ReLU(),
            nn.Conv2DTranspose(24, 1, 2, 2),
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.stem(x)
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        levels = [inner(level) for inner, level in zip(self.inner, levels)]
        for k in (2, 1, 0):
            levels[k] = levels[k] + _enlarged(levels[k + 1], 2)
        maps = [outer(level) for outer, level in zip(self.outer, levels)]
        maps = [_enlarged(m, 2**k) if k else m for k, m in enumerate(maps)]
        return F.sigmoid(self.head(paddle.concat(maps[::-1], axis=1)))


class _CrossStage(nn.Layer):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.left = _conv(channels, half, 1, nn.Silu)
        self.right = _conv(channels, half, 1, nn.Silu)
        self.inner = nn.Sequential(_conv(half, half, 1, nn.Silu), _conv(half, half, 3, nn.Silu))
        self.join = _conv(channels, channels, 1, nn.Silu)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        left = self.left(x)
        return self.join(paddle.concat([left + self.inner(left), self.right(x)], axis=1))


class ObjectDetector(nn.Layer):
    """YOLO-like: cross-stage blocks, pyramid pooling, a neck, three heads, boxes decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, 32, 3, nn.Silu, stride=2), _conv(32, 64, 3, nn.Silu, stride=2), _CrossStage(64)
        )
        self.stages = nn.LayerList(
            nn.Sequential(_conv(w, 2 * w, 3, nn.Silu, stride=2), _CrossStage(2 * w))
            for w in (64, 128, 256)
        )
        self.pool_in, self.pool_out = _conv(512, 256, 1, nn.Silu), _conv(1024, 512, 1, nn.Silu)
        self.lateral = nn.LayerList([_conv(512, 256, 1, nn.Silu), _conv(256, 128, 1, nn.Silu)])
        self.fuse = nn.LayerList([_conv(512, 256, 1, nn.Silu), _conv(256, 128, 1, nn.Silu)])
        self.heads = nn.LayerList(nn.Conv2D(w, 3 * 25, 1) for w in (128, 256, 512))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.stem(x)
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        pools = [self.pool_in(levels[2])]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        levels[2] = self.pool_out(paddle.concat(pools, axis=1))
        for k in (1, 0):
            up = _enlarged(self.lateral[1 - k](levels[k + 1]), 2)
            levels[k] = self.fuse[1 - k](paddle.concat([up, levels[k]], axis=1))
        return paddle.concat([_boxes(h(level)) for h, level in zip(self.heads, levels)], axis=1)


def _boxes(raw: paddle.Tensor) -> paddle.Tensor:
    """[N, 3*25, H, W] -> [N, 3*H*W, 25]: centre and size, objectness, 20 classes."""
    batch, _, height, width = raw.shape
    raw = raw.reshape([batch, 3, 25, height, width]).transpose([0, 1, 3, 4, 2])
    raw = F.sigmoid(raw.reshape([batch, -1, 25]))
    return paddle.concat([raw[..., :2] * 2 - 0.5, (raw[..., 2:4] * 2) ** 2, raw[..., 4:]], axis=-1)


class Segmenter(nn.Layer):
    """U-Net of four levels."""

    def __init__(self) -> None:
        super().__init__()
        widths = (24, 48, 96, 192)
        before = (3, *widths[:-1])
        self.downs = nn.LayerList(
            nn.Sequential(_conv(i, o, 3), _conv(o, o, 3)) for i, o in zip(before, widths)
        )
        self.ups = nn.LayerList(nn.Conv2DTranspose(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.joins = nn.LayerList(
            nn.Sequential(_conv(2 * w, w, 3), _conv(w, w, 3)) for w in reversed(widths[:-1])
        )
        self.head = nn.Conv2D(widths[0], 4, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        skips: list[paddle.Tensor] = []
        for level, down in enumerate(self.downs):
            x = down(x if level == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for up, join, skip in zip(self.ups, self.joins, skips[-2::-1]):
            x = join(paddle.concat([up(x), skip], axis=1))
        return F.softmax(self.head(x), axis=1)
