"""The block pool: placement, limits, statistics, faults, threads, forks, and the end of things."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from paddle_fluid_boost import PoolError
from paddle_fluid_boost.memory.pool import Block, BlockPool, tagged

MIB = 1 << 20
SPACE = 256 * MIB


def make(**arguments) -> BlockPool:
    return BlockPool(**{"address_space": SPACE, **arguments})


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def array_on(block: Block) -> np.ndarray:
    return np.frombuffer(block.buffer(), np.uint8)


# -- placement ------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_live_blocks_never_overlap_and_keep_what_was_written(seed, debug) -> None:
    pool, rng = make(debug=debug), random.Random(seed)
    alive: dict[int, tuple[Block, int]] = {}
    for step in range(3000):
        if alive and rng.random() < 0.48:
            block, mark = alive.pop(rng.choice(list(alive)))
            data = array_on(block)
            assert (data == mark).all()
            del data
            block.free()
            continue
        size = rng.choice([rng.randrange(1, 300), rng.randrange(1, 40_000), rng.randrange(1, MIB)])
        alignment = 1 << rng.randrange(13)
        block = pool.allocate(size, alignment)
        assert block.address % max(alignment, 64) == 0
        array_on(block)[:] = step % 251
        alive[step] = (block, step % 251)
    ranges = sorted((b.address, b.address + b.nbytes) for b, _ in alive.values())
    assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:]))
    now = pool.statistics()
    assert now.live == len(alive)
    assert now.requested == sum(block.nbytes for block, _ in alive.values())
    assert pool.check() == 0


@pytest.mark.parametrize("size", [1, 64, 65, 256, 257, 5000, 32768])
def test_rounding_of_small_blocks_is_bounded(size) -> None:
    pool = make()
    blocks = [pool.allocate(size) for _ in range(10)]
    now = pool.statistics()
    assert now.requested == 10 * size
    assert size <= now.block_bytes / len(blocks) <= max(64, size + 63, size * 1.25)


def test_large_blocks_lose_less_than_a_page_and_coalesce() -> None:
    pool = make()
    blocks = [pool.allocate(100_000) for _ in range(64)]
    now = pool.statistics()
    assert now.block_bytes - now.requested < 64 * 4096
    order = list(range(64))
    random.Random(0).shuffle(order)
    for index in order:
        blocks[index].free()
    now = pool.statistics()
    assert now.heap_free == now.heap_held == now.heap_largest
    assert now.external_fragmentation == 0.0


def test_freed_memory_is_used_again() -> None:
    pool = make()
    for _ in range(50):
        for block in [pool.allocate(size) for size in (100, 10_000, 300_000, 5 * MIB)]:
            block.free()
    now = pool.statistics()
    assert now.grown <= 4
    assert now.allocations == now.frees == 200
    assert now.hit_rate >= 0.98
    assert now.held < 8 * MIB


def test_random_sizes_do_not_make_the_pool_grow() -> None:
    """Large blocks of varying size, a steady number alive: held stays near what is needed."""
    pool, rng = make(), random.Random(4)
    alive = [pool.allocate(rng.randrange(40_000, 2 * MIB)) for _ in range(40)]
    levels = []
    for _ in range(40):
        for _ in range(50):
            alive[rng.randrange(40)] = pool.allocate(rng.randrange(40_000, 2 * MIB))
        levels.append(pool.statistics().held)
    assert max(levels) <= 1.5 * pool.statistics().high_water
    assert max(levels[20:]) <= 1.1 * max(levels[5:20])


# -- limits and giving back -----------------------------------------------------------------------


def test_exhaustion_is_a_memory_error_that_names_the_sizes() -> None:
    pool = make(limit=8 * MIB)
    kept = [pool.allocate(MIB) for _ in range(7)]
    with pytest.raises(MemoryError, match=r"no room for 3145728 bytes; it holds \d+ of at most"):
        pool.allocate(3 * MIB)
    assert pool.statistics().exhausted == 1
    kept.pop().free()
    kept.pop().free()
    assert pool.allocate(2 * MIB).nbytes == 2 * MIB
    assert pool.statistics().high_water_held <= 8 * MIB


def test_free_small_blocks_make_room_for_large_ones() -> None:
    pool = make(limit=8 * MIB)
    small = [pool.allocate(1000) for _ in range(7000)]
    with pytest.raises(MemoryError):
        pool.allocate(6 * MIB)
    small.clear()
    pool.allocate(6 * MIB).free()


def test_exhaustion_can_fall_back_to_the_system() -> None:
    pool = make(limit=4 * MIB, exhausted="system")
    blocks = [pool.allocate(MIB) for _ in range(10)]
    now = pool.statistics()
    assert now.system_live >= 6 and now.live + now.system_live == 10
    outside = next(block for block in blocks if not pool.owns(block.address))
    array_on(outside)[:] = 7
    assert outside.address % 64 == 0
    blocks.clear()
    del outside
    now = pool.statistics()
    assert now.live == now.system_live == 0


def test_trim_gives_memory_back_to_the_system() -> None:
    pool = make()
    blocks = [pool.allocate(4 * MIB) for _ in range(20)] + [
        pool.allocate(4000) for _ in range(2000)
    ]
    for block in blocks:
        array_on(block)[:] = 1
    before = resident_bytes()
    blocks.clear()
    del block
    assert pool.trim() >= 80 * MIB
    assert before - resident_bytes() > 70 * MIB
    assert pool.statistics().held == 0


def test_retain_bounds_what_is_kept_free() -> None:
    pool = make(retain=2 * MIB)
    blocks = [pool.allocate(MIB) for _ in range(30)]
    blocks.clear()
    assert pool.statistics().heap_free <= 3 * MIB


def test_decay_gives_back_what_is_not_in_use_any_more() -> None:
    pool = make(decay_s=0.05)
    blocks = [pool.allocate(MIB) for _ in range(60)]
    blocks.clear()
    assert pool.statistics().heap_free >= 60 * MIB  # kept: it was in use a moment ago
    for _ in range(4):
        time.sleep(0.06)
        for _ in range(512):
            pool.allocate(MIB).free()
    assert pool.statistics().heap_free <= 2 * MIB


def test_reserve_takes_memory_ahead_of_use() -> None:
    pool = make(limit=32 * MIB)
    before = resident_bytes()
    assert pool.reserve(MIB, 16) == 16
    assert resident_bytes() - before > 15 * MIB
    held = pool.statistics().held
    blocks = [pool.allocate(MIB) for _ in range(16)]
    assert pool.statistics().held == held
    assert len(blocks) == 16
    assert pool.reserve(MIB, 1000) < 32


@pytest.mark.parametrize("huge_pages", ["transparent", "explicit"])
def test_huge_pages_or_ordinary_ones_where_there_are_none(huge_pages) -> None:
    pool = make(huge_pages=huge_pages)
    block = pool.allocate(8 * MIB)
    array_on(block)[:] = 5
    assert array_on(block).sum(dtype=np.int64) == 5 * 8 * MIB
    block.free()
    pool.trim()
    array_on(pool.allocate(8 * MIB))[:] = 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": -1}, "argument 'limit' must not be negative, got -1"),
        ({"exhausted": "panic"}, "'exhausted' must be one of error, system, got 'panic'"),
        ({"huge_pages": "big"}, "'huge_pages' must be one of none, transparent, explicit"),
    ],
)
def test_wrong_arguments_are_named(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize("alignment", [0, 3, 8192])
def test_wrong_alignment_is_named(alignment) -> None:
    with pytest.raises(ValueError, match=f"'alignment' must be a power of two.*got {alignment}"):
        make().allocate(10, alignment)


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 500_000])
@pytest.mark.parametrize("debug", [False, True])
def test_double_free_is_reported_and_harmless(size, debug) -> None:
    pool = make(debug=debug)
    with tagged("encoder"):
        address = pool.take(size)
    pool.give(address)
    with pytest.raises(PoolError, match="double free.*'encoder'" if debug else "double free"):
        pool.give(address)
    assert len({pool.take(size) for _ in range(20)}) == 20
    assert pool.statistics().faults == 1


@pytest.mark.parametrize("size", [100, 500_000])
def test_foreign_addresses_are_refused(size) -> None:
    pool = make()
    address = pool.take(size)
    for wrong in (address + 8, address + 64, 4096):
        with pytest.raises(PoolError, match="foreign address"):
            pool.give(wrong)
    pool.give(address)


@pytest.mark.parametrize("alignment", [64, 4096])
@pytest.mark.parametrize("size", [100, 4096, 500_000])
@pytest.mark.parametrize(
    ("offset", "where"), [("after", "1 bytes behind its end"), ("before", "bytes before its start")]
)
def test_debug_reports_overruns_with_the_owner(size, alignment, offset, where) -> None:
    pool = make(debug=True)
    with tagged("detector/conv1"):
        address = pool.take(size, alignment)
    ctypes.memset(address + size if offset == "after" else address - 1, 0x41, 1)
    assert pool.check() == 1
    report = pool.reports()[-1]
    assert report.startswith("overrun") and "'detector/conv1'" in report
    assert f"{size} bytes" in report and where in report
    with pytest.raises(PoolError, match="overrun"):
        pool.give(address)
    assert pool.statistics().live == 0  # it is free all the same


@pytest.mark.parametrize("size", [100, 500_000])
def test_debug_reports_writes_to_free_blocks(size) -> None:
    pool = make(debug=True)
    with tagged("frame"):
        address = pool.take(size)
    pool.give(address)
    ctypes.memset(address + size // 2, 0, 1)
    assert pool.check() == 1
    assert f"byte {size // 2} of a block of {size} bytes of 'frame'" in pool.reports()[-1]


def test_debug_poisons_free_memory_as_not_a_number() -> None:
    pool = make(debug=True)
    block = pool.allocate(4000)
    address = block.address
    array_on(block).view(np.float32)[:] = 1.0
    block.free()
    values = np.frombuffer((ctypes.c_char * 4000).from_address(address), np.float32)
    assert np.isnan(values).all()


def test_block_freed_twice_is_a_clear_error() -> None:
    block = make().allocate(10)
    block.free()
    with pytest.raises(PoolError, match="10 bytes was freed twice"):
        block.free()
    with pytest.raises(PoolError, match="used after it was freed"):
        block.buffer()


# -- lifetimes ------------------------------------------------------------------------------------


def test_arrays_keep_their_block() -> None:
    pool = make()
    array = array_on(pool.allocate(1000))
    gc.collect()
    assert pool.statistics().live == 1
    part = array[10:20]
    del array
    gc.collect()
    assert pool.statistics().live == 1
    del part
    gc.collect()
    assert pool.statistics().live == 0


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("exhausted", ["error", "system"])
def test_blocks_outlive_the_pool(debug, exhausted) -> None:
    pool = make(debug=debug, limit=4 * MIB, exhausted=exhausted)
    sizes = [100, 5000, 600_000] + [2 * MIB, 4 * MIB] * (exhausted == "system")
    arrays = [array_on(pool.allocate(size)) for size in sizes]
    for array in arrays:
        array[:] = 9
    pool.close()
    pool.close()
    with pytest.raises(PoolError, match="closed"):
        pool.allocate(10)
    assert all((array == 9).all() for array in arrays)
    del pool
    gc.collect()
    assert all((array == 9).all() for array in arrays)
    while arrays:
        arrays.pop()  # the last one ends the pool


def test_dropped_pools_give_their_memory_back() -> None:
    array_on(make().allocate(MIB))[:] = 1
    gc.collect()
    before = resident_bytes()
    for _ in range(10):
        array_on(make().allocate(20 * MIB))[:] = 1
    gc.collect()
    assert resident_bytes() - before < 30 * MIB


def test_threads_give_their_caches_back_when_they_end() -> None:
    pool = make()

    def work() -> None:
        blocks = [pool.allocate(1000) for _ in range(200)]
        blocks.clear()

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    end = time.monotonic() + 10  # join() returns a moment before the thread has ended
    while pool.statistics().cached_bytes and time.monotonic() < end:
        time.sleep(0.001)
    now = pool.statistics()
    assert now.cached_bytes == 0
    assert now.live == 0
    assert now.held <= 2 * 256 * 1024


def test_blocks_freed_by_other_threads() -> None:
    pool = make()
    handed: list[Block] = []
    produced = threading.Event()

    def produce() -> None:
        handed.extend(pool.allocate(size) for size in range(1, 3000))
        produced.set()

    def consume() -> None:
        produced.wait(30)
        for block in handed:
            block.free()

    threads = [threading.Thread(target=work) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    now = pool.statistics()
    assert (now.live, now.requested, now.allocations) == (0, 0, 2999)


PROGRAM_FORK = """
import os, sys, threading, time
from paddle_fluid_boost.memory.pool import BlockPool
pool = BlockPool(address_space=1 << 28)
stop = False
def churn():
    while not stop:
        for size in (64, 1000, 50_000, 300_000):
            pool.give(pool.take(size))
