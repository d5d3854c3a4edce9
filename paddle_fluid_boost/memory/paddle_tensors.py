"""Paddle's own CPU tensors from the block pool, while the plugin is on and the option ``pool`` set.

Paddle's CPU allocator asks for every tensor by ``posix_memalign(4096)`` and frees it by ``free``,
both imported by ``libphi_core.so``.  The pool takes the place of these two entries
(``csrc/memory/import_hook.h``), so that eager, ``to_static`` and Paddle Inference are served alike
and nothing of Paddle's private layout is relied upon.  Checked on PaddlePaddle 3.0.0, 3.1.1, 3.2.2
and 3.3.1.

Whether it works is tested before it is used; where it does not, tensors stay with the stock
allocator and :func:`refusal` says why.  Switched off, new tensors go to the stock allocator; those
of the pool that are alive stay valid and come back to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from ..errors import PoolError
from ..options import on_change
from . import library
from .shared import shared_pool

#: The libraries of Paddle that allocate or free tensors.
_LIBRARIES = b"libphi,libpaddle"
#: What Paddle's CPU allocator asks for, and nothing else in these libraries does.
_ALIGNMENT = 4096
#: Elements of the tensors of the self-test: a small block, a large one, and one of many pages.
_TEST_SIZES = (7, 100_000, 3_000_000)

_logger = logging.getLogger(__name__)
_lock = threading.Lock()
_refusal: str | None = None
_installed = False
_on = False
_following = False


@dataclass(frozen=True)
class TensorTraffic:
    """Allocations of Paddle's CPU tensors since the hook is in, or within :func:`watched`.

    requests, requested_bytes: all of them; served, served_bytes: those by the pool; freed: blocks
    of the pool that came back.
    """

    requests: int = 0
    requested_bytes: int = 0
    served: int = 0
    served_bytes: int = 0
    freed: int = 0

    @property
    def share(self) -> float:
        """The pool's share of the allocations."""
        return self.served / self.requests if self.requests else 0.0


def try_out() -> str | None:
    """Puts the hook in and tests it, once; why it cannot be used, or None.  Switches nothing on."""
    global _refusal, _installed
    with _lock:
        if not _installed and _refusal is None:
            _refusal = _install()
            _installed = _refusal is None
        return _refusal


def switch_on() -> bool:
    """Serves tensors from the pool from now on; False, with a :func:`refusal`, where it cannot."""
    global _on
    if try_out() is not None:
        return False
    with _lock:
        library.load().pfb_hook_enable(1)
        _on = True
    return True


def switch_off() -> None:
    """Leaves new tensors to the stock allocator."""
    global _on
    with _lock:
        if _on:
            library.load().pfb_hook_enable(0)
            _on = False


def follow_option() -> None:
    """The plugin is on: the option ``pool`` decides, now and whenever it is configured."""
    global _following
    _following = True
    on_change("pool", _follow)


def stop_following() -> None:
    """The plugin is out: new tensors come from the stock allocator."""
    global _following
    _following = False
    switch_off()


def _follow(wanted: bool) -> None:
    if not (wanted and _following):
        switch_off()
    elif not switch_on():
        _logger.warning("option pool: tensors stay with the stock allocator: %s", _refusal)


def is_on() -> bool:
    """Whether new tensors come from the pool."""
    return _on


def refusal() -> str | None:
    """Why the pool cannot serve tensors here; None while it can, or was not tried."""
    return _refusal


def traffic() -> TensorTraffic:
    """The counts so far; all zero before the hook is in."""
    if not _installed:
        return TensorTraffic()
    return _read()


@contextlib.contextmanager
def watched() -> Iterator[Any]:
    """Yields a function that gives the traffic since the block was entered."""
    start = traffic()

    def since() -> TensorTraffic:
        now = traffic()
        return TensorTraffic(
            *(getattr(now, f.name) - getattr(start, f.name) for f in fields(TensorTraffic))
        )

    yield since


def _read() -> TensorTraffic:
    numbers = library.HookNumbers()
    library.load().pfb_hook_get_statistics(ctypes.byref(numbers))
    return TensorTraffic(*(getattr(numbers, f.name) for f in fields(TensorTraffic)))


def _install() -> str | None:
    """Puts the hook in and tests it; the reason when it cannot be used, and then it is off."""
    try:
        functions = library.load()
        handle = shared_pool().functions("paddle")[0]
    except PoolError as error:
        return str(error)
    reason = ctypes.create_string_buffer(256)
    if functions.pfb_hook_install(handle, _LIBRARIES, _ALIGNMENT, reason, len(reason)):
        return f"Paddle's import table: {reason.value.decode()}"
    functions.pfb_hook_enable(1)
    fault = _self_test()
    functions.pfb_hook_enable(0)
    shared_pool().trim()  # what only the test needed
    return fault


def _self_test() -> str | None:
    """Makes tensors that must come from the pool, uses them, and sees them come back."""
    import paddle

    pool, place = shared_pool(), paddle.CPUPlace()
    start = _read()
    tensors = [paddle.to_tensor([1.5], place=place).expand([size]) + 1 for size in _TEST_SIZES]
    outside = [size for size, t in zip(_TEST_SIZES, tensors) if not pool.owns(t.data_ptr())]
    if outside:
        return f"self-test: tensors of {outside} elements did not come from the pool"
    if any(float(tensor.min()) != 2.5 or float(tensor.max()) != 2.5 for tensor in tensors):
        return "self-test: tensors of the pool did not keep their values"
    del tensors
    now = _read()
    if now.freed - start.freed < len(_TEST_SIZES):
        return "self-test: freed tensors did not come back to the pool"
    return None
