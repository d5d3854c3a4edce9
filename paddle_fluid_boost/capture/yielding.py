"""Background work in Python that keeps out of the way of the user's thread.

All threads share one interpreter lock.  A thread that computes in Python for a second makes every
operator call of another thread wait for its turn.  So the worker pauses between Python calls: it
runs for ``options.capture_slice_ms``, then sleeps so that its share of time is
``options.capture_duty``.  As soon as somebody waits for the static lock it stops sleeping.
"""

from __future__ import annotations

import sys
import time
from types import FrameType

from ..options import options
from .lock import STATIC_LOCK


class Yielding:
    """Context manager: Python code inside the block pauses regularly.  Does nothing when not
    ``enabled``, or when this thread already has a profile hook."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled and sys.getprofile() is None
        self._slice = options.capture_slice_ms / 1e3
        self._pause = self._slice * (1 / options.capture_duty - 1)
        self._until = 0.0

    def __enter__(self) -> None:
        if self._enabled:
            self._until = time.perf_counter() + self._slice
            sys.setprofile(self._on_event)

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, arg: object) -> None:
        if time.perf_counter() > self._until:
            if self._pause > 0 and not STATIC_LOCK.contended:
                time.sleep(self._pause)
            self._until = time.perf_counter() + self._slice
