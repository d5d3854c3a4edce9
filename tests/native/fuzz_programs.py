"""Random functions of one image, made of ops, shapes, strides and broadcasts that are native."""

from __future__ import annotations

import random
from typing import Any, Callable

import paddle
import paddle.nn.functional as F

UNARY: tuple[Callable[[Any], Any], ...] = (
    F.relu,
    F.sigmoid,
    F.hardswish,
    F.gelu,
    lambda t: F.leaky_relu(t, 0.2),
    lambda t: F.relu6(t),
    lambda t: t * 0.5 + 0.25,
    paddle.tanh,
)
_BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    # Functions, not operators: `eager tensor - symbol` crashes inside Paddle 3.3.1.
    paddle.add,
    paddle.subtract,
    paddle.multiply,
    paddle.maximum,
)


class RandomProgram:
    """A random function of one [N, C, H, W] tensor; ``steps`` replay it on eager or symbols."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.steps: list[Callable[[list[Any]], Any]] = []
        side = self.rng.choice([4, 6, 8, 12])
        self.x = paddle.randn([self.rng.choice([1, 2]), self.rng.choice([8, 16, 32]), side, side])
        values = [self.x]
        for _ in range(self.rng.randint(3, 12)):
            step = self._step(values)
            made = step(values)
            if float(made.abs().max()) > 1e4:
                continue  # keep magnitudes comparable
            self.steps.append(step)
            values.append(made)
        self.outputs = sorted({len(values) - 1, self.rng.randrange(1, max(2, len(values)))})

    def __call__(self, x: Any) -> Any:
        values = [x]
        for step in self.steps:
            values.append(step(values))
        return [values[i] for i in self.outputs if i < len(values)]

    def _step(self, values: list[Any]) -> Callable[[list[Any]], Any]:
        i = self.rng.choice([len(values) - 1, len(values) - 1, self.rng.randrange(len(values))])
        shape = list(values[i].shape)
        kinds = [self._unary, self._binary, self._reshape, self._transpose, self._slice]
        kinds += [self._where]
        kinds += [self._concat, self._softmax, self._reduce, self._matmul, self._layer_norm]
        if len(shape) == 4:
            kinds += [self._conv] * 5 + [self._pool, self._shuffle, self._split]
        return self.rng.choice(kinds)(i, shape, values)

    def _unary(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        function = self.rng.choice(UNARY)
        return lambda v: function(v[i])

    def _binary(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        function = self.rng.choice(_BINARY)
        alike = [j for j in _floats(values) if list(values[j].shape) == shape]
        if alike and self.rng.random() < 0.7:
            j = self.rng.choice(alike)
            return lambda v: function(v[i], v[j])
        keep = [side if self.rng.random() < 0.5 else 1 for side in shape]
        constant = paddle.randn(keep[self.rng.randrange(len(keep)) :])
        if self.rng.random() < 0.5:
            return lambda v: function(constant, v[i])
        return lambda v: function(v[i], constant)

    def _where(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        # Continuous where the condition changes, so that roundings stay small.
        zero = paddle.zeros([1] * len(shape))
        if self.rng.random() < 0.5:
            return lambda v: paddle.where(v[i] > zero, v[i], v[i] * 0.5)
        return lambda v: paddle.where(paddle.logical_not(v[i] <= zero), v[i], zero)

    def _reshape(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        at = self.rng.randrange(len(shape))
        if at + 1 < len(shape) and self.rng.random() < 0.5:
            new = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
        elif shape[at] % 2 == 0 and len(shape) < 6:
            new = [*shape[:at], 2, shape[at] // 2, *shape[at + 1 :]]
        else:
            new = [*shape[:at], 1, *shape[at:]] if len(shape) < 6 else [-1]
        return lambda v: v[i].reshape(new)

    def _transpose(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        order = list(range(len(shape)))
        self.rng.shuffle(order)
        return lambda v: v[i].transpose(order)

    def _slice(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        axis = self.rng.randrange(len(shape))
        begin = self.rng.randrange(shape[axis])
        end = self.rng.randint(begin + 1, shape[axis])
        step = self.rng.choice([1, 1, 2])
        return lambda v: paddle.strided_slice(v[i], [axis], [begin], [end], [step])

    def _concat(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        axis = self.rng.randrange(len(shape))
        alike = [
            j
            for j in _floats(values)
            if len(values[j].shape) == len(shape)
            and [*values[j].shape[:axis], *values[j].shape[axis + 1 :]]
            == [*shape[:axis], *shape[axis + 1 :]]
        ]
        picked = [i, *(self.rng.choice(alike) for _ in range(2))]
        return lambda v: paddle.concat([v[j] for j in picked], axis)

    def _softmax(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        axis = self.rng.randrange(len(shape))
        return lambda v: F.softmax(v[i], axis=axis)

    def _reduce(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        axes = sorted(self.rng.sample(range(len(shape)), self.rng.randint(1, len(shape))))
        function = self.rng.choice([paddle.mean, paddle.max, paddle.sum])
        return lambda v: function(v[i], axis=axes, keepdim=True)

    def _matmul(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        if len(shape) < 2:
            return self._unary(i, shape, values)
        if self.rng.random() < 0.5:
            scale = shape[-1] ** -0.5
            return lambda v: paddle.matmul(v[i], v[i], transpose_y=True) * scale
        w = paddle.randn([shape[-1], self.rng.choice([1, 5, 16])]) * shape[-1] ** -0.5
        return lambda v: paddle.matmul(v[i], w)

    def _layer_norm(
        self, i: int, shape: list[int], values: list[Any]
    ) -> Callable[[list[Any]], Any]:
        if shape[-1] < 3:
            return self._unary(i, shape, values)
        scale, bias = paddle.randn(shape[-1:]), paddle.randn(shape[-1:])
        return lambda v: F.layer_norm(v[i], shape[-1:], scale, bias, epsilon=1e-3)

    def _conv(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        channels = shape[1]
        kernel = self.rng.choice([1, 3, 3])
        groups = self.rng.choice([1, 1, 1, channels])
        out = channels if groups == channels else self.rng.choice([channels, 8, 32])
        w = paddle.randn([out, channels // groups, kernel, kernel])
        w = w * (channels // groups * kernel * kernel) ** -0.5
        bias = paddle.randn([out]) if self.rng.random() < 0.5 else None
        stride = self.rng.choice([1, 1, 2])
        residual = stride == 1 and out == channels and self.rng.random() < 0.5
        function = self.rng.choice(UNARY)

        def step(v: list[Any]) -> Any:
            y = F.conv2d(v[i], w, bias, stride, kernel // 2, 1, groups)
            return function(y + v[i] if residual else y)

        return step

    def _pool(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        if min(shape[2:]) < 3:
            return lambda v: F.adaptive_avg_pool2d(v[i], 1)
        function = self.rng.choice([F.max_pool2d, F.avg_pool2d])
        ceil = self.rng.random() < 0.5
        return lambda v: function(v[i], 3, 2, 1, ceil_mode=ceil)

    def _shuffle(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        n, c, h, w = shape
        if c % 2:
            return self._unary(i, shape, values)
        return lambda v: (
            v[i].reshape([n, 2, c // 2, h, w]).transpose([0, 2, 1, 3, 4]).reshape([n, c, h, w])
        )

    def _split(self, i: int, shape: list[int], values: list[Any]) -> Callable[[list[Any]], Any]:
        if shape[1] % 2:
            return self._unary(i, shape, values)
        return lambda v: (lambda a, b: F.relu(b) * a)(*paddle.split(v[i], 2, 1))


def _floats(values: list[Any]) -> list[int]:
    """The positions of the floating-point values."""
    return [j for j, value in enumerate(values) if value.dtype == paddle.float32]
