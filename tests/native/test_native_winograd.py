"""Winograd convolutions against eager: shapes, borders, batches, what follows them."""

from __future__ import annotations

from typing import Any

import native_models as nm
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest


def _implementations(executable: Any, *inputs: Any) -> list[str]:
    return [how for _, how, _ in executable.profile(list(inputs), repeats=1)]


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    "batch, height, width, padding",
    [(1, 14, 14, 1), (3, 7, 7, 1), (1, 5, 31, 0), (2, 9, 6, [2, 0, 1, 2]), (1, 60, 60, 1)],
)
def test_shapes_and_borders(batch: int, height: int, width: int, padding: Any, tile: int) -> None:
    w, b = paddle.randn([48, 32, 3, 3]) * 0.1, paddle.randn([48])
    x = paddle.randn([batch, 32, height, width])
    executable = nm.check(
        lambda t: F.conv2d(t, w, b, padding=padding), x, layout="nhwc", algorithm=f"winograd{tile}"
    )
    assert f"winograd:{tile}" in _implementations(executable, x)


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("channels, out_channels", [(24, 24), (40, 56), (32, 24), (72, 32)])
def test_half_vectors_of_channels(channels: int, out_channels: int, tile: int) -> None:
    w, b = paddle.randn([out_channels, channels, 3, 3]) * 0.1, paddle.randn([out_channels])
    x = paddle.randn([2, channels, 10, 13])
    residual = paddle.randn([2, out_channels, 10, 13])

    def block(t: Any, r: Any) -> Any:
        return F.relu(F.conv2d(t, w, b, padding=1) + (r + 1.0))

    executable = nm.check(block, x, residual, layout="nhwc", algorithm=f"winograd{tile}")
    assert _implementations(executable, x, residual).count(f"winograd:{tile}") == 1


@pytest.mark.parametrize("tile", [2, 4])
def test_activations_before_and_after_the_residual(tile: int) -> None:
    w, b = paddle.randn([40, 40, 3, 3]) * 0.1, paddle.randn([40])
    x = paddle.randn([1, 40, 9, 9])
    executable = nm.check(
        lambda t: F.relu6(F.silu(F.conv2d(t, w, b, padding=1)) + t),
        x,
        layout="nhwc",
        algorithm=f"winograd{tile}",
    )
    implementations = _implementations(executable, x)
    assert implementations.count(f"winograd:{tile}") == 1
    assert len(implementations) <= 3  # reorders around it


@pytest.mark.parametrize("tile", [2, 4])
def test_what_follows_is_applied_in_the_same_step(tile: int) -> None:
    w, v = paddle.randn([32, 32, 3, 3]) * 0.1, paddle.randn([32, 32, 3, 3]) * 0.1

    def block(x: Any) -> Any:
        y = F.leaky_relu(F.conv2d(x, w, padding=1), 0.1)
        z = F.relu(F.conv2d(y, v, padding=1) + y)
        return F.conv2d(z, w, padding=1) + x

    x = paddle.randn([2, 32, 11, 12])
    executable = nm.check(block, x, layout="nhwc", algorithm=f"winograd{tile}")
    implementations = _implementations(executable, x)
    assert implementations.count(f"winograd:{tile}") == 3
    assert set(implementations) <= {f"winograd:{tile}", "jit:uni", "jit:blk"}


def _convolutions(*channels: tuple[int, int]) -> list[Any]:
    return [paddle.randn([out, i, 3, 3]) * (9 * i) ** -0.5 for i, out in channels]


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("parts", [(24, 24), (8, 16, 40), (8, 8, 8), (40, 8, 32, 24), (32, 16)])
def test_parts_of_a_concat_are_read_where_they_are(parts: tuple[int, ...], tile: int) -> None:
    weights = _convolutions(*((3, part) for part in parts), (sum(parts), 24))

    def net(x: Any) -> Any:
        joined = paddle.concat([F.relu(F.conv2d(x, w, padding=1)) for w in weights[:-1]], axis=1)
        return F.conv2d(joined, weights[-1], padding=1)

    x = paddle.randn([2, 3, 9, 14])
    executable = nm.check(net, x, layout="nhwc", algorithm=f"winograd{tile}")
    steps = executable._held[0][0].steps
    assert "concat" not in [op for op, _ in steps]
    assert ("fused_conv2d", f"winograd:{tile}") in steps


