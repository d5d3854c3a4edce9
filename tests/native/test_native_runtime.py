"""What the engine sets for the process when it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
from paddle_fluid_boost.engines.native import runtime
print(runtime.module().primitive_cache_capacity())
"""


@pytest.mark.parametrize(("given", "expected"), [(None, "128"), ("77", "77"), ("2000", "2000")])
def test_spare_primitives_are_bounded_unless_the_user_says_how_many(given, expected):
    environment = {k: v for k, v in os.environ.items() if "PRIMITIVE_CACHE" not in k}
    if given is not None:
        environment["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = given
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == expected, done.stderr
