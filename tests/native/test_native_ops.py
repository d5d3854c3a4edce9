"""Every op the engine implements, one by one, against eager Paddle."""

from __future__ import annotations

from typing import Any, Callable

import native_models as nm
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

#: Its place up to Paddle 3.2 was under ``incubate``.
SWIGLU = getattr(F, "swiglu", None) or paddle.incubate.nn.functional.swiglu

R = paddle.randn


def _image(channels: int = 16, side: int = 12) -> Any:
    return R([2, channels, side, side])


def _conv(groups: int = 1, kernel: int = 3, **settings: Any) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        w, b = R([32, 16 // groups, kernel, kernel]), R([32])
        return lambda x: F.conv2d(x, w, b, groups=groups, **settings), _image()

    return make


def _unary(function: Callable[[Any], Any], shape: tuple[int, ...] = (2, 16, 5, 7)) -> Any:
    return lambda: (function, R(list(shape)))


def _pair(function: Callable[..., Any], a: list[int], b: list[int]) -> Any:
    return lambda: (function, R(a), R(b) + 3.0)


def _with_weights(function: Callable[..., Any], x: list[int], *weights: list[int]) -> Any:
    def make() -> tuple[Any, ...]:
        made = [R(w) for w in weights]
        return lambda t: function(t, *made), R(x)

    return make


def _tiles(out: int, rows: int, columns: int) -> Any:
    """A transposed convolution whose pixels make rectangles that do not overlap."""
    stride = [rows, columns]
    return _with_weights(
        lambda x, v, w, b: F.relu(F.conv2d_transpose(F.conv2d(x, v), w, b, stride=stride)),
        [2, 8, 9, 11],
        [20, 8, 3, 3],
        [20, out, rows, columns],
        [out],
    )


_COMPARISONS = (
    paddle.equal,
    paddle.not_equal,
    paddle.less_than,
    paddle.less_equal,
    paddle.greater_than,
    paddle.greater_equal,
)
_LOGIC = (paddle.logical_and, paddle.logical_or, paddle.logical_xor, paddle.bitwise_and)


def _integers(*shapes: list[int], dtype: str = "int64") -> list[Any]:
    return [paddle.randint(0, 6, shape, dtype) for shape in shapes]


def _number(content: int) -> Any:
    return paddle.full([1], content, "int64")


def _attention(mask: bool) -> Callable[[], tuple[Any, ...]]:
    def attend(q: Any, k: Any, v: Any, *masks: Any) -> Any:
        q, k, v = (t.transpose([0, 2, 1, 3]) for t in (q, k, v))
        scores = paddle.matmul(q * 0.25, k, transpose_y=True)
        if masks:
            scores = scores + masks[0]
        return paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3]).reshape([2, 10, 48])

    extra = [[2, 1, 1, 10]] if mask else []
    return lambda: (
        attend,
        *(R(s) for s in ([2, 10, 3, 16], [2, 10, 3, 16], [2, 10, 3, 16], *extra)),
    )


def _recurrent(
    kind: str,
    *,
    steps: int = 7,
    batch: int = 2,
    hidden: int = 16,
    states: int = 0,
    **settings: Any,
) -> Callable[[], tuple[Any, ...]]:
    """A recurrent layer and its inputs; ``states``: initial states that are given."""

    def make() -> tuple[Any, ...]:
        net = getattr(paddle.nn, kind)(12, hidden, **settings)
        net.eval()
        sides = [steps, batch] if settings.get("time_major") else [batch, steps]
        depth = settings.get("num_layers", 1) * (2 if "direction" in settings else 1)
        given = [R([depth, batch, hidden]) for _ in range(states)]

        def call(x: Any, *initial: Any) -> list[Any]:
            start = None if not initial else initial if kind == "LSTM" else initial[0]
            return paddle.utils.flatten(net(x, start))

        return call, R([*sides, 12]), *given

    return make


