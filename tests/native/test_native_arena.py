"""Plan arenas are leased from the block pool and given back."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import subprocess
import sys

import native_models as nm
import paddle
import pytest

from paddle_fluid_boost.memory import library
from paddle_fluid_boost.memory.shared import shared_pool

pytestmark = pytest.mark.skipif(
    library.missing() is not None, reason=f"no block pool: {library.missing()}"
)


def leased() -> int:
    gc.collect()
    return shared_pool().statistics().live


def test_arena_comes_from_the_pool_and_goes_back_with_the_plan() -> None:
    x = paddle.randn([1, 3, 32, 32])
    before, requested = leased(), shared_pool().statistics().requested
    executable = nm.build(nm.calibrated(nm.UNet(), x), [x])
    for _ in range(20):
        executable([x])
    # One session of each plan (there are two where one thread may be faster) serves all calls
    # that come one by one.
    assert 1 <= leased() - before <= 2
    assert shared_pool().statistics().requested - requested >= executable.placement.size
    executable.close()
    assert leased() == before


def test_concurrent_calls_lease_one_arena_each() -> None:
    x = paddle.randn([1, 3, 64, 64])
    before = leased()
    executable = nm.build(nm.calibrated(nm.UNet(), x), [x])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: executable([x]), range(64)))
    assert 1 <= leased() - before <= 8  # four of each plan
    executable.close()
    assert leased() == before


PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
import paddle, native_models as nm
from paddle_fluid_boost.memory.shared import shared_pool
x = paddle.randn([1, 3, 32, 32])
ids = paddle.randint(0, 1000, [2, 17])
kept = [
    nm.check(nm.calibrated(nm.UNet(), x), x),
    nm.check(nm.calibrated(nm.Encoder(), ids), ids),
    nm.check(nm.Tagger(), paddle.randn([2, 9, 24])),
]
assert shared_pool().debug and shared_pool().statistics().live >= 1
assert shared_pool().check() == 0, shared_pool().reports()
kept.clear()
assert shared_pool().check() == 0, shared_pool().reports()
"""


def test_no_step_writes_outside_of_its_arena() -> None:
    """Under the guards of a debug pool, whose fresh memory is no zeros either."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, os.path.dirname(__file__)],
        env={**os.environ, "PFB_POOL_DEBUG": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
