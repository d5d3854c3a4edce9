"""Makes ``differential`` importable, and leaves no patch of ours behind a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paddle_fluid_boost as pfb

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _uninstalled_afterwards() -> Iterator[None]:
    yield
    pfb.wait(60)
    pfb.uninstall()