def _with_lengths(kind: str, *, batch: int, **settings: Any) -> Callable[[], tuple[Any, ...]]:
    """A recurrent layer over sequences of lengths of their own, the whole one among them."""

    def make() -> tuple[Any, ...]:
        lengths = np.random.RandomState(1).randint(1, 8, batch)
        lengths[-1] = 7
        hidden, states = settings.pop("hidden", 16), settings.pop("states", 0)
        net = getattr(paddle.nn, kind)(12, hidden, **settings)
        net.eval()
        depth = settings.get("num_layers", 1) * (2 if "direction" in settings else 1)
        given = [R([depth, batch, hidden]) for _ in range(states)]

        def call(x: Any, n: Any, *initial: Any) -> list[Any]:
            start = None if not initial else initial if kind == "LSTM" else initial[0]
            return paddle.utils.flatten(net(x, start, n))

        return call, R([batch, 7, 12]), paddle.to_tensor(lengths), *given

    return make


def _resized(mode: str, corners: bool, sized: bool) -> Callable[[], tuple[Any, ...]]:
    rank = {"linear": 1, "trilinear": 3}.get(mode, 2)
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]
    how = {"size": [11, 4, 9][:rank]} if sized else {"scale_factor": [1.7, 2.0, 0.6][:rank]}
    settings = {**how, "mode": mode, "align_corners": corners, "data_format": layout}
    shape = [2, 8, 7, 5, 6][: 2 + rank]
    return lambda: (lambda x: F.interpolate(x, **settings), R(shape))


def _embedded(function: Callable[[Any], Any]) -> tuple[Any, ...]:
    words, kinds, places = R([30, 24]), R([2, 24]), R([1, 5, 24])
    ids, types = paddle.randint(0, 30, [3, 5]), paddle.randint(0, 2, [3, 5], "int32")
    return (
        lambda i, j: function(F.embedding(i, words) + places + F.embedding(j, kinds)),
        ids,
        types,
    )


def _squeeze(channels: int, squeezed: int, side: int) -> Callable[[], tuple[Any, ...]]:
    """Squeeze-and-excitation after a convolution, and on the input as it is."""

    def make() -> tuple[Any, ...]:
        w = R([channels, 8, 1, 1])
        v, a = R([squeezed, channels, 1, 1]) * 0.3, R([squeezed])
        u, b = R([channels, squeezed, 1, 1]) * 0.3, R([channels])

        def gated(x: Any) -> Any:
            mean = F.adaptive_avg_pool2d(x, 1)
            return x * F.hardsigmoid(F.conv2d(F.relu(F.conv2d(mean, v, a)), u, b))

        def call(image: Any, x: Any) -> Any:
            return [gated(F.hardswish(F.conv2d(image, w))), gated(x)]

        return call, R([2, 8, side, side]), R([2, channels, side, side])

    return make


