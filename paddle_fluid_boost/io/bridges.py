"""numpy <-> Paddle tensor <-> predictor over the same memory, wherever it can be shared.

Shared memory lives as long as anything that uses it: a tensor made of an array keeps the array, an
array made of a tensor keeps the tensor's memory, a predictor keeps its inputs.  What cannot be
shared is copied, counted (:func:`copies`), and still correct.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import paddle

from ..engines.dense import dense
from .copies import note_copy

#: What both numpy and Paddle have.
SHARED_DTYPES = frozenset(
    np.dtype(name)
    for name in (
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8"),
    )
)
#: Predictor -> what its inputs read, by name.
_inputs: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def to_tensor(array: Any) -> Any:
    """A CPU tensor over the memory of ``array``; what is written to one is read from the other.

    Args:
        array: a numpy array of a dtype that Paddle has.  It is shared when it is writable, aligned
            to its elements, in this machine's byte order, and steps forward in every dimension;
            else copied.

    Returns:
        A tensor with ``stop_gradient=True`` of the same shape, dtype and strides.

    Raises:
        TypeError: ``array`` is no numpy array, or of a dtype that Paddle lacks.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"to_tensor: argument 'array' must be a numpy array, got {type(array)}")
    if array.dtype.newbyteorder("=") not in SHARED_DTYPES:
        raise TypeError(f"to_tensor: Paddle has no dtype for numpy's {array.dtype}")
    reason = _why_not_shared(array)
    if reason is not None:
        note_copy(f"to_tensor: {reason}", array.nbytes)
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
        if array.size == 0:
            return paddle.to_tensor(array, place=paddle.CPUPlace())
    return paddle.utils.dlpack.from_dlpack(array)


def to_numpy(tensor: Any) -> np.ndarray:
    """An array over the memory of a dense CPU tensor, or a copy of any other.

    Where numpy is older than 2.1 the array is read-only.  Operations that write to the tensor in
    place change the array.

    Raises:
        TypeError: ``tensor`` is no eager Paddle tensor.
    """
    if not isinstance(tensor, paddle.Tensor):
        raise TypeError(f"to_numpy: argument 'tensor' must be a Paddle tensor, got {type(tensor)}")
    reason = None
    if not tensor.place.is_cpu_place():
        reason = f"the tensor is on {tensor.place}"
    elif not tensor.is_dense():
        reason = "the tensor is sparse"
    elif tensor.dtype == paddle.bfloat16:
        reason = "numpy has no bfloat16"
    elif tensor.size == 0:
        reason = "the tensor is empty"
    elif not hasattr(np, "from_dlpack"):
        reason = "numpy is older than 1.22"
    if reason is None:
        return np.from_dlpack(tensor.detach())
    array = tensor.numpy()
    note_copy(f"to_numpy: {reason}", array.nbytes)
    return array


def share_input(predictor: Any, name: str, value: Any) -> None:
    """Lets input ``name`` of a Paddle Inference predictor read ``value`` where it lies.

    Args:
        value: an eager CPU tensor, or a numpy array (see :func:`to_tensor`).  The predictor keeps
            it until the input is shared anew or the predictor goes; ``share_external_data`` alone
            keeps nothing, and reads freed memory when the tensor has gone.

    Raises:
        ValueError: the predictor has no such input.
    """
    names = predictor.get_input_names()
    if name not in names:
        raise ValueError(f"share_input: no input '{name}'; the predictor has {', '.join(names)}")
    tensor = to_tensor(value) if isinstance(value, np.ndarray) else value.detach()
    if not tensor.is_contiguous():
        note_copy("share_input: the tensor is not contiguous", tensor.size * tensor.element_size())
        tensor = dense(tensor)
    predictor.get_input_handle(name).share_external_data(tensor)
    _inputs.setdefault(predictor, {})[name] = tensor


def _why_not_shared(array: np.ndarray) -> str | None:
    if array.size == 0:
        return "the array is empty"
    if not array.dtype.isnative:
        return "the array is in the other byte order"
    if not array.flags.aligned:
        return "the array is not aligned to its elements"
    if not array.flags.writeable:
        return "the array is read-only"  # an in-place operation would write to it all the same
    if any(stride <= 0 for stride, size in zip(array.strides, array.shape) if size > 1):
        return "the array steps backwards or repeats itself"
    if any(stride % array.itemsize for stride in array.strides):
        return "the array steps by parts of elements"
    return None
