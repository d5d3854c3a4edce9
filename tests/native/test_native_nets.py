"""Whole nets against eager, and how an executable behaves: threads, sharing, faults."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import native_models as nm
import numpy as np
import paddle
import pytest
from paddle.vision import models

from paddle_fluid_boost.engines.native import runtime
from paddle_fluid_boost.errors import EngineError

ZOO = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_25", "squeezenet1_0")


@pytest.mark.parametrize("layout", ["any", "nhwc"])
@pytest.mark.parametrize("name", ZOO)
def test_vision_net(name: str, layout: str) -> None:
    x = paddle.randn([2, 3, 64, 96])
    net = nm.calibrated(getattr(models, name)(num_classes=10), x)
    executable = nm.check(net, x, layout=layout)
    assert executable.host_ops == []
    assert executable.placement.ratio <= 1.01


def test_unet() -> None:
    x = paddle.randn([1, 3, 32, 48])
    assert nm.check(nm.calibrated(nm.UNet(), x), x).host_ops == []


def test_transformer_encoder() -> None:
    ids = paddle.randint(0, 1000, [2, 17])
    assert nm.check(nm.calibrated(nm.Encoder(), ids), ids).host_ops == []


def test_lstm() -> None:
    nm.check(nm.Tagger(), paddle.randn([2, 9, 24]))


def test_profile_names_every_step() -> None:
    x = paddle.randn([1, 3, 32, 32])
    executable = nm.build(nm.calibrated(nm.UNet(), x), [x])
    steps = executable.profile([x], repeats=2)
    assert {"fused_conv2d", "fused_conv2d_transpose", "concat"} <= {op for op, _, _ in steps}
    assert all(microseconds > 0 for _, _, microseconds in steps)


def test_results_are_fresh() -> None:
    x = paddle.randn([1, 3, 32, 32])
    executable = nm.build(nm.calibrated(nm.UNet(), x), [x])
    (first,) = executable([x])
    kept = first.clone()
    executable([x + 1])
    assert bool((first == kept).all())
    assert first.stop_gradient


def test_concurrent_calls_do_not_disturb_each_other() -> None:
    x = paddle.randn([1, 3, 32, 32])
    net = nm.calibrated(nm.UNet(), x)
    executable = nm.build(net, [x])
    inputs = [paddle.randn(x.shape) for _ in range(24)]
    want = [nm.eager(net, [i]) for i in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: executable([i]), inputs))
    for a, b in zip(got, want):
        nm.assert_close(a, b)


def test_concurrent_host_steps() -> None:
    def function(x: Any) -> Any:
        return paddle.nn.functional.relu(paddle.cumsum(x * 2, 1)) * paddle.cumsum(x, 0)

    executable = nm.build(function, [paddle.randn([32, 64])])
    inputs = [paddle.randn([32, 64]) for _ in range(24)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: executable([i]), inputs))
    for a, x in zip(got, inputs):
        nm.assert_close(a, nm.eager(function, [x]))


SHARING = """
import native_models as nm
import paddle
from paddle.vision import models
from paddle_fluid_boost.engines.native import runtime

