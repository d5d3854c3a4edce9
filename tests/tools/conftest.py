"""The benchmarks are no package: their modules are found by a path."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "tools" / "benchmarks"


@pytest.fixture
def bench_module(monkeypatch):
    """Imports a module of tools/benchmarks, and forgets it afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    loaded = []

    def load(name):
        loaded.append(name)
        return importlib.import_module(name)

    yield load
    for name in loaded:
        sys.modules.pop(name, None)
