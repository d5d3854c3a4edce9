"""The OpenMP library that Paddle's CPU kernels use: how many threads they take, thread by thread.

Each thread that calls kernels has a team of its own, and its own setting of how large it may be.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

from . import _paddle as pd

#: For :func:`team_awake_for` while something is timed in the background: the threads stay awake
#: from one kernel to the next, as in a user's call (woken anew by each kernel, a small network
#: looks four times as slow as it is), but not so long that they disturb the user's threads after.
WHILE_TIMED_MS = 2

_FILES = {"win32": "libiomp5md.dll", "darwin": "libomp.dylib"}


def _library() -> ctypes.CDLL | None:
    """The library that Paddle ships; None where it ships none."""
    folder = os.path.join(os.path.dirname(pd.paddle.__file__), "libs")
    path = os.path.join(folder, _FILES.get(sys.platform, "libiomp5.so"))
    return ctypes.CDLL(path) if os.path.exists(path) else None


_openmp = _library()


def math_threads() -> int:
    """Threads that Paddle's CPU kernels use when called from this thread.

    Read from OpenMP; where Paddle ships none, what Paddle took from the environment at import.
    """
    if _openmp is not None:
        return int(_openmp.omp_get_max_threads())
    return int(os.environ.get("OMP_NUM_THREADS") or 1)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """That many threads for kernels called from this thread; others keep theirs.  Without effect
    where Paddle ships no OpenMP library."""
    if _openmp is None:
        yield
        return
    before = _openmp.omp_get_max_threads()
    _openmp.omp_set_num_threads(count)
    try:
        yield
    finally:
        _openmp.omp_set_num_threads(before)


def sleeping_team() -> contextlib.AbstractContextManager[None]:
    """The team of this thread sleeps between two kernels.

    As a rule it stays awake for 200 ms to be at hand for the next one.  A thread of a background
    team that is awake for nothing, on a core which the user's own team needs, holds up each of the
    user's kernels.
    """
    return team_awake_for(0)


@contextlib.contextmanager
def team_awake_for(milliseconds: int) -> Iterator[None]:
    """The team of this thread stays awake so long after a kernel.  Without effect where Paddle
    ships another OpenMP library than Intel's."""
    if _openmp is None or not hasattr(_openmp, "kmp_set_blocktime"):
        yield
        return
    before = _openmp.kmp_get_blocktime()
    _openmp.kmp_set_blocktime(milliseconds)
    try:
        yield
    finally:
        _openmp.kmp_set_blocktime(before)
