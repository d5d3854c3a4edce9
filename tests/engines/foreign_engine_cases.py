"""What the tests of the ONNX Runtime and OpenVINO engines share."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import paddle
import pytest
from paddle_inference_cases import capture, eager

from paddle_fluid_boost.engines.compare import differences
from paddle_fluid_boost.engines.onnx_runtime import OnnxRuntime
from paddle_fluid_boost.engines.openvino import OpenVino

#: (engine, the package it needs).
ENGINES = [
    pytest.param(
        make(),
        id=make.name,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(make.name) is None, reason=f"{make.name} is not installed"
        ),
    )
    for make in (OnnxRuntime, OpenVino)
]
every_engine = pytest.mark.parametrize("engine", ENGINES)


def build(engine: Any, call: Callable[..., Any], inputs: Sequence[Any], threads: int = 1) -> Any:
    """``call`` built for inputs shaped like ``inputs``."""
    return engine.build(capture(call, *inputs), {"threads": threads})


def assert_eager(
    executable: Any, call: Callable[..., Any], inputs: Sequence[Any], rtol: float = 1e-4
) -> None:
    """The executable's outputs for ``inputs`` are eager's."""
    got = executable(list(inputs))
    assert differences(got, eager(call, *inputs), rtol) is None
    assert all(tensor.stop_gradient for tensor in got)


def floats(*shape: int, seed: int = 0) -> Any:
    """Normal numbers, the same every time."""
    values = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return paddle.to_tensor(values)


def integers(*shape: int, below: int = 10, dtype: str = "int64") -> Any:
    """Integers from 0 on, the same every time."""
    return paddle.to_tensor(np.random.default_rng(0).integers(0, below, shape).astype(dtype))
