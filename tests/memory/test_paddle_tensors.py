"""Paddle's own tensors from the block pool: the share served, switching, the way back to stock."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import paddle
import pytest
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost.memory import paddle_tensors
from paddle_fluid_boost.memory.shared import shared_pool


@pytest.fixture
def served():
    """Tensors come from the pool during the test."""
    if not paddle_tensors.switch_on():
        pytest.skip(f"stock allocator: {paddle_tensors.refusal()}")
    yield
    paddle_tensors.switch_off()


def net() -> nn.Layer:
    paddle.seed(3)
    made = nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1),
        nn.BatchNorm2D(8),
        nn.ReLU(),
        nn.Conv2D(8, 8, 3, padding=1),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    made.eval()
    return made


def from_pool(tensor: paddle.Tensor) -> bool:
    return shared_pool().owns(tensor.data_ptr())


def paddles_own_count() -> int:
    """Bytes that Paddle's own statistics say are allocated for CPU tensors."""
    return paddle.base.core.host_memory_stat_current_value("Allocated", 0)


# -- the share ------------------------------------------------------------------------------------


def test_every_allocation_of_eager_is_served(served) -> None:
    model, x = net(), paddle.rand([2, 3, 24, 24])
    with paddle.no_grad(), paddle_tensors.watched() as traffic:
        y = model(x)
    assert traffic().requests >= 6
    assert traffic().share == 1.0
    assert from_pool(y)


def test_every_allocation_of_training_is_served(served) -> None:
    model, x = net(), paddle.rand([2, 3, 24, 24])
    model.train()
    optimizer = paddle.optimizer.Adam(parameters=model.parameters())
    with paddle_tensors.watched() as traffic:
        model(x).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    assert traffic().requests >= 30
    assert traffic().share == 1.0


def test_every_allocation_of_stock_to_static_is_served(served) -> None:
    model, x = paddle.jit.to_static(net(), full_graph=True), paddle.rand([2, 3, 24, 24])
    with paddle.no_grad():
        model(x)
        with paddle_tensors.watched() as traffic:
            y = model(x)
    assert traffic().requests >= 4
    assert traffic().share == 1.0
    assert from_pool(y)


@pytest.mark.parametrize("onednn", [False, True])
def test_every_allocation_of_paddle_inference_is_served(served, onednn, tmp_path) -> None:
    from paddle import inference

    model, x = net(), paddle.rand([2, 3, 24, 24])
    with paddle.no_grad():
        want = model(x).numpy()
    spec = [paddle.static.InputSpec([2, 3, 24, 24], "float32")]
    paddle.jit.save(paddle.jit.to_static(model, input_spec=spec, full_graph=True), f"{tmp_path}/m")
    config = inference.Config(f"{tmp_path}/m.json", f"{tmp_path}/m.pdiparams")
    config.disable_glog_info()
    config.enable_mkldnn() if onednn else config.disable_mkldnn()
    predictor = inference.create_predictor(config)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    target = predictor.get_output_handle(predictor.get_output_names()[0])
    with paddle_tensors.watched() as traffic:
        source.copy_from_cpu(x.numpy())
        predictor.run()
    assert traffic().requests >= 2
    assert traffic().share == 1.0
    assert np.allclose(target.copy_to_cpu(), want, atol=1e-5)


def test_the_count_agrees_with_paddles_own(served) -> None:
    """Paddle counts what its allocator was asked for: the hook must see all of it."""
    with paddle_tensors.watched() as traffic:
        before = paddles_own_count()
        kept = [paddle.empty([size]) for size in (1000, 70_000, 5_000_000)]
        counted = paddles_own_count() - before
    assert 4 * 5_071_000 <= traffic().requested_bytes <= counted <= 4 * 5_071_000 + 3 * 4096
    assert traffic().served_bytes == traffic().requested_bytes
    assert len(kept) == 3


# -- switching ------------------------------------------------------------------------------------


def test_switching_while_tensors_are_alive(served) -> None:
    rng = np.random.default_rng(0)
    alive: list[tuple[paddle.Tensor, np.ndarray]] = []
    for round_number in range(40):
        paddle_tensors.switch_off() if round_number % 2 else paddle_tensors.switch_on()
        for size in rng.integers(1, 60_000, 8):
            data = rng.standard_normal(int(size)).astype(np.float32)
            alive.append((paddle.to_tensor(data), data))
        rng.shuffle(alive)
        for tensor, data in alive[16:]:
            assert (tensor.numpy() == data).all()
        del alive[16:]
    paddle_tensors.switch_off()
    pool_before = shared_pool().statistics().live
    expected = sum(from_pool(tensor) for tensor, _ in alive)
    assert 0 < expected < len(alive)
    assert all((tensor.numpy() == data).all() for tensor, data in alive)
    del tensor
    alive.clear()
    gc.collect()
    assert pool_before - shared_pool().statistics().live >= expected


