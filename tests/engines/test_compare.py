"""The accuracy gate: how far an output may be off, by dtype."""

from __future__ import annotations

import paddle
import pytest

from paddle_fluid_boost.engines.compare import difference


@pytest.mark.parametrize(
    ("dtype", "error", "accepted"),
    [
        ("float32", 1e-5, True),
        ("float32", 1e-3, False),
        ("float64", 1e-13, True),
        ("float64", 3e-8, False),  # what computing in float32 leaves behind
        ("complex128", 3e-8, False),
        ("float16", 2e-3, True),
        ("bfloat16", 1e-2, True),
        ("bfloat16", 0.1, False),
    ],
)
def test_error_allowed_by_dtype(dtype: str, error: float, accepted: bool) -> None:
    want = paddle.to_tensor([1.0, -0.5], dtype="float64")
    got = (want * (1 + error)).astype(dtype)
    reason = difference(got, want.astype(dtype), rtol=1e-4)
    assert (reason is None) == accepted, reason
