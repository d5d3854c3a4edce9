"""What was measured about 3x3 convolutions is kept for the next process.

To find the fastest algorithm for a convolution it is run some twenty times; for ResNet-50 that is
most of building its plan.  The winner depends on the shape, the number of threads and the machine,
and hardly on anything else: so one entry of the cache holds all of them, and a choice that is a
little off costs a little time and changes nothing else.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from ...cache import store
from ...cache.surroundings import key, surroundings

_KIND = "tiles"
#: 0 for oneDNN's own algorithm.
_TILES = (0, 2, 4)
#: Convolutions remembered; a network has some tens.
_MOST = 4096

_lock = threading.Lock()
#: The folder and key that this process has read.
_read: tuple[Any, str] | None = None
#: Choices that are on the disk, as far as this process knows.
_stored: dict[tuple[int, ...], int] = {}


def _fresh_lock() -> None:
    """A forked child has one thread; a lock that another one held would stay locked for ever."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


def recall(native: Any) -> None:
    """Tells the extension, once, what other processes have measured."""
    global _read, _stored
    folder = store.path()
    if folder is None:
        return
    name = key(_KIND, surroundings())
    with _lock:
        if _read == (folder, name):
            return
        _read, _stored = (folder, name), _load(name)
        known = {tuple(shape) for shape, _ in native.winograd_tiles()}
        for shape, tile in _stored.items():
            if shape not in known:  # what this process has measured itself is fresher
                native.remember_winograd_tile(list(shape), tile)


def keep(native: Any) -> None:
    """Writes down what was measured since the last time.

    Two processes that write at once may each miss what the other has just measured; whoever needs
    it measures again.
    """
    global _stored
    if store.path() is None:
        return
    with _lock:
        measured = {tuple(shape): tile for shape, tile in native.winograd_tiles()}
        if measured.items() <= _stored.items():
            return
        around = surroundings()
        name = key(_KIND, around)
        merged = {**_load(name), **measured}
        kept = dict(list(merged.items())[-_MOST:])
        value = {"tiles": [[*shape, tile] for shape, tile in kept.items()]}
        if store.write(_KIND, name, value, {"convolutions": len(kept), **around}):
            _stored = kept


def _load(name: str) -> dict[tuple[int, ...], int]:
    value = store.read(_KIND, name) or {}
    rows = value.get("tiles", [])
    sound = isinstance(rows, list) and all(
        isinstance(row, list)
        and all(type(number) is int and 0 <= number < 1 << 31 for number in row)
        and row[-1:]
        and row[-1] in _TILES
        for row in rows
    )
    return {tuple(row[:-1]): row[-1] for row in rows} if sound else {}
