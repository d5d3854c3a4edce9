"""The inference Config of a GPU; used by the engine and by the probe child.

What is set here, and what is not, follows the Python interface of Paddle 3.1 to 3.3:

* ``enable_tensorrt_engine`` and ``set_trt_dynamic_shape_info`` act on programs of Paddle 2 only; a
  PIR program is converted for TensorRT beforehand (``tensorrt.py``).
* There is no setting for a stream, nor for CUDA graphs outside ``enable_tensorrt_engine``; the flag
  ``FLAGS_new_executor_use_cuda_graph`` is one for the whole process, the user's eager calls
  included, and stays as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import EngineError
from . import _paddle as pd
from .paddle_inference_config import run_by_new_executor

#: numpy's names of what a predictor may compute float32 programs in -> Paddle's.
PRECISIONS = {"float32": "Float32", "float16": "Half", "bfloat16": "Bfloat16"}


@dataclass(frozen=True)
class GpuSettings:
    """How a predictor on a GPU is built.

    number: of the GPU.
    precision: ``"float32"`` leaves the program's own types; ``"float16"`` and ``"bfloat16"`` let
        Paddle compute float32 ops in less, inputs and outputs stay what they are.
    pool_mb: MiB that Paddle's allocator takes at first, where nobody has asked it for any yet.
    left_out: names of Paddle passes to leave out.
    """

    number: int
    precision: str
    pool_mb: int
    left_out: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values that go through JSON."""
        return asdict(self)


def make_gpu_config(model: str, params: str, settings: GpuSettings) -> Any:
    """A fresh ``paddle.inference.Config`` for a GPU.

    Args:
        model: path of the program's ``.json``.
        params: path of the ``.pdiparams``, or "" for a program without parameters.

    Raises:
        EngineError: this build of Paddle ignores the wish for a GPU.
    """
    config = pd.paddle.inference.Config(model, params)
    config.disable_glog_info()
    if pd.has_onednn():  # on by default from 3.3 on; its passes would meet the host's ops
        pd.config_method(config, "disable_onednn")()
    precision = getattr(pd.paddle.inference.PrecisionType, PRECISIONS[settings.precision])
    config.enable_use_gpu(settings.pool_mb, settings.number, precision)
    if not config.use_gpu():  # a build without CUDA says so in its log only
        raise EngineError("gpu: this build of Paddle has refused to use the GPU")
    if settings.precision != "float32":
        config.exp_disable_mixed_precision_ops({"feed", "fetch"})
    run_by_new_executor(config, settings.left_out)
    return config
