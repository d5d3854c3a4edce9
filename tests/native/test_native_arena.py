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
    # One arena serves all calls that come one by one, whatever plan they run.
    assert leased() - before == 1
    assert shared_pool().statistics().requested - requested >= executable.placement.size
    executable.close()
    assert leased() == before


def test_concurrent_calls_lease_one_arena_each() -> None:
    x = paddle.randn([1, 3, 64, 64])
    before = leased()
    executable = nm.build(nm.calibrated(nm.UNet(), x), [x])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: executable([x]), range(64)))
    assert 1 <= leased() - before <= 4
    executable.close()
    assert leased() == before


def test_arenas_change_hands_between_threads_and_plans() -> None:
    """Calls of plans that need arenas of three sizes at once, while others of them are closed."""
    before = leased()
    net = nm.calibrated(nm.UNet(), paddle.randn([1, 3, 32, 32]))
    inputs = [paddle.randn([1, 3, side, side]) for side in (32, 48, 64)]
    lasting = [nm.build(net, [x]) for x in inputs]
    passing = [nm.build(net, [x]) for x in inputs * 2]
    wanted = [plan([x]) for plan, x in zip(lasting, inputs)]

    def serve(start: int) -> None:
        for call in range(start, start + 60):
            which = call % len(lasting)
            nm.assert_close(lasting[which]([inputs[which]]), wanted[which])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        served = [pool.submit(serve, start) for start in range(4)]
        for plan, x in zip(passing, inputs * 2):
            plan([x])
            plan.close()
        for future in served:
            future.result()
    # The main thread called as well.
    assert leased() - before <= 5
    for plan in lasting:
        plan.close()
    assert leased() == before


def test_plans_share_arenas() -> None:
    """Small, large, small again: each right in an arena that another one has used."""
    before = leased()
    nets = [nm.calibrated(nm.UNet(), paddle.randn([1, 3, 32, 32])) for _ in range(3)]
    inputs = [paddle.randn([1, 3, side, side]) for side in (32, 96, 64)]
    kept = [nm.check(net, x) for net, x in zip(nets, inputs)]
    for executable, net, x in [*zip(kept, nets, inputs)] * 2:
        nm.assert_close(executable([x]), nm.eager(net, [x]))
    assert leased() - before == 1
    kept[1].close()  # the largest
    nm.assert_close(kept[0]([inputs[0]]), nm.eager(nets[0], [inputs[0]]))
    for executable in kept:
        executable.close()
    del kept, executable
    assert leased() == before


PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
import paddle, native_models as nm
from paddle_fluid_boost.memory.shared import shared_pool
x = paddle.randn([1, 3, 32, 32])
ids = paddle.randint(0, 1000, [2, 17])
for make in (
    lambda: nm.check(nm.calibrated(nm.UNet(), x), x),
    lambda: nm.check(nm.calibrated(nm.Encoder(), ids), ids),
    lambda: nm.check(nm.Tagger(), paddle.randn([2, 9, 24])),
):
    executable = make()
    assert shared_pool().debug and shared_pool().statistics().live == 1
    assert shared_pool().check() == 0, shared_pool().reports()
    executable.close()  # and its arena goes: the next one has just the size it needs
    del executable
    assert shared_pool().statistics().live == 0
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
