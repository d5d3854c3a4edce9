"""The native CPU engine: a graph as a plan of oneDNN primitives; see docs/native.md."""

from __future__ import annotations

from .engine import NativeEngine, NativeExecutable

__all__ = ["NativeEngine", "NativeExecutable"]
