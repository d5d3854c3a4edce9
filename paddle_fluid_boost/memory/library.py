"""The library of the block pool and the planner, loaded when first needed: C functions by ctypes.

``csrc/memory/pool.h``, ``import_hook.h`` and ``placement_search.h`` describe the functions; the
structures here mirror them field by field.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from ..errors import PoolError

_u32, _u64, _size, _pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


class PoolOptions(ctypes.Structure):
    """``pfb_pool_options``."""

    _fields_ = (
        ("limit", _u64),
        ("address_space", _u64),
        ("retain", _u64),
        ("decay_ms", _u32),
        ("huge_pages", _u32),
        ("exhaustion", _u32),
        ("thread_caches", _u32),
        ("debug", _u32),
        ("abort_on_fault", _u32),
    )


class PoolNumbers(ctypes.Structure):
    """``pfb_pool_statistics``."""

    _fields_ = tuple(
        (name, _u64)
        for name in (
            *("requested", "block_bytes", "held", "live", "high_water", "high_water_held"),
            *("allocations", "frees", "cache_hits", "pool_hits", "grown", "exhausted"),
            *("system_live", "cached_bytes", "heap_held", "heap_free", "heap_largest"),
            *("slab_held", "released", "faults", "huge_refused", "address_space"),
        )
    )


class HookNumbers(ctypes.Structure):
    """``pfb_hook_statistics``."""

    _fields_ = tuple(
        (name, _u64)
        for name in (
            *("requests", "requested_bytes", "served", "served_bytes", "freed", "entries"),
        )
    )


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pfb_pool_create": (_pointer, (ctypes.POINTER(PoolOptions),)),
    "pfb_pool_close": (None, (_pointer,)),
    "pfb_pool_allocate": (_pointer, (_pointer, _size, _size)),
    "pfb_pool_allocate_for": (_pointer, (_pointer, _size, _size, _u32)),
    "pfb_pool_free": (ctypes.c_int, (_pointer, _pointer)),
    "pfb_pool_owns": (ctypes.c_int, (_pointer, _pointer)),
    "pfb_pool_size": (_size, (_pointer, _pointer)),
    "pfb_pool_reserve": (_size, (_pointer, _size, _size)),
    "pfb_pool_trim": (_u64, (_pointer,)),
    "pfb_pool_get_statistics": (None, (_pointer, ctypes.POINTER(PoolNumbers))),
    "pfb_pool_check": (_size, (_pointer,)),
    "pfb_pool_report": (_size, (_pointer, _size, ctypes.c_char_p, _size)),
    "pfb_pool_tag": (_u32, (ctypes.c_char_p,)),
    "pfb_pool_set_tag": (_u32, (_u32,)),
    "pfb_hook_install": (
        ctypes.c_int,
        (_pointer, ctypes.c_char_p, _size, ctypes.c_char_p, _size),
    ),
    "pfb_hook_enable": (None, (ctypes.c_int,)),
    "pfb_hook_get_statistics": (None, (ctypes.POINTER(HookNumbers),)),
    "pfb_search_placement": (
        ctypes.c_int64,
        (
            *(_u32, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(_u32), ctypes.POINTER(_u32)),
            *(_u32, ctypes.c_int64, ctypes.c_double, _u64, ctypes.POINTER(ctypes.c_int64)),
        ),
    ),
}


def missing() -> str | None:
    """Why the block pool cannot be used here, or None when it can."""
    try:
        load()
    except PoolError as error:
        return str(error)
    return None


@functools.lru_cache(maxsize=1)
def load() -> Any:
    """The library with its functions declared.  Raises PoolError with the reason when missing.

    Calls release the interpreter's lock, as a fork or a trim of another thread may hold up a call.
    """
    package = Path(__file__).resolve().parent.parent
    found = sorted(package.glob("_pool*.so"))
    if not found:
        raise PoolError(
            "the library paddle_fluid_boost/_pool was not built; on Linux, install a C++17 "
            "compiler and reinstall the package"
        )
    try:
        library = ctypes.CDLL(str(found[0]))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise PoolError(f"the block pool's library {found[0]} cannot be loaded: {error}") from error
    return library
