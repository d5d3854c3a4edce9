"""Tensors whose elements lie one after the other, as engines and converters read them."""

from __future__ import annotations

import ctypes
import math
import zlib
from typing import Any


def dense(tensor: Any) -> Any:
    """``tensor`` itself when it is contiguous, else a contiguous copy without gradient.

    Never ``Tensor.contiguous()``: it moves the tensor itself to new memory, and what was a view is
    none any more.
    """
    return tensor if tensor.is_contiguous() else tensor.detach().clone()


def on_host(tensor: Any) -> Any:
    """``tensor`` dense and in the CPU's memory, where its address may be read; itself if it is."""
    tensor = dense(tensor)
    return tensor if tensor.place.is_cpu_place() else tensor.detach().cpu()


def nbytes(tensor: Any) -> int:
    """Bytes of the content of a tensor."""
    return math.prod(tensor.shape) * tensor.element_size()  # tensor.size is slow


def fingerprint(tensor: Any) -> tuple[Any, ...]:
    """Shape, dtype and CRC-32 of the content of a tensor; releases the interpreter lock."""
    if not tensor._is_initialized():  # an LSTM's dropout state has a shape but no memory
        return (tuple(tensor.shape), str(tensor.dtype), None)
    tensor = on_host(tensor)
    size = nbytes(tensor)
    if not size:
        return (tuple(tensor.shape), str(tensor.dtype), 0)
    content = (ctypes.c_char * size).from_address(tensor.data_ptr())
    return (tuple(tensor.shape), str(tensor.dtype), zlib.crc32(content))