@pytest.mark.parametrize("algorithm, parts", [("direct", (24, 24)), ("winograd4", (24, 20))])
def test_other_convolutions_read_the_whole(algorithm: str, parts: tuple[int, int]) -> None:
    weights = _convolutions(*((3, part) for part in parts), (sum(parts), 32))

    def net(x: Any) -> Any:
        joined = paddle.concat([F.relu(F.conv2d(x, w)) for w in weights[:-1]], axis=1)
        return F.conv2d(joined, weights[-1])

    executable = nm.check(net, paddle.randn([1, 3, 12, 9]), layout="nhwc", algorithm=algorithm)
    assert [op for op, _ in executable._held[0][0].steps].count("concat") == 1


def test_parts_are_kept_until_they_are_read() -> None:
    """A residual that one of them is elsewhere must not be added in place before that."""
    first, second, third, last = _convolutions((3, 32), (3, 32), (3, 32), (64, 32))

    def net(x: Any) -> Any:
        a, b = (F.relu(F.conv2d(x, w, padding=1)) for w in (first, second))
        joined = paddle.concat([a, b], axis=1)
        other = F.relu(F.conv2d(x, third, padding=1) + a)
        return F.conv2d(joined, last, padding=1), other

    nm.check(net, paddle.randn([1, 3, 12, 12]), layout="nhwc", algorithm="winograd2")


@pytest.mark.parametrize("activate", [F.silu, F.hardswish, F.relu6, F.sigmoid, F.hardsigmoid])
def test_activations_are_applied_in_the_same_step(activate: Any) -> None:
    w, b = paddle.randn([32, 32, 3, 3]) * 0.1, paddle.randn([32])
    x = paddle.randn([1, 32, 14, 14])
    executable = nm.check(
        lambda t: activate(F.conv2d(t, w, b, padding=1)), x, layout="nhwc", algorithm="winograd4"
    )
    assert _implementations(executable, x).count("winograd:4") == 1
    assert len(_implementations(executable, x)) <= 3  # reorders around it


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(threads: int) -> None:
    w = paddle.randn([64, 64, 3, 3]) * 0.1
    for side in (6, 40):
        nm.check(
            lambda t: F.conv2d(t, w, padding=1),
            paddle.randn([1, 64, side, side]),
            layout="nhwc",
            algorithm="winograd4",
            threads=threads,
        )


@pytest.mark.parametrize(
    "settings", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"kernel": 1}, {"channels": 28}]
)
def test_other_convolutions_stay_direct(settings: dict[str, int]) -> None:
    kernel, channels = settings.pop("kernel", 3), settings.pop("channels", 32)
    w = paddle.randn([32, channels // settings.get("groups", 1), kernel, kernel])
    x = paddle.randn([1, channels, 12, 12])
    executable = nm.check(
        lambda t: F.conv2d(t, w, **settings), x, layout="nhwc", algorithm="winograd4"
    )
    assert not any("winograd" in how for how in _implementations(executable, x))


def test_infinity_reaches_only_what_it_touches_or_becomes_nan() -> None:
    """The transforms mix a patch: a non-finite pixel spoils whole tiles, never less than eager."""
    w = paddle.randn([32, 32, 3, 3]) * 0.1
    array = np.random.default_rng(0).standard_normal((1, 32, 12, 12), np.float32)
    array[0, 3, 5, 5] = np.inf
    x = paddle.to_tensor(array)

    def convolve(t: Any) -> Any:
        return F.conv2d(t, w, padding=1)

    executable = nm.build(convolve, [x], layout="nhwc", algorithm="winograd2")
    (got,), (want,) = executable([x]), nm.eager(convolve, [x])
    assert np.all(~np.isfinite(got.numpy()[~np.isfinite(want.numpy())]))


def test_auto_is_right_whatever_it_picks() -> None:
    w = paddle.randn([64, 64, 3, 3]) * 0.1
    nm.check(lambda t: F.conv2d(t, w, padding=1), paddle.randn([1, 64, 28, 28]), layout="nhwc")
