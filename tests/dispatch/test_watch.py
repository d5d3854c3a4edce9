"""Touches reach the watchers of every tensor that shares the memory, and nobody else."""

from __future__ import annotations

import gc

import paddle
import pytest

from paddle_fluid_boost.dispatch.version import Weights
from paddle_fluid_boost.dispatch.watch import memory_extent, touch, touch_everything, watch


class Ear:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def touched(self, key: int) -> None:
        self.heard.append(key)


def test_slices_of_one_buffer_are_told_apart() -> None:
    flat, ear = paddle.rand([64]), Ear()
    first, second = flat[:16], flat[16:32]
    watch(first, ear)
    watch(second, ear)
    touch(flat)
    assert sorted(ear.heard) == sorted([id(first), id(second)])
    ear.heard.clear()
    touch(flat[20:21])
    assert ear.heard == [id(second)]
    touch(flat[32:])
    assert ear.heard == [id(second)]


@pytest.mark.parametrize(
    "alias", [lambda w: w.detach(), lambda w: w.data, lambda w: w[:, 1], lambda w: w.reshape([-1])]
)
def test_aliases_and_strided_views_reach_the_tensor(alias) -> None:
    tensor, ear = paddle.rand([4, 4]), Ear()
    watch(tensor, ear)
    touch(alias(tensor))
    assert ear.heard == [id(tensor)]
    touch(tensor.clone())
    assert ear.heard == [id(tensor)]


def test_tensors_without_dense_memory_have_no_extent() -> None:
    assert memory_extent(paddle.zeros([0, 3])) is None
    assert memory_extent(paddle.sparse.sparse_coo_tensor([[0]], [1.0], [2])) is None


def test_the_dead_are_not_told_and_not_kept() -> None:
    tensor, ear = paddle.rand([4]), Ear()
    watch(tensor, ear)
    del ear
    gc.collect()
    touch(tensor)
    touch_everything()


def test_weights_forget_a_false_alarm_and_keep_a_true_one() -> None:
    tensors = [paddle.rand([4]), paddle.rand([4])]
    weights = Weights(tensors)
    weights.remember()
    touch(tensors[1])
    assert not weights.untouched()
    assert weights.quick
    assert weights.unchanged()
    assert weights.untouched()
    tensors[1].get_tensor().set(tensors[1].numpy() + 1, paddle.CPUPlace())
    touch(tensors[1].detach())
    assert not weights.unchanged()
    assert not weights.untouched()


def test_a_touch_during_the_comparison_is_not_lost(monkeypatch) -> None:
    from paddle_fluid_boost.dispatch import version

    tensor = paddle.rand([4])
    weights = Weights([tensor])
    weights.remember()
    touch(tensor)
    fingerprint = version.fingerprint

    def slow(one):
        found = fingerprint(one)
        assert not weights.untouched(), "a version must not serve while its weights are compared"
        touch(one)  # another thread writes, after its content was read
        return found

    monkeypatch.setattr(version, "fingerprint", slow)
    assert weights.unchanged()
    assert not weights.untouched()
