"""TensorRT without TensorRT: when it is offered, what the child is asked, what stays on disk."""

from __future__ import annotations

import os
import shutil
import sys
import types

import paddle
import played_gpu
import pytest
from test_gpu_engine import SETTINGS, capture, error, small_net

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.program import Slot
from paddle_fluid_boost.engines import tensorrt
from paddle_fluid_boost.engines.device_memory import held_bytes
from paddle_fluid_boost.engines.gpu import Gpu
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.hardware import advice
from paddle_fluid_boost.hardware.devices import Device

WITH = {**SETTINGS, "tensorrt": True}


class Export(types.ModuleType):
    """``paddle.tensorrt.export`` by its published signatures; a converted program is the same."""

    class PrecisionMode:
        FP32, FP16, BF16, INT8 = "FP32", "FP16", "BF16", "INT8"

    class Input:
        def __init__(
            self,
            warmup_data=None,
            min_input_shape=None,
            max_input_shape=None,
            optim_input_shape=None,
            input_data_type="float32",
            input_range=None,
            name=None,
        ):
            self.given = (name, input_data_type, min_input_shape, optim_input_shape)
            self.given += (max_input_shape,)

    class TensorRTConfig:
        def __init__(
            self,
            inputs,
            min_subgraph_size=3,
            save_model_dir=None,
            disable_ops=None,
            precision_mode="FP32",
            ops_run_float=None,
            optimization_level=3,
            disable_passes=(),
            workspace_size=1 << 30,
            refit_params_path=None,
        ):
            self.inputs, self.save_model_dir = inputs, save_model_dir
            self.precision_mode, self.workspace_size = precision_mode, workspace_size

    def __init__(self):
        super().__init__("paddle.tensorrt.export")
        self.configs = []
        self.fault = None

    def convert(self, model_path, config):
        if self.fault is not None:
            raise self.fault
        self.configs.append(config)
        for end in ("json", "pdiparams"):
            shutil.copyfile(f"{model_path}.{end}", f"{config.save_model_dir}.{end}")
        os.mkdir(config.save_model_dir)
        with open(f"{config.save_model_dir}/engine_1.trt", "wb") as file:
            file.write(b"an engine")


@pytest.fixture
def export(monkeypatch, tmp_path):
    """A GPU and TensorRT, played, with a cache of their own."""
    played = played_gpu.play(monkeypatch)
    module = Export()
    package = types.ModuleType("paddle.tensorrt")
    package.export = module
    for name, value in (
        ("paddle.tensorrt", package),
        ("paddle.tensorrt.export", module),
        ("tensorrt", types.ModuleType("tensorrt")),
    ):
        value.__spec__ = types.SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, value)
    monkeypatch.setattr(paddle, "tensorrt", package, raising=False)
    monkeypatch.setattr(paddle.inference, "get_trt_compile_version", lambda: (10, 3, 0))
    monkeypatch.setattr(paddle.inference, "get_trt_runtime_version", lambda: (10, 3, 0))
    monkeypatch.setenv("HOME", os.environ.get("HOME", "/"))  # the child's is set, here ours
    module.played = played
    with pfb.override(cache=True, cache_dir=str(tmp_path / "cache")):
        yield module
    advice._accelerator_advice.cache_clear()


# -- when it is offered ---------------------------------------------------------------------------


def test_why_not(export, monkeypatch):
    device = Device("gpu", 0)
    assert tensorrt.unavailable(device) is None
    assert Gpu().candidates(_on_gpu(capture())) == [SETTINGS, WITH]
    with pfb.override(tensorrt=False):
        assert Gpu().candidates(_on_gpu(capture())) == [SETTINGS]
    monkeypatch.setattr(paddle.inference, "get_trt_runtime_version", lambda: (0, 0, 0))
    assert tensorrt.unavailable(device) == "TensorRT's library is not installed"

    def missing():
        raise RuntimeError("(Unavailable) Load tensorrt api getInferLibVersion failed")

    monkeypatch.setattr(paddle.inference, "get_trt_runtime_version", missing)
    assert "cannot be loaded: (Unavailable)" in tensorrt.unavailable(device)
    monkeypatch.setattr(tensorrt, "installed", lambda name: False)
    assert "the module paddle.tensorrt" in tensorrt.unavailable(device)
    monkeypatch.setattr(paddle.inference, "get_trt_compile_version", lambda: (0, 0, 0))
    assert tensorrt.unavailable(device) == "this build of Paddle has no TensorRT"
    assert Gpu().candidates(_on_gpu(capture())) == [SETTINGS]


def test_this_builds_own_answer():
    """On the installed Paddle, unplayed."""
    if paddle.is_compiled_with_cuda():
        pytest.skip("this build has CUDA")
    assert tensorrt.unavailable(Device("gpu", 0)) == "this build of Paddle has no TensorRT"


def test_engines_fit_one_kind_of_gpu(export, monkeypatch):
    assert tensorrt.unavailable(Device("gpu", 1)) is None  # as the first one
    machine = types.SimpleNamespace(
        gpus=(
            types.SimpleNamespace(index=0, name="small"),
            types.SimpleNamespace(index=1, name="large"),
        )
    )
    monkeypatch.setattr(tensorrt, "probe", lambda: machine)
    assert "gpu:1 is another kind" in tensorrt.unavailable(Device("gpu", 1))


def _on_gpu(captured):
    captured.device = "gpu:0"
    return captured


# -- ranges ---------------------------------------------------------------------------------------


