"""Whether tensors hold numbers that every engine treats alike.

NaN and infinities are where engines differ from Paddle's kernels: a clipped NaN may become the
bound, a pooled one may vanish.  A compiled version therefore serves ordinary numbers only: finite
and below 1e18 in magnitude, so that nothing is about to overflow either.  The check costs a few
microseconds for an image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

from . import _paddle as pd
from .native import runtime

_FLOATS = ("float16", "bfloat16", "float32", "float64")


@functools.cache
def _quick_check() -> Callable[[int, int], bool] | None:
    """The native check of float32 memory, or None where the extension is missing."""
    return runtime.module().all_ordinary if runtime.missing() is None else None


def is_float(tensor: Any) -> bool:
    """True for real floating-point tensors."""
    return str(tensor.dtype).rpartition(".")[2] in _FLOATS


def is_ordinary(tensor: Any) -> bool:
    """True when all elements of a floating-point tensor are ordinary numbers."""
    quick = _quick_check()
    if (
        quick is not None
        and tensor.dtype == pd.paddle.float32
        and tensor.is_contiguous()
        and tensor.place.is_cpu_place()
    ):
        return quick(tensor.data_ptr(), prod(tensor.shape))
    with pd.paddle.no_grad():
        return bool((tensor.detach().abs().astype("float32") < 1e18).all())
