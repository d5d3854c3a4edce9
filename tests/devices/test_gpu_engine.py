"""The GPU engine without a GPU: detection, the Config it builds, and every way it can fail."""

from __future__ import annotations

import dataclasses

import paddle
import played_gpu
import pytest
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.dispatch.explanations import find_unit
from paddle_fluid_boost.engines import _paddle_devices as devices
from paddle_fluid_boost.engines import custom_device, gpu
from paddle_fluid_boost.engines.custom_device import CustomDevice
from paddle_fluid_boost.engines.device_memory import held_bytes
from paddle_fluid_boost.engines.gpu import Gpu
from paddle_fluid_boost.engines.gpu_config import GpuSettings, make_gpu_config
from paddle_fluid_boost.engines.registry import engine_names
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.hardware import advice
from paddle_fluid_boost.hardware.devices import Device
from paddle_fluid_boost.hardware.library import Fault

SETTINGS = {"device": "gpu:0", "precision": "float32", "tensorrt": False}


@pytest.fixture
def played(monkeypatch):
    yield played_gpu.play(monkeypatch)
    advice._accelerator_advice.cache_clear()


def small_net():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    net.eval()
    return net


def capture(net=None, x=None):
    STATIC_LOCK.open()
    with paddle.no_grad():
        x = paddle.randn([2, 6]) if x is None else x
        return trace(net or small_net(), (x,), {})[0]


def _file(folder):
    """A Config only looks whether its file is there."""
    (folder / "model.json").touch()
    return str(folder / "model.json")


def error(got, want):
    return float((got - want).abs().max())


# -- detection ------------------------------------------------------------------------------------


def test_a_build_without_cuda_is_asked_nothing_else(monkeypatch):
    if paddle.is_compiled_with_cuda():
        pytest.skip("this build has CUDA")
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: pytest.fail("was asked"))
    assert Gpu().unavailable() == "this build of Paddle is one without CUDA"
    assert devices.gpus() == []


def test_detection(played, monkeypatch):
    assert Gpu().unavailable() is None
    assert devices.gpus() == [Device("gpu", 0), Device("gpu", 1)]
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 0)
    assert Gpu().unavailable() == "Paddle sees no GPU"

    def broken():
        raise OSError("(External) CUDA error(803)")

    monkeypatch.setattr(paddle.device.cuda, "device_count", broken)
    assert "cannot count the GPUs: (External) CUDA error(803)" in Gpu().unavailable()
    monkeypatch.setattr(paddle, "is_compiled_with_rocm", lambda: True)
    assert "ROCm" in Gpu().unavailable()


def test_a_gpu_that_is_not_there_costs_no_call():
    """Without a GPU build the CPU serves, and explain says why."""
    if paddle.is_compiled_with_cuda():
        pytest.skip("this build has CUDA")
    net, x = small_net(), paddle.randn([2, 6])
    with (
        pfb.override(
            device="gpu", sync=True, min_gain=0.0, hot_calls=1, engines="paddle_inference"
        ),
        paddle.no_grad(),
    ):
        boosted = pfb.to_static(net)
        for _ in range(4):
            got = boosted(x)
        assert error(got, net[2](net[1](net[0](x)))) < 1e-5
        assert find_unit(boosted).cache.all()
        assert "this build of Paddle is one without CUDA" in str(pfb.explain(boosted))


def test_engines_by_device():
    with pfb.override(engines="native", device="auto"):
        assert engine_names("gpu:0") == ["gpu"]
    with pfb.override(engines="native", device="gpu:1"):
        assert engine_names() == ["gpu", "native"]
    with pfb.override(engines="native", device="cpu"):
        assert engine_names("gpu:0") == []


# -- the Config -----------------------------------------------------------------------------------


def test_the_config_is_what_paddle_takes(played):
    captured = capture()
    executable = Gpu().build(captured, {**SETTINGS, "device": "gpu:1"})
    config = played.configs[-1]
    assert ("enable_use_gpu", 100, 1, paddle.inference.PrecisionType.Float32) in config.calls
    for call in (("enable_new_ir", True), ("enable_new_executor", True)):
        assert call in config.calls
    order = [call[0] for call in config.calls]
    assert order.index("enable_use_gpu") < order.index("use_gpu") < order.index("enable_new_ir")
    assert not any(name.startswith("exp_") for name in order)
    executable.close()


