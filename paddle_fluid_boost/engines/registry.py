"""The engines by name.  Each is imported when it is first asked for."""

from __future__ import annotations

import functools
import importlib

from ..hardware.advice import cpu_advice
from ..hardware.devices import CPU, is_custom, parse_device
from ..options import Options, options, split_list
from .base import Engine

#: name in ``options.engines`` -> (module, class)
_ENGINES = {
    "native": ("native.engine", "NativeEngine"),
    "paddle_inference": ("paddle_inference", "PaddleInference"),
    "onnxruntime": ("onnx_runtime", "OnnxRuntime"),
    "openvino": ("openvino", "OpenVino"),
    "custom_device": ("custom_device", "CustomDevice"),
    "gpu": ("gpu", "Gpu"),
}


def engine_names(device: str = "cpu") -> list[str]:
    """The engines for programs on ``device``, in order.

    On the CPU that of the accelerator that ``options.device`` may ask for, and those of
    ``options.engines``; on an accelerator the engine for it, unless ``options.device`` is "cpu".
    """
    where = parse_device(device)
    if where != CPU:
        return [] if options.device == "cpu" else _accelerator_engines(where.kind)
    if options.device in ("auto", "cpu"):
        return _cpu_engines()
    return [*_accelerator_engines(parse_device(options.device).kind), *_cpu_engines()]


def _accelerator_engines(kind: str) -> list[str]:
    if is_custom(kind):
        return ["custom_device"]
    return ["gpu"] if kind == "gpu" else []


def _cpu_engines() -> list[str]:
    """The engines that ``options.engines`` asks for, in order.

    Where the user left the option alone the hardware library has the order for this processor, and
    an engine that it puts before one of the option's is tried too: ONNX Runtime on ARM.
    """
    names = split_list(options.engines)
    if options.engines != Options.engines:
        return names
    order = [name for name in cpu_advice().engines if name in _ENGINES]
    ranks = [order.index(name) for name in names if name in order]
    ranked = order[: max(ranks) + 1] if ranks else []
    return [*ranked, *(name for name in names if name not in ranked)]


@functools.cache
def make_engine(name: str) -> Engine:
    """The engine of that name; engines are stateless, so one serves all."""
    module, cls = _ENGINES[name]
    return getattr(importlib.import_module(f".{module}", __package__), cls)()