NATIVE: dict[str, Callable[[], tuple[Any, ...]]] = {
    "conv": _conv(padding=1),
    "conv stride": _conv(stride=2, padding=1),
    "conv dilation": _conv(dilation=2),
    "conv asymmetric padding": _conv(padding=[0, 1, 2, 1]),
    "conv 1x1": _conv(kernel=1),
    "conv grouped": _conv(groups=4, padding=1),
    "conv depthwise": _conv(groups=16, padding=1),
    "conv then residual then relu": _with_weights(
        lambda x, w, v: F.relu(F.conv2d(F.conv2d(x, w, padding=1), v, padding=1) + x),
        [2, 16, 9, 9],
        [16, 16, 3, 3],
        [16, 16, 3, 3],
    ),
    "residual used again": _with_weights(
        lambda x, w: (lambda y: (F.conv2d(y, w, padding=1) + y) * y)(F.relu(x)),
        [2, 16, 9, 9],
        [16, 16, 3, 3],
    ),
    "residual is the input": _with_weights(
        lambda x, w: F.conv2d(x, w, padding=1) + x, [2, 16, 9, 9], [16, 16, 3, 3]
    ),
    "conv transpose": _with_weights(
        lambda x, w: F.conv2d_transpose(x, w, stride=2, padding=1, output_padding=1),
        [2, 16, 6, 6],
        [16, 8, 3, 3],
    ),
    "conv transpose grouped": _with_weights(
        lambda x, w, b: F.relu(F.conv2d_transpose(x, w, b, stride=2, groups=4)),
        [2, 16, 6, 6],
        [16, 3, 2, 2],
        [12],
    ),
    **{
        f"conv transpose in tiles {out} {rows}x{columns}": _tiles(out, rows, columns)
        for out, rows, columns in (
            (1, 2, 2),
            (1, 3, 2),
            (2, 2, 3),
            (3, 2, 2),
            (5, 1, 4),
            (16, 3, 3),
            (24, 2, 2),
        )
    },
    "conv transpose in tiles and an addend": _with_weights(
        lambda x, w, r: F.relu(F.conv2d_transpose(x, w, stride=2) + r),
        [2, 16, 5, 7],
        [16, 6, 2, 2],
        [2, 6, 10, 14],
    ),
    "few planes": _with_weights(
        lambda x, w, v, b: F.sigmoid(F.conv2d(F.conv2d(x, w, padding=1), v, b)),
        [2, 8, 33, 35],
        [24, 8, 3, 3],
        [3, 24, 1, 1],
        [3],
    ),
    "few planes, softmax": _with_weights(
        lambda x, w, v: F.softmax(F.conv2d(F.conv2d(x, w), v), axis=1),
        [2, 8, 35, 37],
        [16, 8, 3, 3],
        [5, 16, 1, 1],
    ),
    "conv 3d transpose": _with_weights(
        lambda x, w, b: F.relu(
            F.conv3d_transpose(x, w, b, stride=2, padding=1, output_padding=[1, 0, 1])
        ),
        [2, 8, 3, 4, 5],
        [8, 6, 3, 3, 3],
        [6],
    ),
    "conv 3d transpose grouped": _with_weights(
        lambda x, w: F.conv3d_transpose(x, w, stride=[1, 2, 1], groups=4),
        [1, 8, 3, 4, 5],
        [8, 3, 2, 2, 2],
    ),
    "conv of an image": _with_weights(
        lambda x, w: F.relu(F.conv2d(x, w, stride=2)), [2, 3, 33, 29], [16, 3, 3, 3]
    ),
    "conv of a small image": _with_weights(F.conv2d, [1, 3, 3, 3], [16, 3, 2, 2]),
    "conv 3d of three planes": _with_weights(F.conv3d, [2, 3, 5, 7, 6], [16, 3, 2, 2, 2]),
    "conv 3d": _with_weights(
        lambda x, w, b: F.relu(F.conv3d(x, w, b, [1, 2, 1], [0, 1, 1])),
        [2, 8, 5, 6, 7],
        [16, 8, 3, 3, 3],
        [16],
    ),
    "conv 3d residual": _with_weights(
        lambda x, w: F.relu(F.conv3d(F.relu(x), w, padding=1) + F.relu(x)),
        [1, 16, 4, 6, 7],
        [16, 16, 3, 3, 3],
    ),
    "conv 3d grouped": _with_weights(
        lambda x, w: F.conv3d(x, w, groups=4, dilation=[1, 2, 1]), [2, 8, 5, 6, 7], [16, 2, 2, 2, 2]
    ),
    "max pool 3d": _unary(lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True), (2, 8, 4, 5, 6)),
    "avg pool 3d": _unary(lambda x: F.avg_pool3d(x, 3, 2, 1), (2, 8, 4, 5, 6)),
    "global pool 3d": _unary(lambda x: F.adaptive_avg_pool3d(x, 1), (2, 8, 4, 5, 6)),
    "max pool": _unary(lambda x: F.max_pool2d(x, 3, 2, 1), (2, 16, 11, 13)),
    "max pool ceil": _unary(lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), (2, 16, 11, 13)),
    "avg pool": _unary(lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 16, 11, 13)),
    "avg pool inclusive": _unary(lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False)),
    "global pool": _unary(lambda x: F.adaptive_avg_pool2d(x, 1)),
    "adaptive pool dividing": _unary(lambda x: F.adaptive_avg_pool2d(x, [3, 2]), (2, 8, 9, 8)),
    "adaptive pool uneven": _unary(lambda x: F.adaptive_avg_pool2d(F.relu(x), 3)),
    "adaptive pool of a convolution": _with_weights(
        lambda x, w: F.adaptive_avg_pool2d(F.relu(F.conv2d(x, w)), [3, 2]),
        [2, 16, 9, 10],
        [24, 16, 3, 3],
    ),
    "adaptive pool larger than the image": _unary(lambda x: F.adaptive_avg_pool2d(x, [8, 9])),
    "adaptive max pool": _unary(lambda x: F.adaptive_max_pool2d(x, [3, 4])),
    "adaptive pool 3d": _unary(lambda x: F.adaptive_avg_pool3d(x, [2, 3, 4]), (2, 8, 3, 5, 6)),
    "linear": _with_weights(F.linear, [4, 10, 16], [16, 24], [24]),
    "linear gelu residual": _with_weights(
        lambda x, w, b: F.gelu(F.linear(x, w, b)) + x, [4, 10, 16], [16, 16], [16]
    ),
    "linear no bias, odd sizes": _with_weights(F.linear, [3, 7], [7, 5]),
    "matmul": _pair(paddle.matmul, [2, 3, 8, 16], [2, 3, 16, 4]),
    "matmul transposed": _pair(
        lambda a, b: paddle.matmul(a, b, True, True), [2, 3, 16, 8], [2, 3, 4, 16]
    ),
    "matmul broadcast": _pair(paddle.matmul, [2, 3, 8, 16], [16, 4]),
    "matmul interleaved batches": _unary(
        lambda x: (lambda y: paddle.matmul(y, y, transpose_y=True))(x.transpose([2, 0, 1, 3])),
        (3, 4, 5, 6),
    ),
    "matmul of one element": _pair(paddle.matmul, [2, 3, 8, 1], [2, 3, 1, 4]),
    "matmul scaled": _pair(lambda a, b: paddle.matmul(a, b) * 0.5 + 1, [3, 8, 16], [3, 16, 8]),
    "attention": _attention(mask=False),
    "attention masked": _attention(mask=True),
    "softmax": _unary(F.softmax),
    "softmax middle": _unary(lambda x: F.softmax(x, axis=1)),
    "softmax of planes": _unary(lambda x: F.softmax(x, axis=0), (3, 5, 7)),
    "softmax of many planes": _unary(lambda x: F.softmax(x * 9, axis=1), (2, 67, 9, 31)),
    "softmax of few channels": _with_weights(
        lambda x, w: F.softmax(F.conv2d(x, w), axis=1), [2, 16, 9, 11], [7, 16, 3, 3]
    ),
    "softmax of large planes": _unary(lambda x: F.softmax(x, axis=1), (1, 3, 67, 71)),
    "log softmax": _unary(F.log_softmax),
    "log softmax middle": _unary(lambda x: F.log_softmax(x, axis=1)),
    "layer norm": _with_weights(lambda x, g, b: F.layer_norm(x, 16, g, b), [4, 10, 16], [16], [16]),
    "layer norm two axes": _unary(lambda x: F.layer_norm(x, [5, 7])),
    "rms norm": _with_weights(
        lambda x, g: x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g, [4, 10, 50], [50]
    ),
    "rms norm without scale": _unary(
        lambda x: x / paddle.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    ),
    "group norm": _with_weights(
        lambda x, g, b: F.group_norm(x, 4, 1e-5, g, b), [2, 16, 9, 11], [16], [16]
    ),
    "group norm of a convolution": _with_weights(
        lambda x, w, g: F.silu(F.group_norm(F.conv2d(x, w), 4, 1e-5, g)),
        [2, 16, 9, 11],
        [24, 16, 3, 3],
        [24],
    ),
    "group norm plain": _unary(lambda x: F.group_norm(x * 3 + 2, 2, 1e-5)),
    "instance norm": _with_weights(
        lambda x, g, b: F.instance_norm(x, weight=g, bias=b), [2, 16, 9, 11], [16], [16]
    ),
    "prelu": _with_weights(F.prelu, [2, 16, 5, 7], [16]),
    "prelu one slope": _with_weights(F.prelu, [2, 16, 5, 7], [1]),
    "prelu of a convolution": _with_weights(
        lambda x, w, s: F.prelu(F.conv2d(x, w), s), [2, 16, 9, 9], [24, 16, 3, 3], [24]
    ),
    "swiglu": _unary(SWIGLU, (2, 10, 32)),
    "swiglu of two": _pair(SWIGLU, [2, 10, 32], [2, 10, 32]),
    "pixel shuffle": _unary(lambda x: F.pixel_shuffle(x, 2)),
    "pixel shuffle of a convolution": _with_weights(
        lambda x, w: F.relu(F.pixel_shuffle(F.conv2d(x, w), 2)), [2, 16, 9, 9], [24, 16, 3, 3]
    ),
    "add layer norm": _pair(lambda a, b: F.layer_norm(a + b, 16) + a, [4, 10, 16], [4, 10, 16]),
    "relu": _unary(F.relu),
    "leaky relu": _unary(lambda x: F.leaky_relu(x, 0.1)),
    "activations": _unary(
        lambda x: [
            f(x)
            for f in (
                F.gelu,
                F.silu,
                F.hardswish,
                F.hardsigmoid,
                F.relu6,
                F.elu,
                F.mish,
                F.sigmoid,
                paddle.tanh,
                paddle.exp,
                paddle.abs,
            )
        ]
    ),
    "more functions": _unary(
        lambda x: [
            paddle.rsqrt(x.abs() + 0.1),
            paddle.reciprocal(x.abs() + 0.1),
            paddle.pow(x.abs(), 1.7),
            paddle.pow(x, 2.0),
            paddle.log(x.abs() + 0.1),
            F.softplus(x),
            F.log_sigmoid(x),
            F.hardtanh(x),
            F.selu(x),
            F.celu(x, 1.5),
        ]
    ),
    "roots and logarithms as they are": _unary(
        lambda x: [f(x) for f in (paddle.rsqrt, paddle.log, paddle.reciprocal, F.softplus)]
    ),
    "scale": _unary(lambda x: x * 2.5 - 1),
    "binary": _pair(
        lambda a, b: [a + b, a - b, a * b, a / b, paddle.maximum(a, b), paddle.minimum(a, b)],
        [2, 16, 5, 7],
        [2, 16, 5, 7],
    ),
    "binary channel": _pair(lambda a, b: [a + b, b - a, b / a], [2, 16, 5, 7], [1, 16, 1, 1]),
    "binary row": _pair(lambda a, b: [a * b, b - a], [2, 16, 5, 7], [7]),
    "binary outer": _pair(lambda a, b: [a + b, a - b], [2, 16, 1, 7], [5, 1]),
    "binary permuted": _pair(
        lambda a, b: a.transpose([0, 2, 3, 1]) + b, [2, 16, 5, 7], [2, 5, 7, 16]
    ),
    "reshape": _unary(lambda x: (x + 1).reshape([2, 4, 4, 35])),
    "transpose": _unary(lambda x: x.transpose([3, 1, 0, 2])),
    "transpose reshape": _unary(lambda x: x.transpose([0, 2, 3, 1]).reshape([2, 35, 16]) * 2),
    "concat": _pair(lambda a, b: paddle.concat([a, b, a], 1), [2, 16, 5, 7], [2, 3, 5, 7]),
    "stack": _pair(lambda a, b: paddle.stack([a, b], 1), [2, 16, 5], [2, 16, 5]),
    "split": _unary(lambda x: [F.relu(p) for p in paddle.split(x, [4, 10, 2], 1)]),
    "split returned": _unary(lambda x: paddle.split(x, 2, 1)),
    "slice": _unary(lambda x: x[:, 3:11, 1:, -2] + 1),
    "slice of conv": _with_weights(
        lambda x, w: F.relu(F.conv2d(x, w)[:, 5:20]), [2, 16, 9, 9], [32, 16, 3, 3]
    ),
    "strided slice": _unary(lambda x: x[:, ::2, 1::3]),
    "channel shuffle": _unary(
        lambda x: F.relu(x).reshape([2, 2, 8, 5, 7]).transpose([0, 2, 1, 3, 4]).reshape(x.shape)
    ),
    "expand": _unary(lambda x: x[:, :, :1].expand([2, 16, 6, 7])),
    "mean": _unary(lambda x: [x.mean(), x.mean([2, 3]), x.mean(1), x.mean(-1, keepdim=True)]),
    "sum max min": _unary(lambda x: [x.sum(1), x.max(-1), x.min([0, 2])]),
    "nearest": _unary(lambda x: F.interpolate(x, scale_factor=2, mode="nearest")),
    "bilinear": _unary(lambda x: F.interpolate(x, size=[10, 14], mode="bilinear")),
    **{
        f"{mode}{' corners' if corners else ''}{' to a size' if sized else ''}": _resized(
            mode, corners, sized
        )
        for mode in ("bilinear", "bicubic", "linear", "trilinear")
        for corners in (False, True)
        for sized in (False, True)
    },
    "nearest to a size": _resized("nearest", False, True),
    "nearest 3d": _unary(
        lambda x: F.interpolate(x, size=[5, 7, 8], data_format="NCDHW"), (2, 4, 3, 5, 6)
    ),
    "bilinear mode 1": _unary(
        lambda x: F.interpolate(x, size=[9, 4], mode="bilinear", align_mode=1)
    ),
    "bilinear of a convolution": _with_weights(
        lambda x, w: F.relu(
            F.interpolate(F.conv2d(x, w), size=[13, 16], mode="bilinear", align_corners=True)
        ),
        [2, 16, 9, 9],
        [24, 16, 3, 3],
    ),
    "embeddings and layer norm": lambda: _embedded(lambda s: F.layer_norm(s, 24)),
    "embeddings and layer norm and their sum": lambda: _embedded(
        lambda s: F.layer_norm(s, 24) * 2 + s
    ),
    "squeeze excitation": _squeeze(16, 4, 9),
    "squeeze excitation odd sizes": _squeeze(72, 20, 7),
    "squeeze excitation few pixels": _squeeze(40, 24, 3),
    "squeeze excitation large": _squeeze(96, 24, 28),
    "lstm": _recurrent("LSTM"),
    "lstm layers": _recurrent("LSTM", num_layers=3, batch=1),
    "lstm both ways": _recurrent("LSTM", num_layers=2, direction="bidirect"),
    "lstm time major": _recurrent("LSTM", time_major=True, states=2),
    "lstm states": _recurrent("LSTM", num_layers=2, direction="bidirect", states=2),
    "lstm one step": _recurrent("LSTM", steps=1, batch=1),
    "gru": _recurrent("GRU"),
    "gru layers": _recurrent("GRU", num_layers=2, batch=1, states=1),
    "gru both ways": _recurrent("GRU", num_layers=2, direction="bidirect", states=1),
    "gru time major": _recurrent("GRU", time_major=True),
    "simple rnn": _recurrent("SimpleRNN", num_layers=2),
    "simple rnn relu both ways": _recurrent(
        "SimpleRNN", activation="relu", direction="bidirect", states=1
    ),
    # Many sequences go to oneDNN's primitive, few to our loop; long states to several threads.
    "lstm many": _recurrent("LSTM", batch=9, direction="bidirect", states=2),
    "gru many": _recurrent("GRU", batch=17, num_layers=2, states=1),
    "lstm odd sizes": _recurrent("LSTM", batch=5, hidden=37, direction="bidirect", states=2),
    "gru odd sizes": _recurrent("GRU", batch=4, hidden=67, direction="bidirect", states=1),
    "lstm long state": _recurrent("LSTM", batch=1, hidden=200, states=2),
    "gru long state": _recurrent("GRU", batch=1, hidden=260, states=1),
    "lstm lengths": _with_lengths("LSTM", batch=3, num_layers=2),
    "lstm lengths both ways": _with_lengths("LSTM", batch=5, hidden=37, direction="bidirect"),
    "lstm lengths and states": _with_lengths("LSTM", batch=4, direction="bidirect", states=2),
    "gru lengths": _with_lengths("GRU", batch=20, direction="bidirect", num_layers=2),
    "gru length of one": _with_lengths("GRU", batch=1, hidden=260, states=1),
    "lstm last step": lambda: (
        (lambda net: lambda x: net(x)[0][:, -1])(paddle.nn.LSTM(12, 16, 2)),
        R([1, 9, 12]),
    ),
    "gru final state only": lambda: (
        (lambda net: lambda x: net(x)[1][-1])(paddle.nn.GRU(12, 16, 2)),
        R([3, 9, 12]),
    ),
    "integers": lambda: (
        lambda i: [i.reshape([6]), i.transpose([1, 0]), paddle.concat([i, i]), i.astype("float32")],
        paddle.to_tensor(np.arange(6).reshape(2, 3)),
    ),
    "comparisons of integers": lambda: (
        lambda i, j: [f(i, j) for f in _COMPARISONS] + [f(i, _number(3)) for f in _COMPARISONS],
        *_integers([4, 6], [4, 6]),
    ),
    "comparisons that broadcast": lambda: (
        lambda i, j: [f(i.transpose([1, 0]), j) for f in _COMPARISONS],
        *_integers([4, 6], [4], dtype="int32"),
    ),
    "comparisons of floats": _pair(
        lambda a, b: [f(a, b - 3.0) for f in _COMPARISONS], [2, 16, 5, 7], [16, 1, 1]
    ),
    "comparison of lengths": lambda: (
        lambda n: (paddle.arange(5, dtype="int64") < n.unsqueeze(1)).astype("float32"),
        *_integers([4]),
    ),
    "logic": lambda: (
        lambda i, j: [
            *(f(i > 2, j > 3) for f in _LOGIC),
            ~(i > 2),
            paddle.logical_not(i > 2),
            (i > 2) == (j > 3),
        ],
        *_integers([4, 6], [4, 6]),
    ),
    "where": _unary(lambda x: paddle.where(x > 0, x, x * 0.5)),
    "where of a convolution": _with_weights(
        lambda x, w: (lambda y: paddle.where(y > y.mean(), y, -y))(F.conv2d(x, w)),
        [2, 16, 9, 9],
        [24, 16, 3, 3],
    ),
    "where of integers": lambda: (
        lambda i, j: paddle.where(i < j, i, paddle.zeros_like(i)),
        *_integers([4, 6], [4, 6]),
    ),
    "arithmetic of integers": lambda: (
        lambda i, j: [
            i + j,
            i - j,
            i * j,
            i + 1,
            i * 3 - 2,
            paddle.maximum(i, j),
            paddle.minimum(i.astype("int32"), j.astype("int32")),
        ],
        *_integers([4, 6], [1, 6]),
    ),
    "attention mask of ids": lambda: (
        lambda i: ((i == 0).astype("float32") * -1e4).unsqueeze([1, 2]),
        *_integers([4, 6]),
    ),
    "zero-dimensional result": _unary(lambda x: (x * x).sum()),
    "input returned": _unary(lambda x: [x, x + 1, x]),
}


