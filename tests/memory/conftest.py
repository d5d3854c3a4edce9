"""Skips the tests of the block pool where its library was not built."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle_fluid_boost.memory import library

_MISSING = library.missing()
_NEED_THE_POOL = ("test_block_pool.py", "test_paddle_tensors.py", "test_zero_copy.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _MISSING is None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.path.name in _NEED_THE_POOL:
            item.add_marker(pytest.mark.skip(reason=_MISSING))
