"""ONNX to a mobile format, in a process of its own: ``python child_mobile.py KIND IN OUT [MORE]``.

``ort IN OUT``: ONNX Runtime's own format.
``mnn IN OUT``: MNN, by the function behind ``mnnconvert``; the command itself installs packages and
reports to a server.
``ncnn IN OUT.param SHAPES INPUTS``: ncnn, by pnnx; SHAPES as ``[1,3,8,8]f32,...``.

This file imports nothing of the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable


def ort(source: str, target: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = target
    options.add_session_config_entry("session.save_model_format", "ORT")
    # Layout optimisations are for the processor they ran on; phones have another.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def mnn(source: str, target: str) -> None:
    import _tools  # beside MNN, which loads what it links against
    import MNN  # noqa: F401

    arguments = ["mnnconvert", "-f", "ONNX", "--modelFile", source, "--MNNModel", target]
    _tools.mnnconvert([*arguments, "--bizCode", "paddle_fluid_boost"])
    if not os.path.isfile(target):  # it says so, but returns as if all were well
        sys.exit("MNN's converter failed")


def ncnn(source: str, target: str, shapes: str) -> None:
    import importlib.util

    spec = importlib.util.find_spec("pnnx")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("pnnx is not installed")
    program = os.path.join(next(iter(spec.submodule_search_locations)), "pnnx")
    with tempfile.TemporaryDirectory(prefix="pfb-pnnx-") as work:
        copy = os.path.join(work, "model.onnx")
        shutil.copy(source, copy)
        subprocess.run([program, copy, f"inputshape={shapes}", "fp16=0"], cwd=work, check=True)
        for made, final in (("param", target), ("bin", target[: -len(".param")] + ".bin")):
            shutil.copy(os.path.join(work, f"model.ncnn.{made}"), final)


if __name__ == "__main__":
    kinds: dict[str, Callable[..., None]] = {"ort": ort, "mnn": mnn, "ncnn": ncnn}
    kinds[sys.argv[1]](*sys.argv[2:])