@pytest.mark.parametrize("layout", ["any", "nhwc"])
@pytest.mark.parametrize("case", NATIVE)
def test_op_is_native_and_right(case: str, layout: str) -> None:
    function, *inputs = NATIVE[case]()
    executable = nm.check(function, *inputs, layout=layout)
    assert executable.host_ops == []


HOST: dict[str, Callable[[], tuple[Any, ...]]] = {
    "softmax of one element": _unary(lambda x: F.softmax(x[:1], axis=0) + x[:1]),
    "host result returned in another shape": _unary(lambda x: paddle.cumsum(x, 1).reshape([-1])),
    "cumsum": _unary(lambda x: F.relu(paddle.cumsum(x * 2, 1)) + 1),
    "sort and index": _unary(lambda x: paddle.topk(x.reshape([2, -1]), 5)),
    "double": _unary(lambda x: x.astype("float64") * 2),
    "bfloat16": _unary(lambda x: (x.astype("bfloat16") * 2).astype("float32")),
    "host result is a view of the arena": _unary(lambda x: paddle.flip(x * 2, [0]) * (x * 2)),
    "bilinear channels last": _unary(
        lambda x: F.interpolate(x, size=[10, 14], mode="bilinear", data_format="NHWC")
    ),
    "maxima and their positions": _unary(
        lambda x: list(F.adaptive_max_pool2d(x, [3, 4], return_mask=True))
    ),
}


