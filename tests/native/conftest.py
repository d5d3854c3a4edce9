"""Makes the helpers importable and skips everything where the extension was not built."""

from __future__ import annotations

import sys
from pathlib import Path

import paddle
import pytest

from paddle_fluid_boost.engines.native import NativeEngine

sys.path.insert(0, str(Path(__file__).parent))

_MISSING = NativeEngine().unavailable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _MISSING is None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "without_extension" not in item.name:
            item.add_marker(pytest.mark.skip(reason=_MISSING))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    paddle.seed(7)
