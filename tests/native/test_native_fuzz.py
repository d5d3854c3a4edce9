"""Random graphs of supported ops, shapes, strides and broadcasts against eager."""

from __future__ import annotations

import random
from typing import Any

import native_models as nm
import numpy as np
import paddle
import pytest
from fuzz_programs import RandomProgram
from fuzz_programs_wide import WideProgram


def _compare(seed: int) -> None:
    paddle.seed(seed)
    with paddle.no_grad():
        program = RandomProgram(seed)
    layout = random.Random(seed).choice(["any", "nhwc"])
    algorithm = random.Random(seed).choice(["direct", "winograd2", "winograd4"])
    executable = nm.build(program, [program.x], layout=layout, algorithm=algorithm)
    _assert_alike(executable([program.x]), program, [program.x], seed)


def _nudged(x: Any, seed: int) -> Any:
    """``x`` with every element moved by one unit in its last place, up or down."""
    signs = np.random.RandomState(seed).choice([-1, 1], x.shape).astype("float32")
    return x * (1 + paddle.to_tensor(signs * 2**-23))


def _assert_alike(got: list[Any], program: Any, inputs: list[Any], seed: int) -> None:
    """Within 1e-5 of the largest element, as for nets, and a few times what eager's own result
    moves when the input is nudged: a graph that normalises differences of nearly equal numbers
    magnifies every rounding."""
    want = nm.eager(program, inputs)
    nudged = [
        nm.eager(program, [_nudged(inputs[0], seed + turn), *inputs[1:]]) for turn in range(3)
    ]
    assert len(got) == len(want), f"seed {seed}"
    for a, b, *moved in zip(got, want, *nudged):
        assert a.dtype == b.dtype and a.shape == b.shape, f"seed {seed}"
        if a.dtype != paddle.float32:
            assert bool((a == b).all()), f"seed {seed}"
            continue
        error = float((a - b).abs().max())
        move = max(float((c - b).abs().max()) for c in moved)
        allowed = 1e-5 * max(float(b.abs().max()), 1e-3) + 10 * move
        assert error <= allowed, f"seed {seed}: {error}, allowed {allowed}"


def _compare_wide(seed: int) -> None:
    """Builds for one input, and compares on it and on one that takes other branches."""
    paddle.seed(seed)
    with paddle.no_grad():
        program = WideProgram(seed)
    layout = random.Random(seed).choice(["any", "nhwc"])
    first = [program.x, program.ids]
    executable = nm.build(program, first, layout=layout)
    for inputs in (first, program.other_inputs()):
        _assert_alike(executable(inputs), program, inputs, seed)


@pytest.mark.parametrize("block", range(10))
def test_random_graphs(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        _compare(seed)


@pytest.mark.long
def test_many_random_graphs() -> None:
    for seed in range(1000, 3000):
        _compare(seed)


@pytest.mark.parametrize("block", range(10))
def test_random_graphs_of_less_usual_ops(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        _compare_wide(seed)


@pytest.mark.long
def test_many_random_graphs_of_less_usual_ops() -> None:
    for seed in range(1000, 3000):
        _compare_wide(seed)
