"""A cache folder of its own for every test."""

from __future__ import annotations

import pytest

from paddle_fluid_boost.options import override


@pytest.fixture
def folder(tmp_path):
    """The folder of the cache, switched on; not made yet."""
    with override(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
