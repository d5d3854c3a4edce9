"""Ops as ONNX: one session runs many of them at once, so that the tests stay quick."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest
from foreign_engine_cases import assert_eager, build, every_engine, floats, integers
from paddle import nn
from paddle_inference_cases import capture

from paddle_fluid_boost.engines.onnx_model import convert
from paddle_fluid_boost.engines.onnx_runtime import OnnxRuntime
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.ir.importer import import_program

X, Y = floats(2, 3, 4, 5), floats(2, 3, 4, 5, seed=1)
POSITIVE = X.abs() + 0.1
IMAGE = floats(2, 4, 8, 8)
NUMBERS = integers(3, 4)
TRUTH = X > 0


def _pointwise(x, y, p):
    unary = (
        *(F.relu, F.relu6, F.leaky_relu, F.elu, F.sigmoid, paddle.tanh, F.gelu, F.silu, F.swish),
        *(F.hardswish, F.hardsigmoid, F.mish, F.softplus, F.selu, F.celu, F.softsign, paddle.abs),
        *(paddle.exp, paddle.square, paddle.sin, paddle.cos, paddle.tan, paddle.atan, paddle.sinh),
        *(paddle.cosh, paddle.erf, paddle.floor, paddle.ceil, paddle.sign, F.log_sigmoid),
        *(lambda t: F.gelu(t, approximate=True), lambda t: t.clip(-0.5, 0.25), lambda t: -t),
        *(lambda t: t * 2 + 1, lambda t: 3 - t, lambda t: F.softplus(t, beta=2.0), F.hardtanh),
    )
    positive = (
        *(paddle.sqrt, paddle.rsqrt, paddle.log, paddle.log2, paddle.log10, paddle.log1p),
        *(lambda t: t**3, lambda t: t**-0.5, lambda t: 1 / t, paddle.reciprocal),
    )
    made = [one(x) for one in unary] + [one(p) for one in positive]
    return [*made, x + y, x - y, x * y, x / p, paddle.maximum(x, y), paddle.minimum(x, y), p**y]


def _broadcasting(x, y):
    row, column = y[:1, :1], y[:, :, :, :1]
    return [x + row, row - x, x * column, x / (column.abs() + 1), F.relu(x[0] - y)]


def _comparisons(x, y, n):
    return [
        *(x > y, x >= y, x < y, x <= y, x == x, x != y, n == 3, n != 3, n > 2),
        *(paddle.logical_and(x > 0, y > 0), paddle.logical_or(x > 0, y > 0)),
        *(paddle.logical_xor(x > 0, y > 0), paddle.logical_not(x > 0)),
        *(paddle.isnan(x), paddle.isinf(x), paddle.isfinite(x)),
        paddle.where(x > y, x, y),
    ]


def _of_integers(n, truth):
    return [
        *(n + n, n - 3, n * 2, paddle.maximum(n, n.flip(0)), n % 4, n.sum(), n.sum(1), n.max(1)),
        *(n.cast("float32"), n.cast("bool"), n.cast("int32"), truth.cast("int64")),
        *(truth.sum(), truth.all(), truth.any(-1), truth.cast("float32") * 2, n.cumsum(1)),
        *(n.cast("int32").argmax(1), n.cast("int32").argmin(0), F.one_hot(n, 10), n.prod(1)),
    ]


def _moves(x):
    return [
        *(x.transpose([0, 2, 1, 3]), x.reshape([2, -1]), x.flatten(1, 2), x.unsqueeze(1)),
        *(x[:, 1], x[:, :, 1:3], x[..., ::2], x[0, 1, 2], x[:, -1:], x.flip([1, 3])),
        *(paddle.concat([x, x], 1), paddle.stack([x, x], 2), x.tile([1, 2, 1, 1])),
        *(x[:, :1].expand([2, 3, 4, 5]), x.roll(1, 2), x.roll([1, -2], [1, 3])),
        *(*paddle.split(x, [1, 2], 1), *paddle.split(x, 2, 2), *paddle.unbind(x, 1)),
        *(
            paddle.tril(x),
            paddle.triu(x, 1),
            F.pad(x, [1, 2, 0, 1]),
            F.pad(x, [1, 1, 1, 1], "reflect"),
        ),
        *(F.pad(x, [1, 0, 2, 0], "replicate"), F.pad(x[0], [2, 1], value=1.5, data_format="NCL")),
    ]


def _lookups(x, n):
    index = paddle.to_tensor([2, 0, 1])
    return [
        *(paddle.gather(x, index, 1), paddle.index_select(x, index, 2)),
        paddle.gather_nd(x, paddle.to_tensor([[0, 1], [1, 2]])),
        *(paddle.take_along_axis(x, n[:1].unsqueeze([0, 3]) % 4, 3), x[:, index]),
        F.embedding(n, x[0, 0].tile([3, 1])),
    ]


def _reductions(x):
    return [
        *(x.mean(), x.mean(1), x.mean([2, 3]), x.mean([2, 3], keepdim=True), x.sum(-1), x.sum()),
        *(x.max(), x.min(1), x.max([1, 2], keepdim=True), x.amax(1), x.prod(1), x.argmax(1)),
        *(paddle.logsumexp(x, 1), x.cumsum(1), x.argmax(), x.argmin(-1, keepdim=True)),
        *(x.norm(2, -1), x.norm(1, 1), *x.topk(2, -1), *x.topk(3, 1, largest=False)),
        *(F.softmax(x, 1), F.softmax(x), F.log_softmax(x), F.normalize(x, axis=1)),
    ]


def _resampling(x):
    return [
        *(F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True)),
        *(F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, exclusive=False)),
        *(F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 4), F.adaptive_max_pool2d(x, 2)),
        *(F.interpolate(x, scale_factor=2), F.interpolate(x, [12, 5])),
        *(F.interpolate(x, scale_factor=1.5, mode="bilinear"), F.pixel_shuffle(x, 2)),
        F.interpolate(x, [5, 13], mode="bilinear"),
        F.interpolate(x, [16, 16], mode="bilinear", align_corners=True),
        F.interpolate(x, [16, 16], mode="bilinear", align_mode=1),
    ]


class _Norms(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norms = nn.LayerList(
            [
                nn.LayerNorm([8, 8]),
                nn.LayerNorm(8),
                nn.GroupNorm(2, 4),
                nn.InstanceNorm2D(4),
                nn.BatchNorm2D(4),
                nn.PReLU(4),
                nn.PReLU(1),
                nn.LayerNorm(8, weight_attr=False),
            ]
        )

    def forward(self, x):
        rms = x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return [*(norm(x) for norm in self.norms), rms, self.norms[1](x + x.flip(0))]


class _Convolutions(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList(
            [
                *(nn.Conv2D(4, 6, 3, padding=1), nn.Conv2D(4, 6, 3, 2, [1, 0, 2, 1])),
                *(nn.Conv2D(4, 4, 3, groups=4, dilation=2), nn.Conv2D(4, 8, 1, bias_attr=False)),
                *(nn.Conv2D(4, 4, 3, padding="SAME", stride=2), nn.Conv2DTranspose(4, 3, 2, 2)),
                *(nn.Conv2DTranspose(4, 3, 3, 2, 1, 1), nn.Conv2DTranspose(4, 4, 3, groups=2)),
            ]
        )
        self.line = nn.Conv1D(4, 5, 3, padding=1)
        self.volume = nn.Conv3D(2, 3, 2)

    def forward(self, x):
        volume = self.volume(x.reshape([2, 2, 2, 8, 8]))
        line = F.leaky_relu(self.line(x.flatten(2)), 0.3)
        return [*(F.relu(layer(x)) for layer in self.layers), line, volume]


class _Recurrent(nn.Layer):
    def __init__(self):
        super().__init__()
        both = "bidirect"
        self.lstm = nn.LSTM(5, 4, 2, direction=both)
        self.gru = nn.GRU(5, 4, direction=both)
        self.given = nn.LSTM(5, 4)

    def forward(self, x, h):
        y, (last, cell) = self.lstm(x)
        return [
            y,
            last,
            cell,
            *self.gru(x),
            self.given(x, (h, h + 1))[0],
        ]


def _products(x, y):
    vector, matrix = x[0, 0, 0], y[0, 0]
    return [
        *(paddle.matmul(x, y, transpose_y=True), paddle.matmul(x, y, transpose_x=True)),
        *(paddle.matmul(matrix, vector), paddle.bmm(x[0], y[0].transpose([0, 2, 1]))),
        F.scaled_dot_product_attention(x, y, y),
        F.softmax(paddle.matmul(x * 0.5, y, transpose_y=True)) @ y,
    ]


def _handed_through(x, n):
    return [x, x, n, x + 1, (x + 1), paddle.ones([3]), x.reshape([-1]), x.detach()]


CASES = {
    "pointwise": (_pointwise, [X, Y, POSITIVE]),
    "broadcasting": (_broadcasting, [X, Y]),
    "comparisons": (_comparisons, [X, Y, NUMBERS]),
    "integers": (_of_integers, [NUMBERS, TRUTH]),
    "moves": (_moves, [X]),
    "lookups": (_lookups, [X, NUMBERS]),
    "reductions": (_reductions, [X]),
    "resampling": (_resampling, [IMAGE]),
    "norms": (_Norms(), [IMAGE]),
    "convolutions": (_Convolutions(), [IMAGE]),
    "recurrent": (_Recurrent(), [floats(3, 6, 5), floats(1, 3, 4)]),
    "products": (_products, [X, Y]),
    "handed through": (_handed_through, [X, NUMBERS]),
}


@every_engine
@pytest.mark.parametrize("case", CASES)
def test_ops(engine, case):
    function, inputs = CASES[case]
    if isinstance(function, nn.Layer):
        function.eval()
    executable = build(engine, function, inputs)
    for _ in range(2):
        assert_eager(executable, function, inputs)


def test_what_openvino_gets_wrong_is_right_in_onnx_runtime():
    """float64, which it computes in float32, and simple RNNs whose states are used: the comparison
    with eager in select.py keeps those from being used."""
    pytest.importorskip("onnxruntime")
    double = X.cast("float64")
    simple, relu = nn.SimpleRNN(5, 4), nn.SimpleRNN(5, 4, activation="relu", time_major=True)
    for function, inputs in (
        (lambda x: [x @ x.transpose([0, 1, 3, 2]), F.softmax(x), x.exp()], [double]),
        (lambda x, h: [*simple(x, h), *relu(x)], [floats(3, 6, 5), floats(1, 3, 4)]),
    ):
        assert_eager(build(OnnxRuntime(), function, inputs), function, inputs)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: x.argsort(-1), "argsort: no rule"),
        (lambda x: x.cast("float16"), "float16"),
        (lambda x: x[:, :0], "no elements"),
        (lambda x: paddle.nonzero(x), "depends on data"),
    ],
)
def test_what_cannot_be_written_is_named(function, told):
    with pytest.raises(EngineError, match=told):
        convert(import_program(capture(function, X)))
