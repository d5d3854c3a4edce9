"""Which targets this installation can export to, and how to get the others."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """needs: packages by distribution name; how: how to get them."""

    name: str
    needs: tuple[str, ...]
    how: str

    def missing(self) -> list[str]:
        """The packages of ``needs`` that are not installed."""
        return [package for package in self.needs if version(package) is None]


_ONNX = ("paddle2onnx", "onnx", "onnxruntime")
_HOW_ONNX = "pip install 'paddle-fluid-boost[export]' (paddle2onnx has no wheel for Python 3.13)"

TARGETS: tuple[Target, ...] = (
    Target("paddle", (), ""),
    Target(
        "onnx",
        _ONNX,
        _HOW_ONNX,
    ),
    Target("bundle", (), ""),
    Target("mobile", (*_ONNX,), _HOW_ONNX),
    Target("mnn", (*_ONNX, "MNN"), "pip install 'paddle-fluid-boost[export]' MNN"),
    Target(
        "ncnn",
        (*_ONNX, "ncnn", "pnnx"),
        "pip install 'paddle-fluid-boost[export]' ncnn, and pip install --no-deps pnnx "
        "(with its dependencies it would bring PyTorch)",
    ),
)
_VERSIONS = (
    "paddle-fluid-boost",
    "paddlepaddle",
    "paddlepaddle-gpu",
    "numpy",
    "paddle2onnx",
    "onnx",
    "onnxruntime",
    "onnxslim",
    "MNN",
    "ncnn",
    "pnnx",
)


def version(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """What takes part in an export, as far as it is installed."""
    found = {name: version(name) for name in _VERSIONS}
    return {"python": platform.python_version(), **{n: v for n, v in found.items() if v}}


def by_name(name: str) -> Target:
    """The target called ``name``; KeyError for another."""
    return {one.name: one for one in TARGETS}[name]
