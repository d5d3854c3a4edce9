"""Tensors whose elements lie one after the other, as engines and converters read them."""

from __future__ import annotations

from typing import Any


def dense(tensor: Any) -> Any:
    """``tensor`` itself when it is contiguous, else a contiguous copy without gradient.

    Never ``Tensor.contiguous()``: it moves the tensor itself to new memory, and what was a view is
    none any more.
    """
    return tensor if tensor.is_contiguous() else tensor.detach().clone()
