"""For all tests."""

import os
import sys

import pytest

# What the user's cache holds must not decide what a test sees, and no test may write to it.  Set
# before the package is imported, and for child processes; tests of the cache give it a folder.
os.environ["PFB_CACHE"] = "0"


@pytest.fixture(autouse=True, scope="module")
def traces_are_allowed():
    """Tests of engines, passes and graphs trace without the plugin, which another module of tests
    may have taken out."""
    lock = sys.modules.get("paddle_fluid_boost.capture.lock")
    if lock is not None:
        lock.STATIC_LOCK.open()
