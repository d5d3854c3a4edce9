"""Keeps our traces and everybody else's building of static programs apart.

Paddle's tracer is thread-local, but the current program and the insertion point are not: a trace of
ours beside a static program that another thread builds corrupts both.  What the user's threads do
among themselves is as it always was; only our traces are exclusive.

A thread of the user's counts as building while it is in static mode (``paddle.enable_static()``,
``to_static`` capturing, ``jit.load``, an optimizer's step, ...); ``dispatch/hooks.py`` reports it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from ..errors import CaptureRefused

#: Seconds that a trace waits for the user's threads to leave static mode.  Some never do.
_PATIENCE = 2.0


class StaticLock:
    """``with lock:`` is a trace of ours; ``with lock.building():`` is anybody else's static work.

    The user's side waits for a running trace only, which hurries once it is :attr:`contended`;
    our side waits for the user's for a short while and then gives up for now.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._tracing: int | None = None  # the thread that traces, and how deep
        self._depth = 0
        self._building: dict[int, int] = {}  # threads that build -> how deep
        self._waiting = 0
        self._open = getattr(self, "_open", False)

    def open(self) -> None:
        """Allows traces: from here on every thread reports its static work."""
        self._open = True

    def close(self) -> None:
        """Allows no more traces, and waits for the end of a running one."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
            self._wait_for_trace()

    def __enter__(self) -> StaticLock:
        me = threading.get_ident()
        with self._changed:
            if self._tracing != me:
                free = self._changed.wait_for(
                    lambda: not self._open or self._free_for(me), _PATIENCE
                )
                if not self._open:  # also when it was closed while we waited
                    raise CaptureRefused("the plugin was taken out")
                if not free:
                    raise CaptureRefused("another thread is building a static program")
                self._tracing = me
            self._depth += 1
        return self

    def _free_for(self, me: int) -> bool:
        return self._tracing is None and not (self._building.keys() - {me})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._tracing = None
                self._changed.notify_all()

    def start_building(self) -> None:
        """The calling thread enters static mode; waits while another one traces for us."""
        me = threading.get_ident()
        with self._changed:
            self._wait_for_trace()
            self._building[me] = self._building.get(me, 0) + 1

    def _wait_for_trace(self) -> None:
        """Waits until no other thread traces; the lock of ``_changed`` is held."""
        if self._tracing in (None, threading.get_ident()):
            return
        self._waiting += 1
        try:
            self._changed.wait_for(lambda: self._tracing is None)
        finally:
            self._waiting -= 1

    def stop_building(self) -> None:
        """The calling thread has left static mode."""
        me = threading.get_ident()
        with self._changed:
            depth = self._building.pop(me, 0) - 1
            if depth > 0:
                self._building[me] = depth
            self._changed.notify_all()

    @property
    def alone(self) -> bool:
        """True when only the calling thread builds, and not inside another build."""
        return self._tracing is None and self._building == {threading.get_ident(): 1}

    @contextmanager
    def building(self) -> Iterator[None]:
        """Static work that is not ours, for the length of a ``with`` block."""
        self.start_building()
        try:
            yield
        finally:
            self.stop_building()

    @property
    def contended(self) -> bool:
        """True while a thread of the user's waits for a trace to end."""
        return self._waiting > 0

    @property
    def tracing_here(self) -> bool:
        """True in the thread that holds the lock for a trace."""
        return self._tracing == threading.get_ident()


STATIC_LOCK = StaticLock()

if hasattr(os, "register_at_fork"):
    # A child forked in the middle of a trace would keep its program as the current one; and the
    # threads that held or waited do not exist there.
    os.register_at_fork(
        before=STATIC_LOCK.start_building,
        after_in_parent=STATIC_LOCK.stop_building,
        after_in_child=STATIC_LOCK._reset,
    )