def test_the_double_refuses_what_paddle_would():
    for method, args in (
        ("enable_gpu", ()),
        ("enable_use_gpu", ()),
        ("enable_use_gpu", ("100",)),
        ("enable_use_gpu", (100, 0, paddle.inference.PrecisionType.Half, 1)),
        ("delete_pass", (1,)),
    ):
        with pytest.raises(AssertionError):
            played_gpu.check_call(method, args)
    played_gpu.check_call("enable_use_gpu", (100, 0, paddle.inference.PrecisionType.Half))


@pytest.mark.parametrize(("precision", "name"), [("float16", "Half"), ("bfloat16", "Bfloat16")])
def test_lower_precision_leaves_what_goes_in_and_out(played, tmp_path, precision, name):
    settings = GpuSettings(0, precision, 64, ("some_pass",))
    config = make_gpu_config(_file(tmp_path), "", settings)
    wanted = getattr(paddle.inference.PrecisionType, name)
    assert ("enable_use_gpu", 64, 0, wanted) in config.calls
    assert ("exp_disable_mixed_precision_ops", {"feed", "fetch"}) in config.calls
    assert ("delete_pass", "some_pass") in config.calls
    assert settings == GpuSettings(**settings.to_dict())


def test_a_build_that_ignores_the_wish_for_a_gpu_is_noticed(tmp_path):
    """Paddle's own Config on a CPU build: it only logs."""
    if paddle.is_compiled_with_cuda():
        pytest.skip("this build has CUDA")
    with pytest.raises(EngineError, match="refused to use the GPU"):
        make_gpu_config(_file(tmp_path), "", GpuSettings(0, "float32", 100))


def test_candidates(played):
    captured = capture()
    with pfb.override(device="gpu:1"):
        assert Gpu().candidates(captured) == [{**SETTINGS, "device": "gpu:1"}]
    on_gpu = dataclasses.replace(captured, device="gpu:0")
    assert Gpu().candidates(on_gpu) == [SETTINGS]
    with pfb.override(rtol=1e-2):  # Ampere: the library says that both pay
        found = [one["precision"] for one in Gpu().candidates(on_gpu)]
    assert found[0] == "float32" and set(found[1:]) == {"float16", "bfloat16"}
    assert Gpu().candidates(capture(x=paddle.zeros([0, 6]))) == []


def test_the_library_decides_what_pays(monkeypatch):
    played_gpu.play(monkeypatch, capability=(7, 5))  # Turing has no bfloat16
    with pfb.override(rtol=1e-2, device="gpu"):
        found = [one["precision"] for one in Gpu().candidates(capture())]
    assert found == ["float32", "float16"]


def test_the_library_leaves_out_passes_and_knows_faults(played, monkeypatch):
    def fault(op, **cure):
        return Fault("paddle_inference", "gpu", ">=0", (op,), "gives garbage", **cure)

    said = advice.Advice(
        avoid=("never_pass",),
        memory={"pool_mb": 7},
        faults=(fault("pd_op.relu", leave_out="odd_pass"), fault("pd_op.tanh", avoid=True)),
    )
    monkeypatch.setattr(gpu, "accelerator_advice", lambda device: said)
    executable = Gpu().build(capture(), SETTINGS)
    calls = played.configs[-1].calls
    assert ("delete_pass", "odd_pass") in calls and ("delete_pass", "never_pass") in calls
    assert ("enable_use_gpu", 7, 0, paddle.inference.PrecisionType.Float32) in calls
    assert "without odd_pass: the hardware library says so" in executable.notes
    with pytest.raises(EngineError, match="knows a fault: gives garbage"):
        Gpu().build(capture(nn.Tanh()), SETTINGS)
    assert held_bytes("gpu:0") == executable.nbytes
    executable.close()


# -- building and running -------------------------------------------------------------------------


def test_a_predictor_is_built_probed_and_run(played):
    net, x = small_net(), paddle.randn([2, 6])
    captured = capture(net, x)
    executable = Gpu().build(captured, SETTINGS)
    (request,) = played.requests
    assert request["device"] == "gpu:0" and request["gpu"]["precision"] == "float32"
    assert executable.engine == "paddle_inference on gpu:0"
    assert error(executable([x])[0], net(x)) < 1e-5
    assert played.synchronized == 2  # before, for what makes the inputs, and after
    assert any("copied in each call, 0.1 KiB" in note for note in executable.notes)
    with pytest.raises(EngineError, match="built for"):
        executable([paddle.randn([3, 6])])
    executable.close()
    assert held_bytes("gpu:0") == 0