@pytest.mark.parametrize("case", HOST)
def test_op_without_a_rule_runs_on_the_host(case: str) -> None:
    function, *inputs = HOST[case]()
    executable = nm.check(function, *inputs)
    assert executable.host_ops


#: Where a NaN or an infinity is treated as eager does.  Known differences are in docs/native.md.
NON_FINITE = {
    "conv": (np.nan, np.inf),
    "linear": (np.nan, np.inf),
    "layer norm": (np.nan,),
    "activations": (np.nan, np.inf, -np.inf),
    "more functions": (np.nan, np.inf),
    "roots and logarithms as they are": (np.nan, np.inf, 0.0),
    "softmax of planes": (np.nan, np.inf, -np.inf),
    "softmax of few channels": (np.nan,),
    "conv transpose in tiles 24 2x2": (np.nan, np.inf),
    "conv transpose in tiles 1 2x2": (np.nan,),
    "rms norm": (np.nan, np.inf),
    "group norm": (np.nan,),
    "prelu": (np.nan, np.inf, -np.inf),
    "swiglu": (np.nan,),
    "max pool": (np.inf, -np.inf),
    "softmax": (-np.inf,),
    "binary": (np.nan, np.inf, -np.inf),
    "sum max min": (np.nan, np.inf, -np.inf),
    "lstm": (np.nan, np.inf),
    "gru": (np.nan, -np.inf),
    "scale": (np.nan, np.inf, -np.inf),
    "comparisons of floats": (np.nan, np.inf, -np.inf),
    "where": (np.nan, np.inf, -np.inf),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", ["softmax of large planes", "few planes, softmax"])
def test_planes_on_any_number_of_threads(case: str, threads: int) -> None:
    function, *inputs = NATIVE[case]()
    nm.check(function, *inputs, layout="nhwc", threads=threads)


@pytest.mark.parametrize(
    "case, op, how",
    [
        ("conv transpose in tiles 24 2x2", "fused_conv2d_transpose", "matmul"),
        ("conv transpose in tiles 1 2x2", "fused_conv2d_transpose", "matmul"),
        ("few planes, softmax", "fused_conv2d", "matmul"),
        ("softmax of few channels", "softmax", "kernel"),
    ],
)
def test_the_fast_way_is_taken(case: str, op: str, how: str) -> None:
    function, *inputs = NATIVE[case]()
    steps = nm.build(function, inputs, layout="nhwc")._held[0][0].steps
    assert any(name == op and how in implementation for name, implementation in steps)


def test_minus_infinity_has_no_share_of_a_softmax() -> None:
    array = np.random.default_rng(0).standard_normal((2, 5, 40), np.float32)
    array[0, 1, ::3] = -np.inf
    array[1, :, 7] = -np.inf
    x = paddle.to_tensor(array)
    (got,) = nm.check(lambda t: F.softmax(t, axis=1), x)([x])
    assert np.all(got.numpy()[0, 1, ::3] == 0)
    assert np.all(np.isnan(got.numpy()[1, :, 7]))


@pytest.mark.parametrize("case, bad", [(c, bad) for c, all in NON_FINITE.items() for bad in all])
def test_non_finite_values_pass_as_in_eager(case: str, bad: float) -> None:
    function, first, *others = NATIVE[case]()
    array = first.numpy()
    array.reshape(-1)[3] = bad
    nm.check(function, paddle.to_tensor(array), *others)
