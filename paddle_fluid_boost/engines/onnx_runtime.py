"""ONNX Runtime as an engine: a session in this process, made from the optimised graph.

Checked with ONNX Runtime 1.19 (Python 3.9) and 1.32.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..ir.graph import Graph
from .foreign import (
    ForeignExecutable,
    bytes_of,
    checked_threads,
    optimised_graph,
    thread_settings,
    told,
)
from .onnx_model import OnnxModel, convert

_HOW = "pip install 'paddle-fluid-boost[onnxruntime]'"
_OLDEST = (1, 17)
_CPU = "CPUExecutionProvider"


class OnnxRuntime:
    """Builds sessions.  Settings: ``threads`` (int, at least 1)."""

    name = "onnxruntime"

    def unavailable(self) -> str | None:
        """Why this engine cannot be used on this machine, or None when it can."""
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError as error:
            return f"onnxruntime cannot be imported ({error}): {_HOW}"
        version = tuple(int(part) for part in runtime.__version__.split(".")[:2])
        if version < _OLDEST:
            return f"onnxruntime {runtime.__version__} is older than 1.17: {_HOW}"
        if _CPU not in runtime.get_available_providers():
            return f"this build of onnxruntime has no {_CPU}"
        return None

    def candidates(self, captured: CapturedProgram) -> list[dict[str, Any]]:
        """The settings worth trying for this program, most promising first."""
        return thread_settings()

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> SessionExecutable:
        """Builds a session.

        Raises:
            EngineError: the settings are wrong, onnxruntime is missing, a shape is open or empty,
                an op has no form in ONNX, or the runtime refuses the model.
        """
        threads = checked_threads(self.name, settings)
        reason = self.unavailable()
        if reason is not None:
            raise EngineError(f"{self.name}: {reason}")
        graph, notes = optimised_graph(captured)
        model = convert(graph)
        runtime = importlib.import_module("onnxruntime")
        session = _session(runtime, model, threads)
        about = f"ONNX Runtime {runtime.__version__}, {threads} thread(s)"
        return SessionExecutable(
            session, model, graph, threads, [about, f"{model.node_count} operators", *notes]
        )


def _session(runtime: Any, model: OnnxModel, threads: int) -> Any:
    choices = runtime.SessionOptions()
    choices.intra_op_num_threads = threads
    choices.inter_op_num_threads = 1
    choices.log_severity_level = 4  # what is wrong comes as an exception
    if model.large:
        values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in model.large.values()]
        choices.add_external_initializers(list(model.large), values)
    try:
        return runtime.InferenceSession(model.text, choices, providers=[_CPU])
    except Exception as error:  # its exceptions have no base class of their own
        raise EngineError(f"onnxruntime refuses the model: {told(error)}") from error


class SessionExecutable(ForeignExecutable):
    """A session.  Safe to call from several threads at once."""

    def __init__(
        self, session: Any, model: OnnxModel, graph: Graph, threads: int, notes: Sequence[str]
    ) -> None:
        # The session may go on reading the large constants where they lie.
        held = (session, model.large)
        super().__init__(
            "onnxruntime",
            held,
            graph,
            has_threads=threads > 1,
            nbytes=bytes_of(graph),
            notes=notes,
        )
        self._feeds = _forms(model.inputs, graph.inputs)
        self._results = _forms(model.outputs, graph.outputs)

    def _run(self, held: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        session = held[0]
        binding = session.io_binding()
        for tensor, (name, dtype, shape) in zip(inputs, self._feeds):
            binding.bind_input(name, "cpu", 0, dtype, shape, tensor.data_ptr())
        for tensor, (name, dtype, shape) in zip(outputs, self._results):
            binding.bind_output(name, "cpu", 0, dtype, shape, tensor.data_ptr())
        try:
            session.run_with_iobinding(binding)
        except Exception as error:  # its exceptions have no base class of their own
            raise EngineError(f"onnxruntime: {told(error)}") from error


def _forms(names: Sequence[str], values: Sequence[Any]) -> list[tuple[str, Any, tuple[int, ...]]]:
    return [(name, np.dtype(v.dtype).type, v.shape) for name, v in zip(names, values)]
