"""Who wants to know when a layer or a tensor was touched.

``hooks`` patches the ways of changing layers and tensors to call :func:`touch`; compiled versions
register the objects they depend on.  Objects are known by ``id`` and held weakly, so that watching
keeps nothing alive.  Tensors are known by the memory they occupy too: ``w.detach()``, ``w.data``
and ``w[0]`` are other objects than ``w``, and writing to them writes to it.
"""

from __future__ import annotations

import itertools
import math
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from ..capture import _paddle as pd


class Watcher(Protocol):
    """What is told: must be cheap and must not raise."""

    def touched(self, key: int) -> None:
        """``key`` is the ``id`` of the watched object that was touched."""


class _Extents(NamedTuple):
    """The memory of the watched tensors, ordered by its start; all tuples run in parallel.

    change: the number of the last change of ``_extents`` that is in here.
    reach: the largest end among this and all earlier extents, which may overlap.
    """

    change: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    reach: tuple[int, ...]
    keys: tuple[int, ...]


# These tables change under other threads and at any garbage collection: they are only ever
# iterated over as a copy, which is made in one step.
_watchers: dict[int, dict[int, weakref.ref[Watcher]]] = {}
_alive: dict[int, weakref.ref[Any]] = {}
_extents: dict[int, tuple[int, int]] = {}
_changes = itertools.count(1)
_change = 0
_ordered = _Extents(0, (), (), (), ())


def watch(target: Any, watcher: Watcher) -> None:
    """``watcher.touched(id(target))`` is called whenever ``target`` is touched, while both live.

    Call it again when a tensor may have got other memory.
    """
    global _change
    key = id(target)
    if key not in _alive:
        # Bound early: at the exit of the interpreter the names of this module may be gone.
        def forget(
            _: Any, watchers: Any = _watchers, alive: Any = _alive, extents: Any = _extents
        ) -> None:
            watchers.pop(key, None)
            alive.pop(key, None)
            extents.pop(key, None)

        _watchers[key] = {}
        _alive[key] = weakref.ref(target, forget)
    told, number = _watchers[key], id(watcher)
    if number not in told:
        told[number] = weakref.ref(watcher, lambda _: told.pop(number, None))
    extent = memory_extent(target) if isinstance(target, pd.EagerTensor) else None
    if extent is not None and _extents.get(key) != extent:
        _extents[key] = extent
        _change = next(_changes)


def touch(target: Any) -> None:
    """Tells everybody who watches ``target`` or a tensor that shares memory with it."""
    if not _watchers:
        return
    _tell(id(target))
    if isinstance(target, pd.EagerTensor):
        extent = memory_extent(target)
        if extent is not None:
            for key in _overlapping(*extent):
                if key != id(target):
                    _tell(key)


def touch_everything() -> None:
    """Something changed and nobody can say what: tells all watchers."""
    for key in _watchers.copy():
        _tell(key)


def watched_count() -> int:
    """How many objects are watched now, for tests and ``stats``."""
    return len(_watchers)


def memory_extent(tensor: Any) -> tuple[int, int] | None:
    """(first address, address after the last) of a dense tensor's elements; None without any."""
    if not tensor._is_initialized() or not tensor.is_dense():
        return None
    shape = tensor.shape
    if 0 in shape:
        return None
    if tensor.is_contiguous():
        count = math.prod(shape)
    else:
        steps = zip(shape, tensor.strides)
        count = 1 + sum((size - 1) * abs(stride) for size, stride in steps)
    start = tensor.data_ptr()
    return start, start + count * tensor.element_size()


def _tell(key: int) -> None:
    told = _watchers.get(key)
    if told:
        for reference in told.copy().values():
            watcher = reference()
            if watcher is not None:
                watcher.touched(key)


def _overlapping(start: int, end: int) -> Iterator[int]:
    """Keys of the watched tensors with memory in [start, end)."""
    ordered = _ordered if _ordered.change == _change else _order()
    index = bisect_left(ordered.starts, end) - 1
    while index >= 0 and ordered.reach[index] > start:
        if ordered.ends[index] > start:
            yield ordered.keys[index]
        index -= 1


def _order() -> _Extents:
    global _ordered
    change = _change  # before the copy: what comes later calls for another sort
    rows = sorted((start, end, key) for key, (start, end) in _extents.copy().items())
    reach, furthest = [], 0
    for _, end, _ in rows:
        furthest = max(furthest, end)
        reach.append(furthest)
    starts, ends, keys = zip(*rows) if rows else ((), (), ())
    _ordered = _Extents(change, starts, ends, tuple(reach), keys)
    return _ordered
