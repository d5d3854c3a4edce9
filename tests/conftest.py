"""For all tests."""

import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def traces_are_allowed():
    """Tests of engines, passes and graphs trace without the plugin, which another module of tests
    may have taken out."""
    lock = sys.modules.get("paddle_fluid_boost.capture.lock")
    if lock is not None:
        lock.STATIC_LOCK.open()