cache = runtime.module().constant_cache
net = nm.calibrated(models.resnet18(num_classes=10), paddle.randn([1, 3, 64, 64]))
# "auto" measures: two plans may take different algorithms, whose weights differ.
settings = {"layout": "nhwc", "algorithm": "direct"}
before = cache()["bytes"]
first = nm.build(net, [paddle.randn([1, 3, 64, 64])], **settings)
alone = cache()["bytes"] - before
second = nm.build(net, [paddle.randn([1, 3, 64, 96])], **settings)
assert cache()["bytes"] - before < 1.2 * alone, (cache(), before, alone)
del first, second
assert cache()["bytes"] == before, (cache(), before)
"""


def test_plans_of_one_layer_share_weights() -> None:
    """In a process of its own: it measures a cache that all plans of a process share."""
    search = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", SHARING],
        env={**os.environ, "PYTHONPATH": search, "GLOG_minloglevel": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_changed_weights_are_packed_again() -> None:
    net = paddle.nn.Linear(8, 4)
    x = paddle.randn([3, 8])
    nm.check(net, x)
    net.weight.set_value(net.weight * 2)
    nm.check(net, x)


def test_thread_settings_are_restored() -> None:
    native = runtime.module()
    before = native.max_threads()
    executable = nm.build(paddle.nn.Linear(8, 4), [paddle.randn([3, 8])], threads=before + 1)
    executable([paddle.randn([3, 8])])
    assert native.max_threads() == before


def test_unaligned_input() -> None:
    net = paddle.nn.Conv2D(3, 8, 3)
    executable = nm.build(net, [paddle.randn([1, 3, 16, 16])])
    odd = paddle.randn([1 + 3 * 16 * 16])[1:].reshape([1, 3, 16, 16])
    assert odd.data_ptr() % 64
    nm.assert_close(executable([odd]), nm.eager(net, [odd]))


def test_wrong_input_and_closed() -> None:
    executable = nm.build(paddle.nn.Linear(8, 4), [paddle.randn([3, 8])])
    with pytest.raises(EngineError, match=r"input 0 must be paddle.float32\[3, 8\].*\[3, 9\]"):
        executable([paddle.randn([3, 9])])
    with pytest.raises(EngineError, match="needs 1 inputs, got 2"):
        executable([paddle.randn([3, 8])] * 2)
    executable.close()
    executable.close()
    with pytest.raises(EngineError, match="closed"):
        executable([paddle.randn([3, 8])])


def test_empty_tensors_are_refused() -> None:
    with pytest.raises(EngineError, match="no elements"):
        nm.build(paddle.nn.functional.relu, [paddle.zeros([0, 4])])


def test_embedding_out_of_range_raises() -> None:
    table = paddle.nn.Embedding(10, 4)
    executable = nm.build(table, [paddle.to_tensor([[1, 2]])])
    with pytest.raises(IndexError, match="id 10 is not in"):
        executable([paddle.to_tensor([[1, 10]])])
    nm.assert_close(
        executable([paddle.to_tensor([[3, 4]])]), nm.eager(table, [paddle.to_tensor([[3, 4]])])
    )


def test_host_step_error_reaches_the_caller() -> None:
    def function(x: Any, i: Any) -> Any:
        return paddle.gather(x * 2, i, 0) + 1

    x = paddle.randn([4, 3])
    executable = nm.build(function, [x, paddle.to_tensor([0, 1])])
    with pytest.raises(IndexError, match="which is 99"):
        executable([x, paddle.to_tensor([0, 99])])
    good = [x, paddle.to_tensor([3, 1])]
    nm.assert_close(executable(good), nm.eager(function, good))


def test_works_in_a_forked_child() -> None:
    script = """
        import os, sys
        sys.path[:0] = {path!r}
        import native_models as nm, paddle
        x = paddle.randn([1, 3, 32, 32])
        net = nm.calibrated(nm.UNet(), x)
        executable = nm.build(net, [x])
        (want,) = executable([x])
        child = os.fork()
        if child == 0:
            (got,) = executable([x])
            os._exit(0 if bool((got == want).all()) else 1)
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    """
    here = os.path.dirname(__file__)
    root = os.path.dirname(os.path.dirname(here))
    code = textwrap.dedent(script).format(path=[here, root])
    done = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_without_extension_the_engine_says_so() -> None:
    code = textwrap.dedent("""
        import sys
        sys.modules["paddle_fluid_boost._native"] = None
        from paddle_fluid_boost.engines.native import NativeEngine
        print(NativeEngine().unavailable())
    """)
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=120, capture_output=True, text=True, cwd=root
    )
    assert "extension paddle_fluid_boost._native was not built" in done.stdout


def test_numpy_views_are_read_in_place() -> None:
    array = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    tensor = paddle.utils.dlpack.from_dlpack(array)
    net = paddle.nn.Linear(8, 4)
    executable = nm.build(net, [tensor])
    array[:] = 1.0
    nm.assert_close(executable([tensor]), nm.eager(net, [paddle.ones([4, 8])]))
