"""Runs an artefact in its own runtime, in a process of its own: ``python child_run.py REQUEST``.

This file imports nothing of the package, so that the process holds the runtime and nothing else.
The request and the answer are JSON files; arrays travel as ``.npy``.

    {"runtime": "paddle"|"onnx"|"mnn"|"ncnn", "model": path, "params": path, "settings": {...},
     "names": [input names], "cases": [[input .npy, ...], ...], "folder": path, "repeats": n}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Runner = Callable[["list[Any]"], "list[Any]"]


def paddle_runner(request: dict[str, Any]) -> Runner:
    import paddle.inference as inference

    config = inference.Config(request["model"], request["params"] or "")
    config.disable_glog_info()
    settings = request["settings"]
    if settings.get("onednn") is False:
        for name in ("disable_onednn", "disable_mkldnn"):
            if hasattr(config, name):
                getattr(config, name)()
                break
    config.enable_new_ir(True)
    config.enable_new_executor(True)
    config.enable_memory_optim(True)
    config.set_cpu_math_library_num_threads(settings["threads"])
    predictor = inference.create_predictor(config)
    names = predictor.get_output_names()
    taken = set(predictor.get_input_names())

    def run(arrays: list[Any]) -> list[Any]:
        for name, array in zip(request["names"], arrays):
            if name in taken:
                handle = predictor.get_input_handle(name)
                handle.reshape(array.shape)
                handle.copy_from_cpu(array)
        predictor.run()
        return [predictor.get_output_handle(name).copy_to_cpu() for name in names]

    return run


def onnx_runner(request: dict[str, Any]) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request["settings"]["threads"]
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        request["model"], options, providers=["CPUExecutionProvider"]
    )
    taken = {one.name for one in session.get_inputs()}

    def run(arrays: list[Any]) -> list[Any]:
        feeds = {n: a for n, a in zip(request["names"], arrays) if n in taken}
        return session.run(None, feeds)

    return run


def mnn_runner(request: dict[str, Any]) -> Runner:
    import MNN
    import MNN.expr as expr
    import numpy

    model = MNN.nn.load_module_from_file(
        request["model"], request["names"], request["settings"]["outputs"]
    )
    kinds = {"float32": expr.float, "int32": expr.int}
    MNN_NCHW = expr.NCHW

    def variable(array: Any) -> Any:
        if array.dtype == numpy.int64:
            array = array.astype("int32")
        made = expr.placeholder(list(array.shape), MNN_NCHW, kinds[str(array.dtype)])
        made.write(array)
        return made

    def run(arrays: list[Any]) -> list[Any]:
        results = model.forward([variable(array) for array in arrays])
        return [expr.convert(result, MNN_NCHW).read().copy() for result in results]

    return run


def ncnn_runner(request: dict[str, Any]) -> Runner:
    import ncnn
    import numpy

    net = ncnn.Net()
    net.opt.num_threads = request["settings"]["threads"]
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    if net.load_param(request["model"]) or net.load_model(request["params"]):
        raise RuntimeError("ncnn cannot load the model")

    def run(arrays: list[Any]) -> list[Any]:
        # ncnn has no batch dimension: one image goes in, one result comes out.  It reads the
        # inputs when results are asked for: they must live until then.
        images = [ncnn.Mat(array[0]).clone() for array in arrays]
        extractor = net.create_extractor()
        for number, image in enumerate(images):
            extractor.input(f"in{number}", image)
        results = []
        for number in range(request["settings"]["outputs"]):
            _, made = extractor.extract(f"out{number}")
            results.append(numpy.array(made)[None])
        return results

    return run


def main(path: str) -> None:
    with open(path) as file:
        request = json.load(file)
    import numpy

    started = time.perf_counter()
    run = {
        "paddle": paddle_runner,
        "onnx": onnx_runner,
        "mnn": mnn_runner,
        "ncnn": ncnn_runner,
    }[request["runtime"]](request)
    load_s = time.perf_counter() - started
    counts = []
    for number, files in enumerate(request["cases"]):
        outputs = run([numpy.load(file) for file in files])
        for position, output in enumerate(outputs):
            target = os.path.join(request["folder"], f"out{number}_{position}.npy")
            numpy.save(target, numpy.asarray(output), allow_pickle=False)
        counts.append(len(outputs))
    times = []
    first = [numpy.load(file) for file in request["cases"][0]]
    for _ in range(request["repeats"]):
        started = time.perf_counter()
        run(first)
        times.append(time.perf_counter() - started)
    with open(os.path.join(request["folder"], "answer.json"), "w") as file:
        json.dump({"counts": counts, "load_s": load_s, "times_s": times}, file)


if __name__ == "__main__":
    main(sys.argv[1])
