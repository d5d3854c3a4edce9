"""Device names, the option, which engines serve which device; what needs no device at all."""

from __future__ import annotations

import paddle
import pytest

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.engines.custom_device import CustomDevice
from paddle_fluid_boost.engines.device_memory import Share, held_bytes, peak_bytes
from paddle_fluid_boost.engines.lowered import parse_lowered, placement
from paddle_fluid_boost.engines.registry import engine_names
from paddle_fluid_boost.errors import EngineError, OptionError
from paddle_fluid_boost.hardware.devices import CPU, Device, device_of, is_custom, parse_device


@pytest.mark.parametrize(
    ("text", "device"),
    [("cpu", CPU), ("npu", Device("npu", 0)), ("npu:3", Device("npu", 3)), ("gpu:1", ("gpu", 1))],
)
def test_names(text, device):
    assert parse_device(text) == device
    assert parse_device(str(parse_device(text))) == device


@pytest.mark.parametrize("text", ["", "npu:", "npu:x", ":1", "cpu:0", "npu 1", "npu:-1"])
def test_what_names_no_device_is_refused(text):
    with pytest.raises(ValueError, match="is no device"):
        parse_device(text)
    with pytest.raises(OptionError, match="option 'device' must be 'auto' or a device"):
        pfb.configure(device=text)


def test_places():
    assert device_of(paddle.to_tensor([1.0], place=paddle.CPUPlace())) == CPU
    assert is_custom("npu") and not is_custom("gpu") and not is_custom("cpu")


def test_engines_by_device():
    with pfb.override(engines="native", device="auto"):
        assert engine_names() == ["native"]
        assert engine_names("npu:0") == ["custom_device"]
        assert engine_names("xpu:0") == []
    with pfb.override(engines="native", device="npu:1"):
        assert engine_names() == ["custom_device", "native"]
    with pfb.override(engines="native", device="cpu"):
        assert engine_names() == ["native"]
        assert engine_names("npu:0") == []


@pytest.mark.skipif(
    bool(paddle.device.get_all_custom_device_type()), reason="there is a custom device"
)
def test_without_a_plugin_the_engine_says_so():
    assert "no plug-in has registered" in (CustomDevice().unavailable() or "")


_LOWERED = """
IR before lowering = {
    (%0) = "pd_op.data" () {name:"x"} : () -> tensor<2x3xf32>
}

IR after lowering = {
    (%0) = "builtin.parameter" () {parameter_name:"w"} : () -> custom_device_tensor<3x4xf32>
    (%1) = "data(phi_kernel)" () {kernel_key:<backend:npu|layout:Undefined(AnyLayout)|dtype:float32>,kernel_name:"data",op_name:"pd_op.data"} : () -> custom_device_tensor<2x3xf32>
    (%2) = "memcpy_d2h(phi_kernel)" (%1) {kernel_key:<backend:npu|layout:NCHW|dtype:float32>,kernel_name:"memcpy_d2h",op_name:"pd_op.memcpy_d2h"} : (custom_device_tensor<2x3xf32>) -> cpu_tensor<2x3xf32>
    (%3) = "memcpy_d2h(phi_kernel)" (%0) {kernel_key:<backend:npu|layout:NCHW|dtype:float32>,kernel_name:"memcpy_d2h",op_name:"pd_op.memcpy_d2h"} : (custom_device_tensor<3x4xf32>) -> cpu_tensor<3x4xf32>
    (%4) = "matmul(phi_kernel)" (%2, %3) {kernel_key:<backend:CPU|layout:NCHW|dtype:float32>,kernel_name:"matmul",op_name:"pd_op.matmul"} : (cpu_tensor<2x3xf32>, cpu_tensor<3x4xf32>) -> cpu_tensor<2x4xf32>
    (%5) = "relu(phi_kernel)" (%4) {kernel_key:<backend:CPU|layout:NCHW|dtype:float32>,kernel_name:"relu",op_name:"pd_op.relu"} : (cpu_tensor<2x4xf32>) -> cpu_tensor<2x4xf32>
    (%6) = "memcpy_h2d(phi_kernel)" (%5) {kernel_key:<backend:CUSTOM|layout:NCHW|dtype:float32>,kernel_name:"memcpy_h2d",op_name:"pd_op.memcpy_h2d"} : (cpu_tensor<2x4xf32>) -> custom_device_tensor<2x4xf32>
    (%7) = "add(phi_kernel)" (%6, %6) {kernel_key:<backend:npu|layout:NCHW|dtype:float32>,kernel_name:"add",op_name:"pd_op.add"} : (custom_device_tensor<2x4xf32>, custom_device_tensor<2x4xf32>) -> custom_device_tensor<2x4xf32>
    () = "builtin.shadow_output" (%7) {output_name:"y"} : (custom_device_tensor<2x4xf32>) ->
}
"""  # noqa: E501


def test_a_lowered_program_is_read():
    registry = {"relu": frozenset({"float32"}), "matmul": frozenset({"float16"})}
    found = placement(parse_lowered(_LOWERED), "npu", registry)
    assert dict(found.on_device) == {"add": 1}
    assert dict(found.on_cpu) == {"matmul": 1, "relu": 1}
    assert found.reasons["matmul"] == "no npu kernel for float32"
    assert found.reasons["relu"] == "all it reads is on the CPU"
    assert dict(found.copies) == {"d2h": 2, "h2d": 1}
    assert found.copied_bytes == 4 * (6 + 12 + 8)
    assert found.caused == {"matmul": 4 * 18, "relu": 4 * 8}
    assert found.device_share == pytest.approx(1 / 3)
    assert "1 of 3 ops run on npu" in found.notes()


def test_what_holds_no_lowered_program_is_an_error():
    with pytest.raises(ValueError, match="printed no lowered program"):
        parse_lowered("IR before lowering = {\n}")


def test_the_peak_is_the_largest_sum_alive():
    def chain(x):
        a = x + 1.0  # alive with x
        b = a * a  # x is gone: a and b
        return b.sum()

    STATIC_LOCK.open()
    captured = trace(chain, (paddle.zeros([256, 4]),), {})[0]
    tensor = 256 * 4 * 4
    assert 2 * tensor <= peak_bytes(captured) <= 2 * tensor + 64
    assert captured.device == "cpu"


def test_shares_of_a_device_are_counted_once():
    with pfb.override(device_memory_mb=1):
        share = Share("test:0", 600 << 10)
        with pytest.raises(EngineError, match=r"needs about 0.6 MiB on test:0, of which .* 0.6"):
            Share("test:0", 600 << 10)
        Share("test:1", 600 << 10).release()
        share.release()
        share.release()
        assert held_bytes("test:0") == 0
        Share("test:0", 600 << 10).release()