threads = [threading.Thread(target=churn) for _ in range(3)]
for thread in threads: thread.start()
for number in range(60):
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(20)
        for size in (64, 1000, 50_000, 300_000, 64):
            pool.give(pool.take(size))
        pool.trim()
        os._exit(0 if pool.statistics().faults == 0 else 3)
    status = os.waitpid(child, 0)[1]
    if status: print("child", number, "ended with", status)
stop = True
for thread in threads: thread.join()
print("live", pool.statistics().live)
"""

PROGRAM_EXIT = """
import atexit, numpy, paddle
from paddle_fluid_boost.memory.pool import BlockPool
from paddle_fluid_boost.memory.shared import shared_pool
kept = []
for pool in (BlockPool(), shared_pool(), BlockPool(debug=True)):
    kept.append(numpy.frombuffer(pool.allocate(10_000_000).buffer(), numpy.float32))
    kept.append(paddle.utils.dlpack.from_dlpack(kept[-1]))
cycle = [pool, kept]; cycle.append(cycle)
atexit.register(lambda: kept[0].fill(1))
del pool
"""


@pytest.mark.parametrize(
    ("program", "expected"), [(PROGRAM_FORK, "live 0\n"), (PROGRAM_EXIT, "")], ids=["fork", "exit"]
)
def test_in_a_process_of_its_own(program, expected) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
