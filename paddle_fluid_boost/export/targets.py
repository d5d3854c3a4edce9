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


TARGETS: tuple[Target, ...] = (
    Target("paddle", (), ""),
    Target(
        "onnx",
        ("paddle2onnx", "onnx", "onnxruntime"),
        "pip install 'paddle-fluid-boost[export]' (paddle2onnx has no wheel for Python 3.13)",
    ),
    Target("bundle", (), ""),
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