def test_the_child_process_has_the_last_word(played):
    played.verdict = "crashes the process (SIGSEGV)"
    with pytest.raises(EngineError, match=r"on gpu:0, in a child process, it crashes .*SIGSEGV"):
        Gpu().build(capture(), SETTINGS)
    assert held_bytes("gpu:0") == 0
    with pfb.override(probe_in_child=False):
        Gpu().build(capture(), SETTINGS).close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "gpu:0"}, "settings need device, precision and tensorrt"),
        ({**SETTINGS, "precision": "int8"}, "precision must be one of float32, float16, bfloat16"),
        ({**SETTINGS, "device": "gpu:7"}, "there is no device gpu:7; Paddle sees: gpu:0, gpu:1"),
        ({**SETTINGS, "device": "npu"}, "there is no device npu:0"),
        ({**SETTINGS, "tensorrt": True}, "this build of Paddle has no TensorRT"),
    ],
)
def test_wrong_settings(played, settings, message):
    with pytest.raises(EngineError, match=message):
        Gpu().build(capture(), settings)


def test_no_room(played):
    wide = nn.Linear(600, 600)
    wide.eval()
    captured = capture(wide, paddle.randn([1, 600]))
    with pfb.override(device_memory_mb=1), pytest.raises(EngineError, match="_mb allows 1"):
        Gpu().build(captured, SETTINGS)
    assert held_bytes("gpu:0") == 0


def test_out_of_memory_while_building(played, monkeypatch):
    def no_memory(config):
        raise MemoryError("ResourceExhaustedError: Out of memory error on GPU 0")

    monkeypatch.setattr(paddle.inference, "create_predictor", no_memory)
    captured = capture()
    with pfb.override(probe_in_child=False), pytest.raises(EngineError, match="Out of memory"):
        Gpu().build(captured, SETTINGS)
    assert held_bytes("gpu:0") == 0 and played.given_back == 1


FAULTS = {
    "out of memory": MemoryError("ResourceExhaustedError: Out of memory error on GPU 0"),
    "device lost": OSError("(External) CUDA error(700), an illegal memory access"),
    "kernel": RuntimeError("(NotFound) The kernel is not registered"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_no_call_is_lost(played, what):
    net, x = small_net(), paddle.randn([2, 6])
    with (
        pfb.override(device="gpu", sync=True, min_gain=0.0, hot_calls=1, engines=""),
        paddle.no_grad(),
    ):
        boosted = pfb.to_static(net)
        want = net[2](net[1](net[0](x)))
        for _ in range(4):
            boosted(x)
        (version,) = find_unit(boosted).cache.all()
        assert version.executable.engine == "paddle_inference on gpu:0"
        assert held_bytes("gpu:0") > 0
        played.fault = FAULTS[what]
        assert error(boosted(x), want) < 1e-5
        assert played.fault is None
        assert find_unit(boosted).cache.all() == []
        assert held_bytes("gpu:0") == 0 and played.given_back == 1
        assert "the engine failed: paddle_inference on gpu:0" in str(pfb.explain(boosted))


# -- what it shares with custom devices -----------------------------------------------------------


class _Strange:
    """A predictor that asks for an input which was never captured."""

    def get_input_names(self):
        return ["x0", "surprise"]


@pytest.mark.parametrize("engine", ["gpu", "custom_device"])
def test_the_share_is_released_where_something_fails_after_the_predictor(
    played, monkeypatch, engine
):
    monkeypatch.setattr(paddle.inference, "create_predictor", lambda config: _Strange())
    monkeypatch.setattr(devices, "custom_devices", lambda: [Device("npu", 0)])
    made, settings = (Gpu(), SETTINGS) if engine == "gpu" else (CustomDevice(), {"device": "npu:0"})
    monkeypatch.setattr(custom_device, "make_custom_device_config", lambda *args: None)
    with pfb.override(probe_in_child=False), pytest.raises(EngineError, match="not captured"):
        made.build(capture(), settings)
    assert held_bytes(settings["device"]) == 0
