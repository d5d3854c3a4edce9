"""The block pool from Python: blocks of memory that are handed out again instead of freed.

The pool itself is C++ (``csrc/memory``); docs/memory.md describes it.  Its users here are plan
arenas and frame buffers; Paddle's own tensors come through ``memory/paddle_tensors.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from ..errors import PoolError
from . import library

_HUGE_PAGES = ("none", "transparent", "explicit")
_EXHAUSTED = ("error", "system")
_EVERYTHING = 2**64 - 1
_FOREIGN, _DOUBLE_FREE, _OVERRUN = 1, 2, 3
_REPORT_BYTES = 512


@dataclass(frozen=True)
class PoolStatistics:
    """What a pool has done and holds; sizes in bytes.

    requested: asked for and not given back yet; block_bytes: the blocks that serve it.
    held: taken from the system; released: given back to it so far.
    live: blocks alive, those of the system's allocator (system_live) not counted.
    high_water, high_water_held: the most block_bytes (to 256 KiB per thread) and held ever were.
    cache_hits, pool_hits, grown: allocations served by the thread's cache, by memory the pool
        held, and by memory taken from the system for them; exhausted: not served.
    cached_bytes: free blocks in thread caches.
    heap_*: the heap of large blocks: held, free in it, and its longest free run; slab_held: slabs.
    """

    requested: int
    block_bytes: int
    held: int
    live: int
    high_water: int
    high_water_held: int
    allocations: int
    frees: int
    cache_hits: int
    pool_hits: int
    grown: int
    exhausted: int
    system_live: int
    cached_bytes: int
    heap_held: int
    heap_free: int
    heap_largest: int
    slab_held: int
    released: int
    faults: int
    huge_refused: int
    address_space: int

    @property
    def internal_fragmentation(self) -> float:
        """Share of the blocks' bytes that nobody asked for."""
        return 1 - self.requested / self.block_bytes if self.block_bytes else 0.0

    @property
    def external_fragmentation(self) -> float:
        """Share of the heap's free bytes that lie outside of its longest free run."""
        return max(0.0, 1 - self.heap_largest / self.heap_free) if self.heap_free else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the allocations that took nothing from the system."""
        return (self.cache_hits + self.pool_hits) / self.allocations if self.allocations else 0.0


class Block:
    """Memory of a pool, given back when freed or when nothing refers to it any more.

    address, nbytes: where it is, and how much was asked for.
    """

    __slots__ = ("__weakref__", "_free", "_pool", "address", "nbytes")

    def __init__(self, pool: BlockPool, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self._pool: BlockPool | None = pool
        self._free = pool._library.pfb_pool_free

    def free(self) -> None:
        """Gives the block back; whoever still uses its memory must not.

        Raises:
            PoolError: it was freed before, or (debug pools) something wrote outside of it.
        """
        pool, self._pool = self._pool, None
        if pool is None:
            raise PoolError(f"a block of {self.nbytes} bytes was freed twice")
        pool._taken_back(self._free(pool._handle, self.address))

    def buffer(self) -> Any:
        """The memory as a ctypes array of bytes, which keeps the block alive.

        ``numpy.frombuffer`` makes an array of it, and that keeps the buffer alive.
        """
        if self._pool is None:
            raise PoolError(f"a block of {self.nbytes} bytes was used after it was freed")
        raw = (ctypes.c_char * self.nbytes).from_address(self.address)
        raw._block = self  # type: ignore[attr-defined]
        return raw

    def __del__(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._free(pool._handle, self.address)  # a fault is in the pool's reports


class BlockPool:
    """A pool of memory in blocks of fixed size classes, and a coalescing heap above 32 KiB.

    Args:
        limit: most bytes held from the system; 0 for none.
        exhausted: what an allocation does that the pool cannot serve: ``"error"`` raises
            MemoryError, ``"system"`` takes it from the system's allocator.
        retain: free bytes kept for large blocks; the rest goes back at once.  None keeps all.
        decay_s: when half as much again (and 16 MiB) is held for large blocks as was in use at
            once within the last one to two such periods, the excess goes back; a period has at
            least 512 frees of large blocks.  0 keeps it.
        huge_pages: ``"none"``, ``"transparent"``, or ``"explicit"`` (from the reserve of the
            machine, ordinary pages where that is short).
        thread_caches: keep free small blocks per thread.
        debug: guard bytes around every block, poison in free ones, a quarantine before reuse.
        address_space: bytes of addresses reserved for large blocks; 0 for the machine's memory.

    Raises:
        ValueError: an argument is out of its range.
        PoolError: the library was not built, or there are no addresses to be had.

    Safe to use from several threads and across ``fork``.  Blocks outlive the pool: their memory
    stays valid after :meth:`close` until each is freed.
    """

    def __init__(
        self,
        *,
        limit: int = 0,
        exhausted: str = "error",
        retain: int | None = None,
        decay_s: float = 0.0,
        huge_pages: str = "none",
        thread_caches: bool = True,
        debug: bool = False,
        address_space: int = 0,
    ) -> None:
        for name, value in (("limit", limit), ("retain", retain or 0), ("decay_s", decay_s)):
            if value < 0:
                raise ValueError(f"BlockPool: argument '{name}' must not be negative, got {value}")
        options = library.PoolOptions(
            limit=limit,
            address_space=address_space,
            retain=_EVERYTHING if retain is None else retain,
            decay_ms=int(decay_s * 1000),
            huge_pages=_choice("huge_pages", huge_pages, _HUGE_PAGES),
            exhaustion=_choice("exhausted", exhausted, _EXHAUSTED),
            thread_caches=thread_caches,
            debug=debug,
        )
        self._library = library.load()
        self._handle = self._library.pfb_pool_create(ctypes.byref(options))
        if not self._handle:
            raise PoolError("no range of addresses can be reserved for a block pool")
        self.limit, self.debug = limit, debug
        self._closing = weakref.finalize(self, self._library.pfb_pool_close, self._handle)
        # At the end of the process the system takes everything back, and tensors may be alive.
        self._closing.atexit = False

    def allocate(self, nbytes: int, alignment: int = 64) -> Block:
        """A block of ``nbytes`` bytes of undefined content.

        Args:
            alignment: a power of two, at most 4096; a multiple of 64 is given in any case.

        Raises:
            ValueError: an argument is out of its range.
            MemoryError: the pool is exhausted, and told to raise then.
            PoolError: the pool is closed.
        """
        return Block(self, self.take(nbytes, alignment), nbytes)

    def take(self, nbytes: int, alignment: int = 64) -> int:
        """As :meth:`allocate`, but the bare address, to be given back by :meth:`give`."""
        handle = self._open()
        if nbytes < 0:
            raise ValueError(f"BlockPool: argument 'nbytes' must not be negative, got {nbytes}")
        if not 0 < alignment <= 4096 or alignment & (alignment - 1):
            raise ValueError(
                f"BlockPool: argument 'alignment' must be a power of two up to 4096, "
                f"got {alignment}"
            )
        address = self._library.pfb_pool_allocate(handle, nbytes, alignment)
        if not address:
            held = self.statistics().held
            raise MemoryError(
                f"block pool: no room for {nbytes} bytes; it holds {held} of at most "
                f"{self.limit or 'unlimited'} bytes"
            )
        return int(address)

    def give(self, address: int) -> None:
        """Takes back what :meth:`take` gave.

        Raises:
            PoolError: the address is no block, the block is free already, or (debug pools)
                something wrote outside of it; the message names its owner's tag.
        """
        self._taken_back(self._library.pfb_pool_free(self._open(), address))

    def owns(self, address: int) -> bool:
        """Whether an address lies within the pool."""
        return bool(self._library.pfb_pool_owns(self._open(), address))

    def reserve(self, nbytes: int, count: int = 1) -> int:
        """Takes memory for ``count`` blocks of ``nbytes`` bytes from the system ahead of use.

        Returns:
            How many blocks the limit allowed.
        """
        return int(self._library.pfb_pool_reserve(self._open(), nbytes, count))

    def trim(self) -> int:
        """Gives all free memory back to the system; returns its bytes."""
        return int(self._library.pfb_pool_trim(self._open()))

    def functions(self, tag: str) -> tuple[int, int, int, int]:
        """What C++ needs to use the pool: its address, those of ``pfb_pool_allocate_for`` and
        ``pfb_pool_free``, and the number of ``tag``.  The caller keeps the pool open."""
        allocate, free = (
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (self._library.pfb_pool_allocate_for, self._library.pfb_pool_free)
        )
        return self._open(), allocate, free, int(self._library.pfb_pool_tag(tag.encode()))

    def statistics(self) -> PoolStatistics:
        """Figures of this moment."""
        numbers = library.PoolNumbers()
        self._library.pfb_pool_get_statistics(self._open(), ctypes.byref(numbers))
        return PoolStatistics(**{f.name: getattr(numbers, f.name) for f in fields(PoolStatistics)})

    def check(self) -> int:
        """Examines the guards of all live blocks and the poison of free ones (debug pools).

        Returns:
            The number of faults found; :meth:`reports` tells which.
        """
        return int(self._library.pfb_pool_check(self._open()))

    def reports(self) -> list[str]:
        """The reports of faults, oldest first; the newest 64 are kept."""
        found: list[str] = []
        text = ctypes.create_string_buffer(_REPORT_BYTES)
        handle = self._open()
        while self._library.pfb_pool_report(handle, len(found), text, _REPORT_BYTES):
            found.append(text.value.decode(errors="replace"))
        return found

    def close(self) -> None:
        """Ends the pool for new allocations; blocks stay valid until freed.  Idempotent."""
        self._closing()

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return not self._closing.alive

    def _open(self) -> Any:
        if self.closed:
            raise PoolError("the block pool is closed")
        return self._handle

    def _taken_back(self, fault: int) -> None:
        if fault == 0:
            return
        if self.closed:
            raise PoolError("a block of a closed pool was damaged; see standard error")
        raise PoolError(f"block pool: {self.reports()[-1]}")


@contextlib.contextmanager
def tagged(name: str) -> Iterator[None]:
    """Allocations of this thread inside the block are reported as for ``name`` (debug pools).

    Names are never forgotten: use few.
    """
    functions = library.load()
    before = functions.pfb_pool_set_tag(functions.pfb_pool_tag(name.encode()))
    try:
        yield
    finally:
        functions.pfb_pool_set_tag(before)


def _choice(name: str, value: str, known: tuple[str, ...]) -> int:
    if value not in known:
        raise ValueError(
            f"BlockPool: argument '{name}' must be one of {', '.join(known)}, got {value!r}"
        )
    return known.index(value)
