"""Who wants to know when a layer or a tensor was touched.

``plugin`` patches the public ways of changing layers and tensors to call :func:`touch`; compiled
versions register the objects they depend on.  Objects are known by ``id`` and held weakly, so that
watching keeps nothing alive and a call to :func:`touch` costs one dictionary look-up.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol


class Watcher(Protocol):
    """What is told: must be cheap and must not raise."""

    def touched(self) -> None: ...


_watchers: dict[int, weakref.WeakSet[Watcher]] = {}
_alive: dict[int, weakref.ref[Any]] = {}


def watch(target: Any, watcher: Watcher) -> None:
    """``watcher.touched()`` is called whenever ``target`` is touched, for as long as both live."""
    key = id(target)
    if key not in _alive:
        # Bound early: at the exit of the interpreter the names of this module may be gone.
        def forget(_: Any, watchers: Any = _watchers, alive: Any = _alive) -> None:
            watchers.pop(key, None)
            alive.pop(key, None)

        _alive[key] = weakref.ref(target, forget)
        _watchers[key] = weakref.WeakSet()
    _watchers[key].add(watcher)


def touch(target: Any) -> None:
    """Tells everybody who watches ``target``."""
    watchers = _watchers.get(id(target))
    if watchers:
        for watcher in list(watchers):
            watcher.touched()


def touch_everything() -> None:
    """Something changed and nobody can say what: tells all watchers."""
    for watchers in list(_watchers.values()):
        for watcher in list(watchers):
            watcher.touched()


def watched_count() -> int:
    """How many objects are watched now, for tests and ``stats``."""
    return len(_watchers)
