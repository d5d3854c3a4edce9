"""``pfb.pipeline``: order, overlap, bounds, failures, ends; shown by counters and hand-shakes."""

from __future__ import annotations

import contextvars
import gc
import os
import subprocess
import sys
import threading

import numpy as np
import paddle
import pytest
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost.engines import openmp

#: Seconds after which a hand-shake counts as not happening.
PATIENCE = 30.0


def numbers(count, log=None):
    try:
        for i in range(count):
            if log is not None:
                log.append(i)
            yield i
    finally:
        if log is not None:
            log.append("closed")


def double(i):
    return 2 * i


def pfb_threads():
    names = ("pfb-source", "pfb-compute", "pfb-collect")
    return [thread for thread in threading.enumerate() if thread.name in names]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    for thread in pfb_threads():
        thread.join(PATIENCE)
    assert pfb_threads() == []


# -- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_order(depth, count):
    out = pfb.pipeline(double, range(count), depth, prepare=lambda i: i + 1, collect=str)
    assert list(out) == [str(2 * (i + 1)) for i in range(count)]
    assert list(out) == []


def test_a_network_in_use():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    net.eval()
    frames = [np.random.rand(3, 4).astype("float32") for _ in range(8)]
    with paddle.no_grad():
        want = [net(paddle.to_tensor(frame)).numpy() for frame in frames]
    with pfb.override(sync=True, hot_calls=1, min_gain=0.0, engines="paddle_inference"):
        boosted = pfb.to_static(net)
        got = list(pfb.pipeline(boosted, frames, collect=lambda out: out.numpy()))
        assert "paddle_inference" in str(pfb.explain(boosted))
    np.testing.assert_allclose(np.stack(got), np.stack(want), atol=1e-5)


def test_arguments_of_every_form():
    def net(a, b=0):
        return a, b

    array = np.float32([1, 2])
    items = [[1, 2], (3, 4), {"a": 5, "b": 6}, 7, [array, "text"]]
    *simple, (tensor, text) = pfb.pipeline(net, items)
    assert simple == [(1, 2), (3, 4), (5, 6), (7, 0)]
    assert isinstance(tensor, paddle.Tensor) and tensor.numpy().tolist() == [1, 2]
    assert text == "text"


def test_a_source_may_write_to_the_same_array_again():
    array = np.zeros([2, 2], "float32")

    def frames():
        for i in range(6):
            array[:] = i
            yield array

    assert [float(out.sum()) for out in pfb.pipeline(lambda x: x, frames(), 3)] == [
        4.0 * i for i in range(6)
    ]


@pytest.mark.parametrize("array", [np.float32(3), np.zeros([0, 2]), np.arange(6.0)[::-2]])
def test_odd_arrays(array):
    (out,) = pfb.pipeline(lambda x: x, [np.asarray(array)])
    np.testing.assert_array_equal(out.numpy(), array)


def test_frames_of_a_ring_are_used_in_place_and_go_round():
    ring = pfb.io.frame_buffer((2, 3), count=2)
    seen = set()

    def frames():
        for i in range(6):
            frame = ring.acquire(timeout=PATIENCE)
            frame.array[:] = i
            yield frame

    def net(x):
        seen.add(x.data_ptr())
        return {"same": x, "view": x[0], "new": x + 1}

    for i, out in enumerate(pfb.pipeline(net, frames(), depth=2)):
        assert float(out["same"].max()) == float(out["view"].max()) == i
        assert float(out["new"].min()) == i + 1
        assert out["same"].data_ptr() not in seen  # else the next frame would write to it
    assert len(seen) == 2 and ring.free == 2


# -- overlap and bounds ---------------------------------------------------------------------------


def test_the_next_frame_is_prepared_while_one_is_computed():
    prepared = [threading.Event() for _ in range(4)]

    def prepare(i):
        prepared[i].set()
        return i

    def net(i):
        assert prepared[min(i + 1, 3)].wait(PATIENCE)
        return i

    assert list(pfb.pipeline(net, range(4), depth=2, prepare=prepare)) == [0, 1, 2, 3]


def test_three_frames_are_under_way_at_once():
    """Fetching one waits for the computation of the next, and that for the one after it."""
    prepared = [threading.Event() for _ in range(5)]
    computing = [threading.Event() for _ in range(5)]

    def prepare(i):
        prepared[i].set()
        return i

    def net(i):
        computing[i].set()
        assert prepared[min(i + 1, 4)].wait(PATIENCE)
        return i

    def collect(i):
        assert computing[min(i + 1, 4)].wait(PATIENCE)
        return i

    out = pfb.pipeline(net, range(5), depth=3, prepare=prepare, collect=collect)
    assert list(out) == list(range(5))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_no_more_frames_than_asked_for_are_under_way(depth):
    taken, delivered = 0, 0

    def frames():
        nonlocal taken
        for i in range(20):
            taken += 1
            # One may have been handed over that the loop below has not counted yet.
            assert taken - delivered <= depth + 1
            yield i

    results = pfb.pipeline(double, frames(), depth, collect=double)
    for i, out in enumerate(results):
        delivered = i + 1
        assert out == 4 * i and results.under_way <= depth


# -- failures -------------------------------------------------------------------------------------


def _fails_at(number, function=lambda i: i):
    def work(i):
        if i == number:
            raise KeyError(f"at {number}")
        return function(i)

    return work


