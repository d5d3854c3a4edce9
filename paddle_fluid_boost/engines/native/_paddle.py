"""The private names of Paddle that this engine relies on.

Checked on PaddlePaddle 3.0.0, 3.1.1, 3.2.2 and 3.3.1.  A missing name raises UnsupportedPaddleError
on import.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import UnsupportedPaddleError
from ...ir.graph import numpy_dtype

try:
    import paddle
    from paddle.base import core

    _EagerTensor = core.eager.Tensor
    _empty = paddle._C_ops.empty
    _CPU = core.CPUPlace()
except (ImportError, AttributeError) as error:
    raise UnsupportedPaddleError(
        f"PaddlePaddle lacks a name the native engine needs: {error}"
    ) from error

Tensor = Any


def tensor_at(address: int, shape: Sequence[int], dtype: str) -> Tensor:
    """An eager CPU tensor that reads the row-major memory at ``address`` in place.

    The memory must stay valid as long as the tensor is used.
    """
    of_numpy = numpy_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_char * (count * of_numpy.itemsize)).from_address(address)
    array = np.frombuffer(memoryview(raw), of_numpy).reshape(shape)
    tensor = _EagerTensor(
        value=array, place=_CPU, persistable=False, zero_copy=True, name="", stop_gradient=True
    )
    return tensor.view(dtype) if dtype == "bfloat16" else tensor


def dtype_of(name: str) -> Any:
    """Paddle's dtype for numpy's spelling."""
    return getattr(paddle, name)


def zeros(shape: Sequence[int], dtype: Any) -> Tensor:
    """A CPU tensor of zeros."""
    return paddle.zeros(list(shape), dtype)


def empty(shape: Sequence[int], dtype: Any) -> Tensor:
    """A fresh row-major CPU tensor of undefined content, faster than ``paddle.empty``."""
    return _empty(list(shape), dtype, _CPU)


def address_of(tensor: Tensor) -> int:
    """Address of the first element of a dense CPU tensor."""
    return int(tensor.data_ptr())
