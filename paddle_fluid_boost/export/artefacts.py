"""A file that an export left, or that came from elsewhere, opened in this process to be run.

Each is a :class:`~.source.Source`, as a model from Python is, so that all can be asked the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ..errors import CaptureRefused, ExportError
from .source import Captured
from .spec import DTYPES, Signature, TensorSpec

#: Endings of the files that ONNX Runtime opens, and of bundles.
ONNX_FILES = (".onnx", ".ort")
BUNDLE_FILES = (".pfb",)
_ONNX_DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}


def is_artefact(path: str) -> bool:
    """Whether ``path`` names a file of a kind that :func:`open_artefact` knows.

    Raises:
        ExportError: it does, and there is none.
    """
    found = path.endswith((*ONNX_FILES, *BUNDLE_FILES))
    if found and not os.path.isfile(path):
        raise ExportError(f"no such file: {path}", usage=True)
    return found


class OnnxFile:
    """An ONNX file, or one in ONNX Runtime's own format, in ONNX Runtime."""

    def __init__(self, path: str, threads: int) -> None:
        """Raises ExportError where ONNX Runtime is missing or does not take the file."""
        try:
            import onnxruntime
        except ImportError as error:
            raise ExportError(f"{path}: needs ONNX Runtime: pip install onnxruntime") from error
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                path, settings, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime's own hierarchy has no narrower base
            raise ExportError(f"{path}: ONNX Runtime cannot load it: {error}") from error
        self.label, self.warnings = path, list[str]()
        self.output_names = [one.name for one in self._session.get_outputs()]
        self.signature = Signature(
            tuple(_onnx_spec(one, number) for number, one in enumerate(self._session.get_inputs()))
        )

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See :class:`~.source.Source`."""
        feeds = {one.name: array for one, array in zip(self.signature.inputs, inputs)}
        return [np.asarray(result) for result in self._session.run(None, feeds)]

    def ways(self, signature: Signature) -> Sequence[str]:
        """There is none: it is a file for another runtime."""
        return ()

    def capture(self, signature: Signature, examples: Sequence[np.ndarray], way: str) -> Captured:
        """Always refuses."""
        raise CaptureRefused("an ONNX file is not captured")


def _onnx_spec(one: Any, number: int) -> TensorSpec:
    """Name, dtype and sizes of one input; sizes without a name get the names that others get."""
    dtype = _ONNX_DTYPES.get(one.type, one.type.replace("tensor(", "").rstrip(")"))
    if dtype not in DTYPES:
        raise ExportError(f"input '{one.name}' is a {one.type}, which is not a tensor of numbers")
    dims = [
        size if isinstance(size, (int, str)) else ("batch" if axis == 0 else f"d{number}_{axis}")
        for axis, size in enumerate(one.shape)
    ]
    return TensorSpec(one.name, tuple(dims), dtype)


class BundleFile:
    """A bundle, loaded as its user loads it."""

    def __init__(self, path: str) -> None:
        """Raises BundleError where it is no whole bundle."""
        from .loaded import load

        self._model = load(path)
        self.label, self.warnings = path, list[str]()
        self.output_names = self._model.output_names
        self.signature = Signature(
            tuple(
                TensorSpec(one["name"], tuple(one["dims"]), one["dtype"])
                for one in self._model.inputs
            )
        )

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See :class:`~.source.Source`."""
        tensors = [paddle.to_tensor(array) for array in inputs]
        return [tensor.numpy() for tensor in self._model.outputs(tensors)]

    def ways(self, signature: Signature) -> Sequence[str]:
        """There is none: a bundle is a result."""
        return ()

    def capture(self, signature: Signature, examples: Sequence[np.ndarray], way: str) -> Captured:
        """Always refuses."""
        raise CaptureRefused("a bundle is not captured")


def open_artefact(path: str, threads: int) -> OnnxFile | BundleFile:
    """The file at ``path`` as a source."""
    if path.endswith(BUNDLE_FILES):
        return BundleFile(path)
    return OnnxFile(path, threads)