@pytest.mark.parametrize("where", ["source", "prepare", "net", "collect"])
@pytest.mark.parametrize("number", [0, 3])
def test_an_error_comes_in_the_place_of_its_result(where, number):
    log = []

    def source():
        for i in numbers(10, log):
            yield _fails_at(number)(i) if where == "source" else i

    work = {"prepare": None, "net": double, "collect": None}
    if where != "source":
        work[where] = _fails_at(2 * number if where == "collect" else number)
    results = pfb.pipeline(work.pop("net"), source(), 3, **work)
    got = []
    with pytest.raises(KeyError, match=f"at {2 * number if where == 'collect' else number}"):
        for out in results:
            got.append(out)
    assert len(got) == number and list(results) == []
    assert len(log) <= number + 4  # the rest was not asked for


@pytest.mark.parametrize("where", ["prepare", "net", "collect"])
def test_a_stage_cannot_end_the_loop_unnoticed(where):
    work = {"net": double, where: lambda i: next(iter(()))}
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(pfb.pipeline(work.pop("net"), range(3), **work))


def test_a_frame_is_released_whatever_fails():
    ring = pfb.io.frame_buffer((2,), count=3)
    fails = _fails_at(1)

    def frames():
        for i in range(5):
            frame = ring.acquire(timeout=PATIENCE)
            frame.array[:] = i
            yield frame

    for stage in ("prepare", "net"):
        work = {stage: lambda x: fails(int((getattr(x, "tensor", x)).max())) or x}
        work.setdefault("net", lambda x: x.clone())
        with pytest.raises(KeyError):
            list(pfb.pipeline(work.pop("net"), frames(), 3, **work))
        for thread in pfb_threads():  # one may have been about to read the next frame
            thread.join(PATIENCE)
        assert ring.free == 3, stage


# -- ends -----------------------------------------------------------------------------------------


def test_closing_early_ends_the_threads_and_the_source():
    log = []
    with pfb.pipeline(double, numbers(1000, log)) as results:
        assert next(results) == 0 and next(results) == 2
    for thread in pfb_threads():  # one may have been about to read the next frame
        thread.join(PATIENCE)
    assert pfb_threads() == [] and len(log) <= 6
    assert list(results) == []
    results.close()
    gc.collect()
    assert log[-1] == "closed"


def test_closing_early_releases_frames():
    ring = pfb.io.frame_buffer((2,), count=3)
    started, go_on = threading.Event(), threading.Event()

    def net(x):
        started.set()
        assert go_on.wait(PATIENCE)
        return x.clone()

    def frames():
        while True:
            yield ring.acquire(timeout=PATIENCE)

    results = pfb.pipeline(net, frames(), depth=3)
    assert started.wait(PATIENCE)
    closing = threading.Thread(target=results.close)
    closing.start()
    go_on.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    for thread in pfb_threads():
        thread.join(PATIENCE)
    assert ring.free == 3


def test_forgetting_it_ends_the_threads():
    results = pfb.pipeline(double, numbers(1000))
    next(results)
    del results  # the fixture waits for the threads


def test_a_source_that_blocks_does_not_hold_up_close():
    camera = threading.Event()

    def frames():
        yield 1
        assert camera.wait(PATIENCE)
        yield 2

    results = pfb.pipeline(double, frames())
    assert next(results) == 2
    results.close()
    assert [thread.name for thread in pfb_threads()] in ([], ["pfb-source"])
    camera.set()


def test_a_loop_that_waits_is_woken_by_close():
    camera, waiting = threading.Event(), threading.Event()

    def frames():
        waiting.set()
        camera.wait(PATIENCE)
        yield 1

    results = pfb.pipeline(double, frames())
    got = []
    loop = threading.Thread(target=lambda: got.extend(results))
    loop.start()
    assert waiting.wait(PATIENCE)
    results.close()
    loop.join(PATIENCE)
    assert not loop.is_alive() and got == []
    camera.set()


_LEAVES = """
import paddle_fluid_boost as pfb, paddle
net = paddle.nn.Linear(64, 64)
results = pfb.pipeline(net, (paddle.rand([8, 64]) for _ in iter(int, 1)))
for _ in range(3):
    next(results)
print("leaving")
"""


def test_a_program_may_leave_in_the_middle():
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
    )
    assert done.returncode == 0 and done.stdout == "leaving\n", done.stderr[-2000:]


# -- surroundings ---------------------------------------------------------------------------------

_VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")


def test_the_network_meets_the_callers_surroundings():
    def net(_):
        return (
            paddle.is_grad_enabled(),
            openmp.math_threads(),
            _VARIABLE.get(),
            paddle.get_default_dtype(),
        )

    _VARIABLE.set("mine")
    before = paddle.get_default_dtype()
    try:
        paddle.set_default_dtype("float64")
        with openmp.threads(2):
            (facts,) = pfb.pipeline(net, [0])
            here = openmp.math_threads()
    finally:
        paddle.set_default_dtype(before)
    assert facts == (False, here, "mine", "float64")
    assert paddle.is_grad_enabled()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3, []), TypeError, "argument 'net' must be callable, got 3"),
        ((None, []), TypeError, "argument 'net' must be callable, got None"),
        ((double, 3), TypeError, "argument 'frames' must be iterable"),
        ((double, [], 0), ValueError, "argument 'depth' must be positive, got 0"),
        ((double, [], 1.5), TypeError, r"argument 'depth' must be an integer, got 1\.5"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        pfb.pipeline(*arguments)
    with pytest.raises(TypeError, match="argument 'prepare' must be callable"):
        pfb.pipeline(double, [], prepare=3)
