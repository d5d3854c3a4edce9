"""In the probe child: the conversion of a program for TensorRT, which may take minutes or end the
process.  Its interface is described in ``tensorrt.py``."""

from __future__ import annotations

import inspect
import os
import tempfile
from typing import Any

_PRECISIONS = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}


def convert(request: dict[str, Any]) -> None:
    """Writes ``model.json``, ``model.pdiparams`` and TensorRT's engines into ``folder``.

    Args:
        request: ``model`` and ``params`` (paths), ``folder``, ``inputs`` (name, dtype and range of
            each), ``precision``, ``workspace`` (bytes), ``smallest_part`` (ops), ``left_out``.
    """
    # Where Paddle has no folder of its own for engines it takes one below the user's home.
    os.environ["HOME"] = request["folder"]
    from paddle.tensorrt import export as trt

    config = trt.TensorRTConfig(
        [_input(trt, one) for one in request["inputs"]],
        min_subgraph_size=request["smallest_part"],
        save_model_dir=os.path.join(request["folder"], "model"),
        precision_mode=getattr(trt.PrecisionMode, _PRECISIONS[request["precision"]]),
        disable_passes=request["left_out"],
        workspace_size=request["workspace"],
    )
    with tempfile.TemporaryDirectory(prefix="pfb-tensorrt-") as here:
        stem = os.path.join(here, "model")  # it finds the parameters by the name of the program
        os.symlink(request["model"], f"{stem}.json")
        os.symlink(request["params"], f"{stem}.pdiparams")
        trt.convert(stem, config)


def _input(trt: Any, one: dict[str, Any]) -> Any:
    low, usual, high = one["range"]
    arguments = {
        "min_input_shape": tuple(low),
        "optim_input_shape": tuple(usual),
        "max_input_shape": tuple(high),
        "input_data_type": one["dtype"],
        "input_range": (0, 1),  # whole numbers become 0, which every table of embeddings has
        "name": one["name"],
    }
    known = inspect.signature(trt.Input).parameters  # 3.0 goes by the order of the inputs alone
    return trt.Input(**{name: value for name, value in arguments.items() if name in known})
