"""Background work in Python that keeps out of the way of the user's thread.

All threads share one interpreter lock, and the user's may use all cores.  A thread that computes
for a second makes every operator call of another thread wait for its turn.  So the worker pauses
between calls: it runs for ``options.capture_slice_ms``, or as long as the one call into C++ takes
that it is in by then, and sleeps so that its share of a core's time is ``options.capture_duty``.
As soon as somebody waits for the static lock it stops sleeping.

When the interpreter exits, the work is ended soon.  It must not still run while the interpreter is
taken down: Python ends such a thread where it next takes the interpreter lock, and inside Paddle's
C++ that ends the whole process with a crash.
"""

from __future__ import annotations

import _weakrefset
import gc
import os
import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType

from ..options import options
from .lock import STATIC_LOCK
from .sources import origin

#: A threshold that is not reached: no full collection.
_NEVER = 1_000_000

_now = time.perf_counter

#: Files whose functions run when what a weak reference points to ends.
_CALLED_BACK = frozenset({weakref.__file__, _weakrefset.__file__})

#: No pause is longer (seconds): what one very long call has cost others is past.
_LONGEST_PAUSE = 0.1


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
    once ``stopped()`` is true.  Does nothing when this thread already has a profile hook."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._enabled = sys.getprofile() is None
        self._slice = options.capture_slice_ms / 1e3
        self._rest = 1 / options.capture_duty - 1
        self._until = self._worked = 0.0
        self._ending = False

    def __enter__(self) -> None:
        if self._enabled:
            self._begin_slice()
            _full_collections.put_off()
            sys.setprofile(self._on_event)

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            sys.setprofile(None)
            _full_collections.resume()

    def _on_event(self, frame: FrameType, event: str, arg: object) -> None:
        # Called for every function that is entered or left: as little as can be.
        if self._ending and event == "call" and _may_raise(frame):
            raise Stopped  # which ends the hook too
        if _now() > self._until:
            if self._rest > 0 and not STATIC_LOCK.contended:
                spent = max(self._slice, time.thread_time() - self._worked)
                time.sleep(min(spent * self._rest, _LONGEST_PAUSE))
            self._begin_slice()

    def _begin_slice(self) -> None:
        self._ending = self._stopped()
        self._until = _now() + self._slice
        self._worked = time.thread_time()


def _may_raise(frame: FrameType) -> bool:
    """True at the entry of functions that may fail anyway: the user's, and forwards of layers.

    Not of others: Paddle's C++ calls some of Paddle's Python functions, such as the one that finds
    an op's call stack, and crashes when these raise; and ours put things back in order.
    """
    name = frame.f_code.co_name
    if name not in ("forward", "__call__") and (
        name.startswith("__") or origin(frame.f_code.co_filename) != "user"
    ):
        return False
    return not finalizes(frame)


def finalizes(frame: FrameType | None) -> bool:
    """Whether an object's end is under way, which may happen in any thread: Python would swallow
    the exception, and the object's owner lose what the finalizer was to do."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename in _CALLED_BACK:
            return True
        frame = frame.f_back
    return False
