"""Background work makes way for the user's thread, and ends when the interpreter does."""

import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import paddle
import pytest

from paddle_fluid_boost.capture.yielding import Stopped, Yielding
from paddle_fluid_boost.options import override


class Net(paddle.nn.Layer):
    def forward(self, x):
        return x + 1


def test_work_pauses_while_others_run():
    with override(capture_slice_ms=0.05, capture_duty=0.01):
        hook = Yielding(lambda: False)
        started = time.thread_time(), time.perf_counter()
        with hook:
            for _ in range(20000):
                len("x")
        spent = time.thread_time() - started[0], time.perf_counter() - started[1]
    assert spent[1] > 2 * spent[0]


def test_hook_of_somebody_else_is_left_alone():
    def other(frame, event, arg):
        return None

    sys.setprofile(other)
    try:
        with Yielding(lambda: True):
            assert sys.getprofile() is other
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_exit_ends_the_work_at_the_next_forward():
    net, x = Net(), paddle.ones([1])
    entered = threading.Event()
    with pytest.raises(Stopped), Yielding(entered.is_set):
        net(x)
        entered.set()
        time.sleep(0.01)  # more than a slice
        net(x)
    assert sys.getprofile() is None


def test_a_long_call_is_followed_by_a_long_pause():
    burns = np.random.default_rng(0).random(1_000_000)
    with override(capture_slice_ms=0.5, capture_duty=0.2), Yielding(lambda: False):
        started = time.thread_time(), time.perf_counter()
        np.sort(burns)  # one call into C++, many slices long
        len("x")
        spent = time.thread_time() - started[0], time.perf_counter() - started[1]
    assert spent[1] > 2.5 * spent[0]


def test_exit_is_not_raised_inside_finalizers():
    class Held:
        def __del__(self):
            clean("deleted")

    def clean(what):
        cleaned.append(what)

    cleaned: list[str] = []
    stop = threading.Event()
    first, second = Held(), Held()
    weakref.finalize(second, clean, "finalized")
    with Yielding(stop.is_set):
        stop.set()
        time.sleep(0.01)  # more than a slice
        del first
        del second
    assert sorted(cleaned) == ["deleted", "deleted", "finalized"]


def test_exit_is_not_raised_inside_functions_that_paddle_calls_from_cpp():
    program = paddle.static.Program()
    with Yielding(lambda: True):
        assert paddle.base.framework.in_dygraph_mode()
        program.clone()


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_interpreter_exits_cleanly_while_a_compile_runs(seconds):
    script = (
        "import time, paddle, paddle_fluid_boost as pfb\n"
        "pfb.configure(hot_calls=1, probe_in_child=False)\n"
        "net = pfb.to_static(paddle.nn.Sequential(*[paddle.nn.Linear(8, 8) for _ in range(150)]))\n"
        "net.eval(); x = paddle.ones([1, 8])\n"
        "with paddle.no_grad(): net(x); net(x)\n"
        f"time.sleep({seconds})\n"
        "print('pending', pfb.stats()['pending_compiles'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GLOG_minloglevel": "3"},
    )
    assert done.returncode == 0, done.stderr
    assert "pending" in done.stdout
    for word in ("Traceback", "FATAL", "Fatal", "Exception ignored"):
        assert word not in done.stderr
