"""Ops that are traced carry no call stack.

In static mode Paddle's C++ asks ``traceback.extract_stack()`` for every op, which formats some
thirty frames and looks at each source file on the disk.  That was 80% of a trace on the worker's
thread (MobileNetV3-small: 0.54 s of processor time, 0.11 s without), for a program that nobody
prints: errors of a trace name the user's line from their own traceback.  (Export wants the stacks:
it names the user's line of an op that a target cannot take.)
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

_NAME = "extract_stack"


@contextlib.contextmanager
def no_call_stacks() -> Iterator[None]:
    """Within the block this thread's ops record no call stack.  Traces are exclusive, so no two
    threads are in such a block at once.

    Python that asks for its own stack gets it, in every thread: only the call from C++, which comes
    without arguments from a function that does not name ``extract_stack``, is answered with none.
    """
    original: Any = traceback.extract_stack
    thread = threading.get_ident()

    def extract_stack(f: Any = None, limit: int | None = None) -> Any:
        if f is None:
            f = sys._getframe(1)
            ours = threading.get_ident() == thread
            if ours and limit is None and _NAME not in f.f_code.co_names:
                return []
        return original(f, limit)

    setattr(traceback, _NAME, extract_stack)
    try:
        yield
    finally:
        if getattr(traceback, _NAME) is extract_stack:
            setattr(traceback, _NAME, original)
