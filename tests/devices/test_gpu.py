"""On a machine with a GPU: ``pytest -m gpu tests/devices/test_gpu.py``.  Was run on none yet."""

from __future__ import annotations

import os

import numpy as np
import paddle
import pytest
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.dispatch.explanations import find_unit
from paddle_fluid_boost.engines import tensorrt
from paddle_fluid_boost.engines.device_memory import held_bytes
from paddle_fluid_boost.engines.gpu import Gpu
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.hardware.devices import Device
from paddle_fluid_boost.hardware.probe import ask_machine


def _why_not() -> str | None:
    return Gpu().unavailable()


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_why_not() is not None, reason=str(_why_not())),
]
DEVICE = Device("gpu", 0)
SETTINGS = {"device": "gpu:0", "precision": "float32", "tensorrt": False}


@pytest.fixture(autouse=True)
def on_the_gpu():
    before = paddle.device.get_device()
    paddle.set_device("gpu:0")
    with pfb.override(sync=True, min_gain=0.0, hot_calls=1), paddle.no_grad():
        yield
    paddle.set_device(before)


@pytest.fixture
def build():
    """Builds executables, which are closed in the end: they count as memory in use until then."""
    built = []

    def build(captured, **changes):
        built.append(Gpu().build(captured, {**SETTINGS, **changes}))
        return built[-1]

    yield build
    for executable in built:
        executable.close()


def make_net():
    net = nn.Sequential(
        nn.Conv2D(3, 16, 3, padding=1),
        nn.BatchNorm2D(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 32 * 32, 5),
    )
    net.eval()
    return net


def images():
    return paddle.randn([2, 3, 32, 32])


def capture(net, x):
    STATIC_LOCK.open()
    return trace(net, (x,), {})[0]


def assert_alike(got, want, rtol=1e-3):
    want = want.numpy()
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=rtol * np.ptp(want))


def test_the_probe_sees_it():
    gpu = ask_machine().gpus[0]
    assert gpu.usable and gpu.capability and gpu.memory


def test_hot_calls_run_on_the_gpu():
    net = make_net()
    boosted = pfb.to_static(net)
    for _ in range(4):
        boosted(images())
    (version,) = find_unit(boosted).cache.all()
    assert version.executable.engine == "paddle_inference on gpu:0"
    x = images()
    got = boosted(x)
    assert got.place.is_gpu_place()
    for layer in net.children():
        x = layer(x)
    assert_alike(got, x)
    find_unit(boosted).withdraw(version, "the test is over")


def test_inputs_still_being_computed_are_waited_for(build):
    """The inputs come out of kernels that are still in the queue."""
    net, x = make_net(), images()
    executable = build(capture(net, x))
    big = paddle.randn([4096, 4096])
    for _ in range(20):
        late = x + (big @ big).mean() * 0 + paddle.rand([1])
        got = executable([late])[0]
        assert_alike(got, net(late))


def test_cpu_tensors_are_copied(build):
    net, x = make_net(), images()
    executable = build(capture(net, x))
    assert_alike(executable([x.cpu()])[0], net(x))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_lower_precision(build, precision):
    if precision not in [one["precision"] for one in _candidates(rtol=5e-2)]:
        pytest.skip(f"the library says that {precision} does not pay here")
    net, x = make_net(), images()
    executable = build(capture(net, x), precision=precision)
    got = executable([x])[0]
    assert got.dtype == paddle.float32
    assert_alike(got, net(x), rtol=5e-2)


def _candidates(rtol):
    with pfb.override(rtol=rtol):
        return Gpu().candidates(capture(make_net(), images()))


def test_tensorrt(build, tmp_path):
    reason = tensorrt.unavailable(DEVICE)
    if reason is not None:
        pytest.skip(reason)
    net, x = make_net(), images()
    with pfb.override(cache=True, cache_dir=str(tmp_path)):
        captured = capture(net, x)
        for note in ("built anew", "from the on-disk cache"):
            executable = build(captured, tensorrt=True)
            assert any(note in one for one in executable.notes)
            assert_alike(executable([x])[0], net(x))
            executable.close()


def test_the_memory_limit_is_kept(build):
    with pfb.override(device_memory_mb=1):
        wide = nn.Linear(1024, 1024)
        with pytest.raises(EngineError, match="device_memory_mb"):
            build(capture(wide, paddle.randn([1, 1024])))
    assert held_bytes("gpu:0") == 0


def test_memory_is_given_back(build):
    net, x = make_net(), images()
    before = paddle.device.cuda.memory_allocated()
    for _ in range(5):
        executable = build(capture(net, x))
        executable([x])
        executable.close()
    paddle.device.cuda.empty_cache()
    assert paddle.device.cuda.memory_allocated() - before < 64 << 20
    assert held_bytes("gpu:0") == 0


def test_a_forked_child_leaves_the_gpu_alone(build):
    net, x = make_net(), images()
    executable = build(capture(net, x))
    child = os.fork()
    if child == 0:
        try:
            executable([x])
        except EngineError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
