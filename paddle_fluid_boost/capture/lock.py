"""One lock for everything that moves Paddle's process-wide static program.

Paddle's tracer is thread-local, but the current program and the insertion point are not: two
threads that build static programs at once corrupt both.  Our worker holds this lock while it
traces, and ``plugin`` makes Paddle's own builders (``to_static``, SOT, optimizers) take it.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType


class StaticLock:
    """A re-entrant lock that knows whether somebody waits for it.

    A background holder asks :attr:`contended` to stop pausing and finish soon.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._waiting = 0

    def __enter__(self) -> StaticLock:
        if not self._lock.acquire(blocking=False):
            self._waiting += 1
            try:
                self._lock.acquire()
            finally:
                self._waiting -= 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    @property
    def contended(self) -> bool:
        """True while another thread waits."""
        return self._waiting > 0


STATIC_LOCK = StaticLock()

if hasattr(os, "register_at_fork"):
    # The thread that held the lock does not exist in the child.
    os.register_at_fork(after_in_child=STATIC_LOCK._reset)
