"""OpenVINO as an engine: a compiled model in this process, made from the optimised graph.

Checked with OpenVINO 2026.4.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..ir.graph import Graph
from .foreign import (
    ForeignExecutable,
    array_over,
    bytes_of,
    checked_threads,
    optimised_graph,
    thread_settings,
    told,
)
from .onnx_model import convert

_HOW = "pip install 'paddle-fluid-boost[openvino]'"


class OpenVino:
    """Compiles models for the CPU.  Settings: ``threads`` (int, at least 1)."""

    name = "openvino"

    def unavailable(self) -> str | None:
        """Why this engine cannot be used on this machine, or None when it can."""
        try:
            runtime = importlib.import_module("openvino")
        except ImportError as error:
            return f"openvino cannot be imported ({error}): {_HOW}"
        if "CPU" not in runtime.Core().available_devices:
            return "OpenVINO finds no CPU that it supports"
        return None

    def candidates(self, captured: CapturedProgram) -> list[dict[str, Any]]:
        """The settings worth trying for this program, most promising first."""
        return thread_settings()

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> RequestExecutable:
        """Compiles a model.

        Raises:
            EngineError: the settings are wrong, openvino is missing, a shape is open or empty, an
                op has no form in ONNX, or OpenVINO refuses the model.
        """
        threads = checked_threads(self.name, settings)
        reason = self.unavailable()
        if reason is not None:
            raise EngineError(f"{self.name}: {reason}")
        graph, notes = optimised_graph(captured)
        model = convert(graph, beside=False)
        runtime = importlib.import_module("openvino")
        choices = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        core = runtime.Core()
        try:
            compiled = core.compile_model(core.read_model(model.text), "CPU", choices)
        except RuntimeError as error:
            raise EngineError(f"openvino refuses the model: {told(error)}") from error
        about = f"OpenVINO {runtime.__version__}, {threads} thread(s)"
        notes = [about, f"{model.node_count} operators", *notes]
        return RequestExecutable(runtime, compiled, graph, model.inputs, notes)


class RequestExecutable(ForeignExecutable):
    """A compiled model.  Safe to call from several threads at once: each call takes a request that
    no other is using."""

    def __init__(
        self, runtime: Any, compiled: Any, graph: Graph, inputs: Sequence[str], notes: Sequence[str]
    ) -> None:
        idle: list[Any] = []
        # It has threads of its own even when it is to compute with one.
        super().__init__(
            "openvino",
            (compiled, idle),
            graph,
            has_threads=True,
            nbytes=bytes_of(graph),
            notes=notes,
        )
        self._tensor = runtime.Tensor
        # Inputs that nothing reads are not in the model any more.
        port_of = {name: port for port in compiled.inputs for name in port.get_names()}
        self._feeds = [
            (number, port_of[name], value.dtype)
            for number, (name, value) in enumerate(zip(inputs, graph.inputs))
            if name in port_of
        ]
        self._results = [(port, v.dtype) for port, v in zip(compiled.outputs, graph.outputs)]

    def _run(self, held: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        compiled, idle = held
        try:
            request = idle.pop()
        except IndexError:
            request = compiled.create_infer_request()
        for number, port, dtype in self._feeds:
            request.set_tensor(port, self._shared(inputs[number], dtype))
        for tensor, (port, dtype) in zip(outputs, self._results):
            request.set_tensor(port, self._shared(tensor, dtype))
        try:
            request.infer()
        except RuntimeError as error:
            raise EngineError(f"openvino: {told(error)}") from error
        idle.append(request)

    def _shared(self, tensor: Any, dtype: str) -> Any:
        return self._tensor(array_over(tensor, dtype), shared_memory=True)
