"""The ways to run one network that are compared: each makes a callable that does one inference.

Each takes the network, its input and its name in the zoo, and returns ``call``, which gives the
output as numpy.  All get the same number of threads and fp32.  A way that is not installed, or that
fails to build, raises; the caller keeps the reason.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from machine import threads

Call = Callable[[], np.ndarray]


def eager(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    return _dygraph(net, data)


def to_static(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    """Paddle's own, whole graph: its default mode leaves most of these networks uncompiled."""
    return _dygraph(paddle.jit.to_static(copy.deepcopy(net), full_graph=True), data)


def boosted(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    """Ours, after it has had the calls and the time to compile."""
    import paddle_fluid_boost as pfb

    call = _dygraph(pfb.to_static(copy.deepcopy(net)), data)
    until_settled(call)
    return call


def until_settled(call: Callable[[], object], calls: int = 400, seconds: float = 60) -> None:
    """Calls until the plugin has no compile under way and is not about to start one."""
    import time

    import paddle_fluid_boost as pfb

    end = time.monotonic() + seconds
    for number in range(calls):
        call()
        if number % 20 == 19:
            pfb.wait(max(0.0, end - time.monotonic()))
        if time.monotonic() > end:
            break


def paddle_inference(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    return _predictor(net, data, onednn=False)


def paddle_inference_onednn(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    return _predictor(net, data, onednn=True)


def onnxruntime(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    session = open_session(_onnx(net, data))
    feed = {session.get_inputs()[0].name: data.numpy()}
    return lambda: session.run(None, feed)[0]


def openvino(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    import openvino as ov

    settings = {
        "INFERENCE_NUM_THREADS": threads(),
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = ov.Core().compile_model(_onnx(net, data), "CPU", settings)
    request = compiled.create_infer_request()
    feed = [data.numpy()]
    return lambda: request.infer(feed)[compiled.output(0)]


def torch_compile(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    import torch

    return _torch(torch.compile(_torch_network(name)), data)


def torchscript(net: paddle.nn.Layer, data: paddle.Tensor, name: str) -> Call:
    import torch

    example = torch.from_numpy(data.numpy())
    traced = torch.jit.trace(_torch_network(name), example, check_trace=False)
    return _torch(torch.jit.optimize_for_inference(traced), data)


#: In the order of the tables.
ALL: dict[str, Callable[[paddle.nn.Layer, paddle.Tensor, str], Call]] = {
    "eager": eager,
    "to_static": to_static,
    "Paddle Inference": paddle_inference,
    "Paddle Inference + oneDNN": paddle_inference_onednn,
    "paddle_fluid_boost": boosted,
    "ONNX Runtime": onnxruntime,
    "OpenVINO": openvino,
    "torch.compile": torch_compile,
    "TorchScript": torchscript,
}
#: Those whose weights are not the network's, so that their output cannot be compared.
OTHER_WEIGHTS = ("torch.compile", "TorchScript")


def _dygraph(net: paddle.nn.Layer, data: paddle.Tensor) -> Call:
    def call() -> np.ndarray:
        with paddle.no_grad():
            return net(data).numpy()

    return call


def _torch_network(name: str) -> Any:
    import torch
    import torch_networks

    if name not in torch_networks.NETWORKS:
        raise KeyError(f"no torch form of {name}")
    torch.set_num_threads(threads())
    return torch_networks.NETWORKS[name]().eval()


def _torch(module: Any, data: paddle.Tensor) -> Call:
    import torch

    tensor = torch.from_numpy(data.numpy())

    def call() -> np.ndarray:
        with torch.no_grad():
            return module(tensor).numpy()

    call()
    return call


def saved(net: paddle.nn.Layer, shape: Sequence[int | None], dtype: str) -> str:
    """The network saved in a fresh folder for inputs of ``shape``, sizes that are None left open;
    the prefix of its files."""
    prefix = str(Path(tempfile.mkdtemp(prefix="pfb-bench-")) / "model")
    spec = paddle.static.InputSpec(shape, dtype, name="x")
    static = paddle.jit.to_static(copy.deepcopy(net), input_spec=[spec], full_graph=True)
    paddle.jit.save(static, prefix)
    return prefix


def _saved(net: paddle.nn.Layer, data: paddle.Tensor) -> str:
    return saved(net, data.shape, data.dtype.name.lower())


def open_predictor(prefix: str, onednn: bool) -> tuple[Any, Any, Any]:
    """A predictor of a saved network, and the handles of its input and output."""
    from paddle import inference

    config = inference.Config(prefix + ".json", prefix + ".pdiparams")
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(threads())
    if onednn:
        config.enable_mkldnn()
    else:
        config.disable_mkldnn()
    predictor = inference.create_predictor(config)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    return predictor, source, predictor.get_output_handle(predictor.get_output_names()[0])


def _predictor(net: paddle.nn.Layer, data: paddle.Tensor, onednn: bool) -> Call:
    predictor, source, target = open_predictor(_saved(net, data), onednn)

    def call() -> np.ndarray:
        source.share_external_data(data)
        predictor.run()
        return target.copy_to_cpu()

    return call


def open_session(path: str, arena: bool = True) -> Any:
    """A session of ONNX Runtime, with or without its memory arena."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = arena
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _onnx(net: paddle.nn.Layer, data: paddle.Tensor) -> str:
    """The path of the network as ONNX, for this shape."""
    return to_onnx(_saved(net, data))


def to_onnx(prefix: str) -> str:
    """The path of a saved network as ONNX; the conversion may kill its process, so it has its own.

    Raises:
        RuntimeError: it failed; with the last line that it said.
    """
    path = prefix + ".onnx"
    program = (
        "import sys, paddle2onnx; prefix, path = sys.argv[1:];"
        "paddle2onnx.export(prefix + '.json', prefix + '.pdiparams', path, opset_version=17)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, prefix, path], capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0 or not Path(path).exists():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"paddle2onnx: {last[:120]}")
    return path