def test_the_option_decides_while_the_plugin_is_on() -> None:
    if paddle_tensors.try_out() is not None:
        pytest.skip(f"stock allocator: {paddle_tensors.refusal()}")
    was_installed = pfb.installed()
    try:
        with pfb.override(pool=True):
            pfb.install()
            assert from_pool(paddle.ones([100]))
            pfb.configure(pool=False)
            assert not from_pool(paddle.ones([100]))
            pfb.configure(pool=True)
            kept = paddle.ones([100])
            assert from_pool(kept)
            pfb.uninstall()
            assert not from_pool(paddle.ones([100]))
            pfb.configure(pool=True)
            assert not from_pool(paddle.ones([100]))
            assert float(kept.sum()) == 100.0
    finally:
        if was_installed:
            pfb.install()
        else:
            pfb.uninstall()


def test_off_by_default_and_nothing_is_counted_as_served() -> None:
    assert pfb.options.pool is False
    paddle_tensors.switch_off()
    with paddle_tensors.watched() as traffic:
        tensor = paddle.ones([1000])
    assert traffic().served == 0
    assert not from_pool(tensor)


# -- in processes of their own --------------------------------------------------------------------


def in_child(program: str, **environment: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("paddle_tensors._LIBRARIES = b'libnothing'", "no library of that name is loaded"),
        ("paddle_tensors._LIBRARIES = b'libcommon'", "no entry for posix_memalign"),
        ("paddle_tensors._ALIGNMENT = 2048", "self-test: tensors of [7, 100000, 3000000] elements"),
        ("library.load = refuse", "the library was not built"),
    ],
    ids=["no library", "no entry", "another alignment", "not built"],
)
def test_where_it_cannot_work_tensors_stay_stock_and_the_reason_is_said(change, reason) -> None:
    done = in_child(f"""
import paddle, paddle_fluid_boost as pfb
from paddle_fluid_boost.memory import library, paddle_tensors
def refuse(): raise pfb.PoolError("the library was not built")
{change}
pfb.configure(pool=True)
pfb.install()
print(paddle_tensors.refusal())
assert not paddle_tensors.is_on()
assert float((paddle.ones([5000]) * 2).sum()) == 10000.0
""")
    assert done.returncode == 0, done.stderr[-1000:]
    assert reason in done.stdout
    assert "option pool: tensors stay with the stock allocator" in done.stderr


def test_paddle_writes_within_its_blocks_and_reads_no_free_memory() -> None:
    """Networks under a pool with guards, whose free memory is NaN."""
    done = in_child(
        """
import numpy, paddle, paddle_fluid_boost
from paddle_fluid_boost.memory import paddle_tensors
from paddle_fluid_boost.memory.shared import shared_pool
net = paddle.vision.models.mobilenet_v3_small(num_classes=10); net.eval()
x = paddle.rand([1, 3, 64, 64])
layer = paddle.nn.TransformerEncoderLayer(32, 4, 64); layer.eval()
tokens = paddle.rand([2, 9, 32])
with paddle.no_grad():
    want = [net(x).numpy(), layer(tokens).numpy()]
    assert paddle_tensors.switch_on(), paddle_tensors.refusal()
    with paddle_tensors.watched() as traffic:
        for _ in range(3):
            got = [net(x).numpy(), layer(tokens).numpy()]
    assert traffic().share == 1.0
    for a, b in zip(got, want):
        assert numpy.array_equal(a, b)
assert shared_pool().check() == 0, shared_pool().reports()
""",
        PFB_POOL_DEBUG="1",
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_forked_children_and_a_quiet_exit() -> None:
    """Children that allocate tensors; at the end, tensors of the pool are alive.

    The threads that disturb the forks use the pool alone: Paddle's own locks survive no fork.
    """
    done = in_child(
        """
import os, signal, threading, paddle, paddle_fluid_boost as pfb
pfb.configure(pool=True); pfb.install()
from paddle_fluid_boost.memory import paddle_tensors
from paddle_fluid_boost.memory.shared import shared_pool
pool = shared_pool()
assert paddle_tensors.is_on()
stop = threading.Event()
def churn():
    while not stop.is_set():
        for size in (100, 5000, 80_000): pool.give(pool.take(size))
threads = [threading.Thread(target=churn) for _ in range(2)]
for thread in threads: thread.start()
kept = [paddle.ones([100_000]), paddle.ones([10])]
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with paddle_tensors.watched() as traffic:
            total = sum(float(paddle.full([size], 2.0).sum()) for size in (10, 1000, 50_000))
        good = total == 2.0 * 51_010 and traffic().share == 1.0 and float(kept[0].sum()) == 1e5
        os._exit(0 if good else 3)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
cycle = [kept]; cycle.append(cycle)
print("done")
"""
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
    assert "block pool" not in done.stderr
