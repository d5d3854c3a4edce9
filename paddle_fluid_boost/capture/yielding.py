"""Background work in Python that keeps out of the way of the user's thread.

All threads share one interpreter lock.  A thread that computes in Python for a second makes every
operator call of another thread wait for its turn.  So the worker pauses between Python calls: it
runs for ``options.capture_slice_ms``, then sleeps so that its share of time is
``options.capture_duty``.  As soon as somebody waits for the static lock it stops sleeping.

When the interpreter exits, the work is ended soon.  It must not still run while the interpreter is
taken down: Python ends such a thread where it next takes the interpreter lock, and inside Paddle's
C++ that ends the whole process with a crash.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from types import FrameType

from ..options import options
from .lock import STATIC_LOCK
from .sources import origin

#: A threshold that is not reached: no full collection.
_NEVER = 1_000_000


class _FullCollections:
    """Puts off full garbage collections.

    A trace makes many objects, and so brings on a collection of everything that the process holds:
    some 100 ms with Paddle imported, in which no thread runs.  The young generations, where the
    trace's own garbage is, are collected as ever.
    """

    def __init__(self) -> None:
        self._threshold = gc.get_threshold()[2]

    def put_off(self) -> None:
        young, middle, self._threshold = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)

    def resume(self) -> None:
        young, middle, full = gc.get_threshold()
        if full == _NEVER:  # not when somebody else has set it meanwhile
            gc.set_threshold(young, middle, self._threshold)


_full_collections = _FullCollections()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_full_collections.resume)


class Stopped(BaseException):
    """The work is to end: the interpreter exits, or the plugin was taken out.  Not an Exception, so
    that the code it ends does not handle it."""


class Yielding:
    """Context manager: Python code inside the block pauses regularly, and raises :class:`Stopped`
    once ``stopped()`` is true.  Does nothing when not ``enabled``, or when this thread already has
    a profile hook."""

    def __init__(self, enabled: bool, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._enabled = enabled and sys.getprofile() is None
        self._slice = options.capture_slice_ms / 1e3
        self._pause = self._slice * (1 / options.capture_duty - 1)
        self._until = 0.0

    def __enter__(self) -> None:
        if self._enabled:
            self._until = time.perf_counter() + self._slice
            _full_collections.put_off()
            sys.setprofile(self._on_event)

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            sys.setprofile(None)
            _full_collections.resume()

    def _on_event(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and self._stopped() and _may_raise(frame):
            raise Stopped  # which ends the hook too
        if time.perf_counter() > self._until:
            if self._pause > 0 and not STATIC_LOCK.contended:
                time.sleep(self._pause)
            self._until = time.perf_counter() + self._slice


def _may_raise(frame: FrameType) -> bool:
    """True at the entry of functions that may fail anyway: the user's, and forwards of layers.

    Not of others: Paddle's C++ calls some of Paddle's Python functions, such as the one that finds
    an op's call stack, and crashes when these raise; and ours put things back in order.
    """
    name = frame.f_code.co_name
    if name in ("forward", "__call__"):
        return True
    return not name.startswith("__") and origin(frame.f_code.co_filename) == "user"