def test_ranges_of_fixed_shapes():
    slots = [Slot("x", (2, 3), "float32"), Slot("n", (), "int64")]
    assert tensorrt.shape_ranges(slots) == {"x": ((2, 3),) * 3, "n": ((), (), ())}


def test_ranges_come_from_the_calls_that_were_seen():
    slots = [Slot("x", (-1, 3, -1), "float32"), Slot("y", (-1,), "int64")]
    seen = [((2, 3, 64), (5,)), ((8, 3, 32), (7,)), ((1, 3, 96), (6,))]
    assert tensorrt.shape_ranges(slots, seen) == {
        "x": ((1, 3, 32), (2, 3, 64), (8, 3, 96)),
        "y": ((5,), (5,), (7,)),
    }
    with pytest.raises(EngineError, match=r"a range for dimension 0 of 'x', and no call"):
        tensorrt.shape_ranges(slots)


# -- building, and what stays ---------------------------------------------------------------------


def test_a_program_is_converted_once_and_then_found(export):
    net, x = small_net(), paddle.randn([2, 6])
    captured = capture(net, x)
    first = Gpu().build(captured, WITH)
    assert first.engine == "tensorrt on gpu:0" and error(first([x])[0], net(x)) < 1e-5
    assert "TensorRT engines built anew" in first.notes
    (config,) = export.configs
    assert config.precision_mode == "FP32" and config.workspace_size == 1 << 30
    assert [one.given for one in config.inputs] == [("x0", "float32", (2, 6), (2, 6), (2, 6))]
    convert, run = export.played.requests
    assert set(convert) == {"tensorrt"} and run["gpu_model"].endswith(".files/model.json")
    again = Gpu().build(captured, WITH)
    assert "TensorRT engines from the on-disk cache" in again.notes and len(export.configs) == 1
    assert error(again([x])[0], net(x)) < 1e-5
    (entry,) = pfb.cache.entries()
    assert entry.kind == "tensorrt" and entry.about["inputs"] == ["x0 ((2, 6), (2, 6), (2, 6))"]
    for executable in (first, again):
        executable.close()
    assert held_bytes("gpu:0") == 0


def test_other_weights_precision_or_gpu_are_other_engines(export, monkeypatch):
    net, x = small_net(), paddle.randn([2, 6])
    Gpu().build(capture(net, x), WITH).close()
    with pfb.override(probe_in_child=False):
        Gpu().build(capture(net, x), {**WITH, "precision": "float16"}).close()
        net[0].weight.set_value(net[0].weight * 2)
        Gpu().build(capture(net, x), WITH).close()
        monkeypatch.setattr(paddle.inference, "get_trt_runtime_version", lambda: (10, 4, 0))
        Gpu().build(capture(net, x), WITH).close()
    assert [c.precision_mode for c in export.configs] == ["FP32", "FP16", "FP32", "FP32"]


@pytest.mark.parametrize("harm", ["changed", "missing", "more", "link"])
def test_damaged_engines_are_built_anew(export, harm):
    captured = capture()
    Gpu().build(captured, WITH).close()
    (folder,) = pfb.cache.path().glob("tensorrt.*.files")
    engine = folder / "model" / "engine_1.trt"
    if harm == "changed":
        engine.write_bytes(b"an Engine")
    elif harm == "missing":
        engine.unlink()
    elif harm == "more":
        (folder / "more").touch()
    else:
        (folder / "link").symlink_to("/etc/passwd")
    Gpu().build(captured, WITH).close()
    assert len(export.configs) == 2 and not folder.exists()
    Gpu().build(captured, WITH).close()
    assert len(export.configs) == 2


def test_a_conversion_that_fails_leaves_nothing(export):
    export.played.verdict = "crashes the process (SIGABRT)"
    with pytest.raises(EngineError, match=r"on gpu:0, in a child process, it crashes"):
        Gpu().build(capture(), WITH)
    export.played.verdict = None
    export.convert = lambda path, config: None
    with pytest.raises(EngineError, match="has written no program"):
        Gpu().build(capture(), WITH)
    assert list(pfb.cache.path().iterdir()) == [] and held_bytes("gpu:0") == 0


def test_without_a_place_to_keep_engines_there_are_none(export, tmp_path):
    with pfb.override(cache=False), pytest.raises(EngineError, match="the on-disk cache is off"):
        Gpu().build(capture(), WITH)
    (tmp_path / "file").touch()
    with pfb.override(cache_dir=str(tmp_path / "file")), pytest.raises(EngineError, match="place"):
        Gpu().build(capture(), WITH)
    with pytest.raises(EngineError, match="no program without parameters"):
        Gpu().build(capture(paddle.nn.ReLU()), WITH)


def test_clear_deletes_engines_and_the_limit_keeps_the_newest(export, monkeypatch):
    nets = [small_net(), small_net()]
    Gpu().build(capture(nets[0]), WITH).close()
    with pfb.override(cache_folders_mb=1):
        monkeypatch.setattr(Export, "convert", _large)
        Gpu().build(capture(nets[1]), WITH).close()
    assert len(list(pfb.cache.path().glob("*.files"))) == 1
    assert pfb.cache.clear() == 2
    assert list(pfb.cache.path().iterdir()) == []


def _large(self, model_path, config, convert=Export.convert):
    convert(self, model_path, config)
    with open(f"{config.save_model_dir}/engine_2.trt", "wb") as file:
        file.write(bytes(2 << 20))
