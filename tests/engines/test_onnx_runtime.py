"""The ONNX Runtime and OpenVINO engines: whole nets, memory, threads, life and death."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading

import numpy as np
import paddle
import paddle_inference_cases as cases
import pytest
from foreign_engine_cases import assert_eager, build, every_engine, floats, integers
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost import cli
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.engines import registry
from paddle_fluid_boost.engines.compare import differences
from paddle_fluid_boost.errors import EngineError, OptionError
from paddle_fluid_boost.hardware.advice import Advice, most_threads
from paddle_fluid_boost.options import override


@pytest.fixture(autouse=True)
def _seeded():
    paddle.seed(7)


def _vision(name):
    """A network with only ten classes: most of the time goes into making weights."""
    make = getattr(paddle.vision.models, name)
    return lambda: cases.calibrated(make(num_classes=10), floats(2, 3, 32, 32))


NETS = {
    "mobilenet": (_vision("mobilenet_v3_small"), lambda: floats(2, 3, 32, 32)),
    "shufflenet": (_vision("shufflenet_v2_x0_25"), lambda: floats(1, 3, 32, 32)),
    "encoder": (cases.encoder, lambda: floats(1, 12, 32)),
    "tagger": (cases.SequenceTagger, lambda: integers(2, 6, below=50)),
    "unet": (cases.UNet, lambda: floats(1, 3, 32, 32)),
    "upsampler": (cases.Upsampler, lambda: floats(1, 3, 8, 8)),
    "dilated": (cases.dilated_separable, lambda: floats(1, 64, 16)),
}


@every_engine
@pytest.mark.parametrize("name", NETS)
def test_net(engine, name):
    make, example = NETS[name]
    net, x = make(), example()
    net.eval()
    executable = build(engine, net, [x], threads=2)
    for other in (x, x, x // 2 if x.dtype == paddle.int64 else x * 2):
        assert_eager(executable, net, [other])
    weights = sum(p.size * 4 for p in net.parameters())
    assert weights * 0.9 <= executable.nbytes <= 3 * weights + (1 << 20)
    assert executable.coverage() == []


@every_engine
def test_outputs_of_every_kind(engine):
    net, inputs = cases.ManyOutputs(), cases.many_inputs()
    executable = build(engine, net, inputs)
    assert_eager(executable, net, inputs)
    first = executable(list(inputs))
    kept = [tensor.numpy().copy() for tensor in first]
    del executable
    gc.collect()
    paddle.zeros([1000])
    for tensor, array in zip(first, kept):  # theirs from now on, whatever becomes of the engine
        np.testing.assert_array_equal(tensor.numpy(), array)


@every_engine
def test_inputs_and_outputs_share_no_memory_between_calls(engine):
    executable = build(engine, lambda x: x * 2, [floats(4)])
    x = floats(4)
    one, two = executable([x])[0], executable([x + 1])[0]
    one.fill_(0.0)
    assert differences([two], [(x + 1) * 2], 1e-6) is None
    assert differences([x], [floats(4)], 0.0) is None


@every_engine
def test_strided_and_misaligned_inputs(engine):
    executable = build(engine, lambda x: x * 2, [floats(3, 4)])
    strided = floats(4, 3).transpose([1, 0])
    assert differences(executable([strided]), [strided * 2], 1e-6) is None
    raw = np.zeros(12 * 4 + 1, "uint8")
    raw[1:] = np.arange(12, dtype="float32").view("uint8")
    odd = pfb.engines._paddle.adopt_array(raw[1:].view("float32").reshape(3, 4))
    assert odd.data_ptr() % 4, "the test needs an address that no float may have"
    want = paddle.arange(12, dtype="float32").reshape([3, 4]) * 2
    assert differences(executable([odd]), [want], 1e-6) is None


@every_engine
def test_nan_and_infinities_pass(engine):
    x = paddle.to_tensor([1.0, float("nan"), float("inf"), -float("inf")])
    executable = build(engine, lambda x: [x + 1, x * 0.5], [x])
    assert_eager(executable, lambda x: [x + 1, x * 0.5], [x])


@every_engine
def test_calls_at_once(engine):
    net = cases.encoder()
    net.eval()
    inputs = [floats(1, 12, 32, seed=i) for i in range(4)]
    executable = build(engine, net, inputs[:1], threads=2)
    want = [cases.eager(net, x) for x in inputs]
    wrong = []

    def call(number):
        for _ in range(20):
            reason = differences(executable([inputs[number]]), want[number], 1e-4)
            if reason:
                wrong.append(reason)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@every_engine
def test_wrong_calls_and_close(engine):
    executable = build(engine, lambda x: x + 1, [floats(2, 3)])
    with pytest.raises(EngineError, match="needs 1 inputs, got 2"):
        executable([floats(2, 3)] * 2)
    with pytest.raises(EngineError, match=r"input 0 must be paddle.float32\[2, 3\]"):
        executable([floats(3, 2)])
    with pytest.raises(EngineError, match="input 0 must be"):
        executable([integers(2, 3)])
    executable.close()
    executable.close()
    with pytest.raises(EngineError, match="is closed"):
        executable([floats(2, 3)])


@every_engine
@pytest.mark.parametrize("settings", [{}, {"threads": 0}, {"threads": "2"}, {"threads": 1, "x": 1}])
def test_wrong_settings(engine, settings):
    with pytest.raises(EngineError, match="threads"):
        engine.build(cases.capture(lambda x: x + 1, floats(2)), settings)


@every_engine
def test_threads_follow_the_option(engine):
    captured = cases.capture(lambda x: x + 1, floats(2))
    with override(threads=3):
        assert engine.candidates(captured) == [{"threads": 3}]
    assert engine.candidates(captured) == [{"threads": most_threads()}]


@every_engine
@pytest.mark.parametrize("threads", [1, 2])
def test_forked_child(engine, threads):
    """It runs there, or says that it cannot, and the child ends."""
    x = floats(1, 12, 32)
    net = cases.encoder()
    net.eval()
    executable = build(engine, net, [x], threads=threads)
    want = executable([x])

    def child():
        nonlocal executable
        try:
            status = 0 if differences(executable([x]), want, 1e-6) is None else 3
        except EngineError as error:
            status = 0 if "in the process that forked" in str(error) else 4
        executable.close()
        del executable
        gc.collect()
        return status

    assert cases.exit_status_of_fork(child) == 0
    assert differences(executable([x]), want, 1e-6) is None


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_missing_package(name, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    engine = registry.make_engine(name)
    assert f"pip install 'paddle-fluid-boost[{name}]'" in engine.unavailable()
    with pytest.raises(EngineError, match=f"{name} cannot be imported"):
        engine.build(cases.capture(lambda x: x + 1, floats(2)), {"threads": 1})
    with override(engines=f"{name},paddle_inference", sync=True, hot_calls=1, min_gain=0.0):
        told = _explained(lambda x: x * 2 + 1, [floats(3)])
    assert "unavailable" in told and "paddle_inference" in told
    monkeypatch.setattr(cli, "_memory_faults", dict)  # looking for them hooks into the allocator
    cli.main(["doctor"])
    shown = capsys.readouterr().out
    assert f"{name} cannot be imported" in shown
    assert f"to get it: pip install 'paddle-fluid-boost[{name}]'" in shown


@pytest.mark.parametrize(
    ("library", "names"),
    [
        (("native", "paddle_inference", "onnxruntime"), ["native", "paddle_inference"]),
        (("onnxruntime", "paddle_inference"), ["onnxruntime", "paddle_inference", "native"]),
        (("native", "openvino", "paddle_inference"), ["native", "openvino", "paddle_inference"]),
        (("tensorrt",), ["native", "paddle_inference"]),
    ],
    ids=["x86", "ARM", "in between", "unknown"],
)
def test_the_library_asks_for_engines_that_it_ranks_first(monkeypatch, library, names):
    monkeypatch.setattr(registry, "cpu_advice", lambda: Advice(engines=library))
    assert registry.engine_names() == names
    with override(engines="paddle_inference"):
        assert registry.engine_names() == ["paddle_inference"]


def test_options_know_the_engines():
    with override(engines="openvino,onnxruntime"):
        assert registry.engine_names() == ["openvino", "onnxruntime"]
    with pytest.raises(OptionError, match="unknown engine 'onnx'"):
        pfb.configure(engines="onnx")


@contextlib.contextmanager
def _installed():
    """The plugin; traces of the tests after this one are allowed again."""
    pfb.install()
    try:
        yield
    finally:
        pfb.uninstall()
        STATIC_LOCK.open()


def _explained(function, *inputs_of_calls):
    """What explain says after some calls with each list of inputs, results compared with eager."""
    with _installed(), paddle.no_grad():
        boosted = pfb.to_static(function)
        for inputs in inputs_of_calls:
            want = cases.eager(function, *inputs)
            for _ in range(3):
                assert differences([boosted(*inputs)], want, 1e-4) is None
        return str(pfb.explain(boosted))


@every_engine
def test_chosen_for_each_signature_and_named(engine):
    net = cases.small_cnn()
    net.eval()
    with override(engines=engine.name, sync=True, hot_calls=1, min_gain=0.0):
        told = _explained(net, [floats(1, 3, 8, 8)], [floats(2, 3, 8, 8)], [floats(4, 3, 8, 8)])
    assert told.count(f"engine {engine.name}") == 3, told


@every_engine
def test_changed_weights_are_not_served_stale(engine):
    net = nn.Linear(64, 64)  # 16 KiB: a constant that the runtime is given beside the model
    net.eval()
    x = floats(2, 64)
    options = override(engines=engine.name, sync=True, hot_calls=1, min_gain=0.0)
    with _installed(), options, paddle.no_grad():
        boosted = pfb.to_static(net)
        for factor in (1.0, 2.0, -1.0):
            net.weight.set_value(net.weight * factor)
            for _ in range(3):
                want = x @ net.weight + net.bias
                assert differences([boosted(x)], [want], 1e-4) is None
        assert f"engine {engine.name}" in str(pfb.explain(boosted))
