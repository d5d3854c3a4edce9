"""Whether an engine's outputs are eager's: the accuracy gate of every compiled version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy
import paddle

#: Looser bounds of low-precision outputs, relative to their range: half a dozen rounding steps.
_LOW_PRECISION = {"float16": 5e-3, "bfloat16": 3e-2}
#: Who asks for double precision gets it: an engine that computes in float32 is off by 1e-8 or more.
_HIGH_PRECISION = {"float64": 1e-10, "complex128": 1e-10}


def difference(got: Any, want: Any, rtol: float) -> str | None:
    """Why ``got`` is not ``want``, or None when it is.

    Floating-point outputs may differ by ``rtol`` of the largest finite magnitude of ``want``
    (float16 and bfloat16 by a few of their rounding steps, double precision by 1e-10 at most); NaN
    and infinities must stand in the same places; integers and booleans must be equal.
    """
    if list(got.shape) != list(want.shape):
        return f"shape {list(got.shape)} instead of {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype} instead of {want.dtype}"
    if str(got.place) != str(want.place):
        return f"on {got.place} instead of {want.place}"
    name = str(want.dtype).rpartition(".")[2]
    rtol = min(max(rtol, _LOW_PRECISION.get(name, 0.0)), _HIGH_PRECISION.get(name, math.inf))
    got, want = _numpy(got, name), _numpy(want, name)
    if not (numpy.issubdtype(want.dtype, numpy.inexact)):
        return None if numpy.array_equal(got, want) else "integer values differ"
    errors = inexact_errors(got, want)
    if errors is None:
        return "NaN or infinity in other places"
    _, error = errors
    return None if error <= rtol else f"relative error {error:.1e} (allowed {rtol:.0e})"


def inexact_errors(got: numpy.ndarray, want: numpy.ndarray) -> tuple[float, float] | None:
    """The largest difference of two arrays of floating-point numbers, as it is and relative to the
    largest finite magnitude of ``want``; None when NaN or infinities stand in other places."""
    finite = numpy.isfinite(want)
    if not numpy.array_equal(numpy.isfinite(got), finite):
        return None
    if not numpy.array_equal(got[~finite], want[~finite], equal_nan=True):
        return None
    if not finite.any():
        return 0.0, 0.0
    wide = numpy.result_type(want.dtype, numpy.float64)
    absolute = float(numpy.abs(got[finite].astype(wide) - want[finite]).max())
    return absolute, absolute / (float(numpy.abs(want[finite]).max()) or 1.0)


def differences(got: Sequence[Any], want: Sequence[Any], rtol: float) -> str | None:
    """The first difference between two lists of tensors, or None."""
    if len(got) != len(want):
        return f"{len(got)} outputs instead of {len(want)}"
    for index, (one, other) in enumerate(zip(got, want)):
        reason = difference(one, other, rtol)
        if reason:
            return f"output {index}: {reason}"
    return None


def _numpy(tensor: Any, name: str) -> numpy.ndarray:
    if name in _LOW_PRECISION:
        tensor = paddle.cast(tensor, "float32")
    return tensor.numpy()
