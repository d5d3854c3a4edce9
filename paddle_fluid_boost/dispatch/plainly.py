"""Calls that run for us, observed or for comparison, and so must run as the user's own code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_context = threading.local()


def running_plainly() -> bool:
    """True while this thread runs a call for us: everything inside must run as the user's own code,
    parts that are boosted themselves too."""
    return getattr(_context, "plainly", False)


@contextmanager
def run_plainly() -> Iterator[None]:
    """Makes :func:`running_plainly` True in this thread."""
    before = running_plainly()
    _context.plainly = True
    try:
        yield
    finally:
        _context.plainly = before
