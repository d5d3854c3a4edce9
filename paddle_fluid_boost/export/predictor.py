"""Paddle Inference in this process, without oneDNN: the path that is right on every model."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from ..engines.paddle_inference_config import PredictorSettings, make_config
from ..engines.paddle_inference_run import PredictorExecutable
from ..errors import EngineError
from ..hardware.cores import usable_cores
from ..options import options


def open_predictor(
    model: str, params: str, inputs: Sequence[str], outputs: int
) -> PredictorExecutable:
    """A predictor of the model in two files, which may be removed afterwards.

    Args:
        params: "" for a model without parameters.
        inputs: names of the inputs in calling order.  outputs: how many there are.

    Raises:
        EngineError: Paddle cannot load it.
    """
    threads = options.threads or usable_cores()
    settings = PredictorSettings(False, threads, options.onednn_cache_capacity)
    try:
        predictor = paddle.inference.create_predictor(make_config(model, params, settings))
    except (RuntimeError, ValueError, SystemError) as error:
        raise EngineError(f"Paddle Inference cannot load {model}: {error}") from error
    return PredictorExecutable(
        predictor,
        engine="paddle_inference",
        input_names=list(inputs),
        output_order=range(outputs),
        per_thread_caches=False,
        nbytes=0,
        notes=[],
    )
