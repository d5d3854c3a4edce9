"""Chains of convolutions and poolings that run band by band: values, memory, and the arithmetic of
rows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import native_models as nm
import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_fluid_boost.engines.native import bands, planning


@pytest.fixture
def eagerly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bands for tensors of any size, so that tests may be small."""
    monkeypatch.setattr(planning, "_LARGE", 0)
    monkeypatch.setattr(planning, "_WORTH", 0.99)
    monkeypatch.setattr(bands, "_BAND", 16 << 10)
    monkeypatch.setattr(bands, "_LEAST_ROWS", 1)


def chain_of(executable: nm.NativeExecutable) -> int:
    """How often the op that a chain's steps are called by is among the plan's steps."""
    return sum(op in ("fused_conv2d", "fused_pool2d") for op, _ in executable._held[0][0].steps)


class Stem(nn.Sequential):
    def __init__(self, channels: int = 16) -> None:
        super().__init__(
            nn.Conv2D(3, channels, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(3, stride=2, padding=1),
        )


def test_the_tensor_between_is_never_whole() -> None:
    """At real sizes, with the thresholds as they are."""
    net, x = Stem(), paddle.randn([1, 3, 512, 512])
    executable = nm.check(net, x, layout="nhwc")
    between, result = 16 * 256 * 256 * 4, 16 * 128 * 128 * 4
    assert executable.placement.size < result + between // 2
    assert any("2 ops run in bands" in note for note in executable.notes)
    executable.close()


def test_small_tensors_stay_whole() -> None:
    executable = nm.check(Stem(), paddle.randn([1, 3, 64, 64]), layout="nhwc")
    assert chain_of(executable) == 2
    # What explain prints of the placement.
    assert any("lower bound" in note and "x, by " in note for note in executable.notes)
    executable.close()


@pytest.mark.parametrize("seed", range(12))
def test_random_chains_are_right_in_bands(seed: int, eagerly: None) -> None:
    choose = random.Random(seed)
    channels, layers = 3, []
    for _ in range(choose.randint(1, 4)):
        kernel, stride, dilation = choose.choice([1, 2, 3, 5]), choose.randint(1, 3), 1
        if choose.random() < 0.6:
            made = choose.choice([8, 16])
            groups = channels if channels == made and choose.random() < 0.5 else 1
            dilation = choose.randint(1, 2)
            padding = choose.randint(0, kernel)
            layers.append(
                nn.Conv2D(channels, made, kernel, stride, padding, dilation, groups=groups)
            )
            layers.append(choose.choice([nn.ReLU(), nn.Hardswish(), nn.Identity()]))
            channels = made
        else:
            kernel = max(kernel, 2)
            pool = choose.choice([nn.MaxPool2D, nn.AvgPool2D])
            ceil = choose.random() < 0.5
            layers.append(pool(kernel, stride, choose.randint(0, kernel // 2), ceil_mode=ceil))
    net = nn.Sequential(*layers)
    batch, height, width = choose.randint(1, 3), choose.randint(60, 130), choose.randint(60, 130)
    executable = nm.check(net, paddle.randn([batch, 3, height, width]), layout="nhwc")
    executable.close()


def test_a_tensor_that_others_read_ends_the_chain(eagerly: None) -> None:
    first, second = nn.Conv2D(3, 8, 3, padding=1), nn.Conv2D(8, 8, 3, padding=1)

    def net(x: paddle.Tensor) -> paddle.Tensor:
        middle = first(x)
        return second(middle) + middle.mean()

    executable = nm.check(net, paddle.randn([1, 3, 96, 96]), layout="nhwc")
    executable.close()


@pytest.mark.parametrize("batch", [1, 4])
def test_bands_cover_every_row_once(batch: int, eagerly: None) -> None:
    """The rows of the result are those of the bands in order, and no band reads outside."""
    taken: list[bands.Chain] = []
    found = bands.at_peak

    def spy(*arguments: object) -> bands.Chain | None:
        chain = found(*arguments)
        if chain is not None:
            taken.append(chain)
        return chain

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bands, "at_peak", spy)
        nm.build(Stem(), [paddle.randn([batch, 3, 128, 128])], layout="nhwc").close()
    assert taken
    for chain in taken:
        parts = chain.bands()
        assert len(parts) > 1
        axis = 0 if batch > 1 else 2
        rows = np.concatenate([np.arange(part.begin, part.end) for part in parts])
        np.testing.assert_array_equal(rows, np.arange(chain.result.shape[axis]))
        for part in parts:
            stretches = part.stretches()
            assert len(stretches) == len(chain.nodes)
            for before, after in zip(stretches, stretches[1:]):
                assert (before.begin, before.end) == (after.low, after.high)
            assert 0 <= stretches[0].low < stretches[0].high <= chain.source.shape[axis]


def test_parts_of_a_concat_are_written_in_place() -> None:
    """Along the outermost dimension nothing is copied; a part may still be read by others."""
    left, right = nn.Linear(16, 24), nn.Linear(16, 24)

    def net(x: paddle.Tensor, y: paddle.Tensor) -> list[paddle.Tensor]:
        a, b = left(x), right(y)
        return [paddle.concat([a, b]), a.tanh(), (a + b).tanh()]

    executable = nm.check(net, paddle.randn([8, 16]), paddle.randn([8, 16]))
    assert not any(op == "concat" for op, _ in executable._held[0][0].steps)
    executable.close()

    def twice(x: paddle.Tensor) -> paddle.Tensor:
        a = left(x)
        return paddle.concat([a, a])  # not two parts: one of them has to be copied

    nm.check(twice, paddle.randn([8, 16])).close()
