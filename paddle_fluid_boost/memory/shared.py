"""The one pool of the process, made from the options when it is first needed."""

from __future__ import annotations

import os
import threading

from ..options import options
from .pool import BlockPool

_lock = threading.Lock()
_pool: BlockPool | None = None


def shared_pool() -> BlockPool:
    """The pool that plan arenas, frame buffers and (with the option ``pool``) Paddle's tensors use.

    It is never closed, and falls back to the system's allocator when it is exhausted.

    Raises:
        PoolError: the pool's library was not built.
    """
    global _pool
    with _lock:
        if _pool is None:
            _pool = BlockPool(
                limit=options.pool_limit_mb << 20,
                exhausted="system",
                decay_s=options.pool_decay_s,
                huge_pages=options.pool_huge_pages,
                debug=options.pool_debug,
            )
        return _pool


def _after_fork() -> None:
    """A lock held by another thread of the parent would stay held for ever in the child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
