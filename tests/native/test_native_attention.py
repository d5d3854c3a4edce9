"""Attention under masks that are known when the plan is built."""

from __future__ import annotations

from typing import Any, Callable

import native_models as nm
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from paddle_fluid_boost.engines.native import runtime
from paddle_fluid_boost.hardware.probe import probe

LENGTH, HEADS, DEPTH = 300, 2, 16


def _attention(mask: np.ndarray | None, heads_inside: bool) -> Callable[..., Any]:
    masks = None if mask is None else paddle.to_tensor(mask.astype("float32"))

    def attend(q: Any, k: Any, v: Any) -> Any:
        if heads_inside:
            q, k, v = (t.transpose([0, 2, 1, 3]) for t in (q, k, v))
        scores = paddle.matmul(q, k, transpose_y=True) * DEPTH**-0.5
        y = paddle.matmul(F.softmax(scores if masks is None else scores + masks), v)
        return y.transpose([0, 2, 1, 3]) if heads_inside else y

    return attend


def _inputs(heads_inside: bool) -> list[Any]:
    shape = [2, LENGTH, HEADS, DEPTH] if heads_inside else [2, HEADS, LENGTH, DEPTH]
    return [paddle.randn(shape) for _ in range(3)]


def _products(executable: Any, inputs: list[Any]) -> int:
    """The matrix products among the steps."""
    return sum("matmul" in how for _, how, _ in executable.profile(inputs, repeats=1))


CAUSAL = np.triu(np.full([LENGTH, LENGTH], -np.inf), 1)
WINDOW = np.where(np.abs(np.subtract.outer(range(LENGTH), range(LENGTH))) < 20, 0.0, -np.inf)
# Parts of one shape and different content, which must not be taken for each other.
CHUNKS = np.where(
    np.equal.outer(np.arange(LENGTH) // 128, np.arange(LENGTH) // 128),
    np.random.RandomState(0).randn(LENGTH, LENGTH),
    -np.inf,
)
BLIND = CAUSAL.copy()
BLIND[150:] = -np.inf


@pytest.fixture(params=["in one step", "as products"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compute it, whichever the machine would take."""
    if request.param == "as products":
        monkeypatch.setattr(runtime.module().PlanBuilder, "can_attend", lambda *_: False)
    elif "avx512dq" not in probe().cpu.features:
        pytest.skip("attention in one step needs AVX-512")
    return str(request.param)


@pytest.mark.parametrize("heads_inside", [False, True])
@pytest.mark.parametrize("mask", [CAUSAL, WINDOW, CAUSAL + 0.5, CAUSAL[None, None], CHUNKS, BLIND])
def test_keys_that_nobody_sees_are_left_out(mask: np.ndarray, heads_inside: bool, way: str) -> None:
    inputs = _inputs(heads_inside)
    executable = nm.check(_attention(mask, heads_inside), *inputs)
    assert executable.host_ops == []
    # Three blocks of up to 128 queries.
    assert _products(executable, inputs) == (2 * 3 if way == "as products" else 0)


def _one_visible(rows: slice, key: int) -> np.ndarray:
    """Causal, but that ``rows`` see one key only."""
    mask = CAUSAL.copy()
    mask[rows] = -np.inf
    mask[rows, key] = 0.0
    return mask


@pytest.mark.parametrize("key", [0, 7, LENGTH - 1])
def test_a_block_that_sees_one_key_is_computed(key: int, way: str) -> None:
    """Such a block is a product over one element, which is no matrix product for the builder."""
    nm.check(_attention(_one_visible(slice(256, None), key), True), *_inputs(True))


PER_HEAD = np.stack([CAUSAL, np.zeros_like(CAUSAL)])[None]
FINITE = np.where(np.isinf(CAUSAL), -1e4, 0.0)


@pytest.mark.parametrize("mask", [None, FINITE, PER_HEAD, WINDOW[:1]])
def test_everything_is_computed_at_once_otherwise(mask: np.ndarray | None, way: str) -> None:
    inputs = _inputs(True)
    executable = nm.check(_attention(mask, True), *inputs)
    assert _products(executable, inputs) == (2 if way == "as products" else 0)


@pytest.mark.parametrize(
    ("queries", "keys", "depth", "values"),
    [
        (1, 1, 1, 1),
        (1, 40, 8, 8),
        (5, 17, 26, 26),
        (33, 31, 16, 40),
        (45, 130, 64, 3),
        (8, 16, 7, 48),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_all_sizes(
    queries: int, keys: int, depth: int, values: int, masked: bool, threads: int, way: str
) -> None:
    def attend(q: Any, k: Any, v: Any, *mask: Any) -> Any:
        scores = paddle.matmul(q, k, transpose_y=True) * 0.3
        return paddle.matmul(F.softmax(scores + mask[0] if mask else scores), v)

    inputs = [
        paddle.randn([2, 3, n, d]) for n, d in ((queries, depth), (keys, depth), (keys, values))
    ]
    if masked:
        inputs.append(paddle.randn([2, 1, 1, keys]))
    nm.check(attend, *inputs, threads=threads)


def test_sequences_without_heads(way: str) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.2), v)

    nm.check(attend, *(paddle.randn([3, 50, 20]) for _ in range(3)))


def test_weights_far_below_the_largest_are_zero(way: str) -> None:
    inputs = [20 * paddle.randn([1, 2, 40, 16]) for _ in range(3)]
    nm.check(_attention(None, False), *inputs)
