"""What serves a bundle's calls that have no native plan: Paddle Inference or ONNX Runtime.

Both models in the bundle were verified when it was made.  Where both can run here, the faster on
an example serves, provided that it agrees with Paddle Inference.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..engines.compare import differences
from ..engines.paddle_inference_run import PredictorExecutable
from ..errors import EngineError
from ..hardware.cores import usable_cores
from ..options import options
from .predictor import open_predictor
from .tuned_plan import fastest_call

MODEL, PARAMS = "paddle/model.json", "paddle/model.pdiparams"
ONNX = "onnx/model.onnx"


class OnnxSession:
    """An ONNX model in ONNX Runtime, called with and returning eager tensors."""

    engine = "onnxruntime"

    def __init__(self, content: bytes, inputs: Sequence[str]) -> None:
        """Raises EngineError where ONNX Runtime is missing or does not take the model."""
        try:
            import onnxruntime
        except ImportError as error:
            raise EngineError(f"ONNX Runtime is not installed: {error}") from error
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads or usable_cores()
        settings.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(
                content, settings, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own hierarchy, which derives from nothing narrower
            raise EngineError(f"ONNX Runtime cannot load the model: {error}") from error
        taken = {one.name for one in self._session.get_inputs()}
        self._inputs = [name if name in taken else None for name in inputs]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs for dense tensors in the order of the inputs; EngineError where it fails."""
        if self._session is None:
            raise EngineError("the bundle is closed")
        feeds = {n: t.numpy() for n, t in zip(self._inputs, inputs) if n is not None}
        try:
            results = self._session.run(None, feeds)
        except Exception as error:  # its own hierarchy again
            raise EngineError(f"ONNX Runtime cannot run the model: {error}") from error
        return [paddle.to_tensor(np.asarray(result)) for result in results]

    def close(self) -> None:
        """Frees the session.  Idempotent."""
        self._session = None


def open_paddle(
    contents: Mapping[str, bytes], inputs: Sequence[str], outputs: int
) -> PredictorExecutable:
    """Paddle Inference without oneDNN on the Paddle model of a bundle."""
    with tempfile.TemporaryDirectory(prefix="pfb-load-") as folder:
        model, params = os.path.join(folder, "model.json"), os.path.join(folder, "params")
        for path, name in ((model, MODEL), (params, PARAMS)):
            with open(path, "wb") as file:
                file.write(contents.get(name, b""))
        return open_predictor(model, params if PARAMS in contents else "", inputs, outputs)


def open_fastest(
    contents: Mapping[str, bytes], inputs: Sequence[str], outputs: int, example: Sequence[Any]
) -> tuple[Any, str]:
    """The executable for calls without a native plan, and why it is that one.

    Args:
        example: tensors to compare and time on.
    """
    predictor = open_paddle(contents, inputs, outputs)
    if ONNX not in contents:
        return predictor, "Paddle Inference"
    try:
        session = OnnxSession(contents[ONNX], inputs)
    except EngineError as error:
        return predictor, f"Paddle Inference ({error})"
    try:
        unlike = differences(session(example), predictor(example), options.rtol)
        times = [fastest_call(one, example) for one in (predictor, session)]
    except (EngineError, RuntimeError, ValueError) as error:  # or what the example does not suit
        session.close()
        return predictor, f"Paddle Inference (ONNX Runtime: {error})"
    said = f"Paddle Inference {times[0] * 1e3:.3g} ms, ONNX Runtime {times[1] * 1e3:.3g} ms"
    if unlike is not None or times[0] <= times[1]:
        session.close()
        return predictor, f"{said}{f', which differs: {unlike}' if unlike else ''}"
    predictor.close()
    return session, said
