"""The compiled extension, imported when first needed, and its thread setting."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Iterator
from typing import Any

from ...errors import EngineError
from ...memory import library
from ...memory.shared import shared_pool

#: Primitives that oneDNN keeps beside those in use, a few hundred KiB of code each.  Its own
#: default is 1024: with ever new shapes the memory of plans long gone would grow for as many.
_SPARE_PRIMITIVES = 128
#: Users who set one of these know what they want.
_CAPACITY_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")

#: Versions of oneDNN whose C interface the extension was built and tested against.
_OLDEST, _NEWEST = (3, 2), (3, 99)


@functools.cache
def missing() -> str | None:
    """Why the native engine cannot run here, or None when it can."""
    try:
        import paddle  # noqa: F401 - it loads libdnnl.so.3, which the extension links against
    except ImportError as error:
        return f"Paddle cannot be imported: {error}"
    try:
        module = importlib.import_module("paddle_fluid_boost._native")
    except ModuleNotFoundError:
        return (
            "the extension paddle_fluid_boost._native was not built; install a C++17 compiler "
            "and reinstall the package"
        )
    except ImportError as error:
        return f"the native extension cannot be loaded (is this Paddle built with oneDNN?): {error}"
    version = module.onednn_version()
    if not _OLDEST <= version[:2] <= _NEWEST:
        return (
            f"oneDNN {'.'.join(map(str, version))} is loaded; the native engine needs 3.2 or later"
        )
    _limit_primitive_cache(module)
    if library.missing() is None:  # else arenas come from the system
        module.use_pool(*shared_pool().functions("plan arena"))
    return None


def _limit_primitive_cache(native: Any) -> None:
    """The plans hold the primitives they use; the cache of the process only keeps those that nobody
    uses any more."""
    if not any(name in os.environ for name in _CAPACITY_VARIABLES):
        kept = min(native.primitive_cache_capacity(), _SPARE_PRIMITIVES)
        native.set_primitive_cache_capacity(kept)


def module() -> Any:
    """The extension.  Raises EngineError with the reason when it is missing."""
    reason = missing()
    if reason is not None:
        raise EngineError(f"native engine: {reason}")
    return importlib.import_module("paddle_fluid_boost._native")


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """OpenMP threads of the calling Python thread inside the block; restored afterwards.

    oneDNN fixes a primitive's partition when it is created, so plans are built inside.
    """
    native = module()
    before = native.max_threads()
    native.set_max_threads(count)
    try:
        yield
    finally:
        native.set_max_threads(before)
