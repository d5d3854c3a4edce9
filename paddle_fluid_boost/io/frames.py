"""A ring of input buffers that a camera or decoder writes into and networks read from in place."""

from __future__ import annotations

import math
import operator
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ..memory import library
from ..memory.shared import shared_pool
from .bridges import SHARED_DTYPES, to_tensor

_PAGE = 4096


class Frame:
    """One buffer of a ring: ``array`` and ``tensor`` are the same memory.

    Whoever acquired it may use it until it is released; as a context manager it releases itself.
    """

    def __init__(self, ring: FrameBuffer, array: np.ndarray) -> None:
        self._ring = ring
        self.array = array
        self.tensor: Any = to_tensor(array)

    def _renew(self) -> None:
        """A tensor over the array again, where an operation gave it another shape or memory."""
        tensor = self.tensor
        if tensor.shape != list(self.array.shape) or tensor.data_ptr() != self.array.ctypes.data:
            self.tensor = to_tensor(self.array)

    def release(self) -> None:
        """Gives the buffer back to its ring, to be written anew."""
        self._ring._take_back(self)

    def __enter__(self) -> Frame:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class FrameBuffer:
    """``count`` reusable input buffers; see :func:`frame_buffer`.

    Safe to use from several threads.  Buffers go round: the one that was released longest ago
    comes next.
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any], count: int) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.count = count
        self._frames = [Frame(self, self._array()) for _ in range(count)]
        self._free: deque[Frame] = deque(self._frames)
        self._changed = threading.Condition()

    def acquire(self, timeout: float | None = None) -> Frame:
        """The next free buffer; its content is what was last written to it.

        Args:
            timeout: seconds to wait while all are in use; None waits until one is released.

        Raises:
            TimeoutError: none became free in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._free), timeout):
                raise TimeoutError(
                    f"frame_buffer: all {self.count} buffers were in use for {timeout} s"
                )
            frame = self._free.popleft()
        frame._renew()
        return frame

    @property
    def free(self) -> int:
        """Buffers that nobody has acquired."""
        return len(self._free)

    def _take_back(self, frame: Frame) -> None:
        with self._changed:
            if frame in self._free:
                raise ValueError("frame_buffer: the buffer was released twice")
            self._free.append(frame)
            self._changed.notify()

    def _array(self) -> np.ndarray:
        nbytes = max(1, math.prod(self.shape) * self.dtype.itemsize)
        if library.missing() is None:
            buffer = shared_pool().allocate(nbytes, _PAGE).buffer()
        else:
            buffer = bytearray(nbytes)
        flat = np.frombuffer(buffer, np.uint8, nbytes)
        flat[:] = 0
        return flat.view(self.dtype).reshape(self.shape)


def frame_buffer(shape: Sequence[int], dtype: Any = "float32", count: int = 3) -> FrameBuffer:
    """A ring of ``count`` input buffers, page-aligned, from the block pool, zeroed once.

    Args:
        shape: of each buffer, all sizes positive.
        dtype: a numpy dtype that Paddle has.
        count: how many; three let one be written, one be read and one wait.

    Raises:
        ValueError: a size or ``count`` is not positive.
        TypeError: a size or ``count`` is not an integer, or Paddle lacks the dtype.
        MemoryError: there is no room for a buffer.
    """
    try:
        sizes = [operator.index(size) for size in shape]
    except TypeError:
        raise TypeError(
            f"frame_buffer: argument 'shape' must be a sequence of integers, got {shape!r}"
        ) from None
    if any(size <= 0 for size in sizes):
        raise ValueError(f"frame_buffer: sizes in 'shape' must be positive, got {tuple(shape)}")
    try:
        number = operator.index(count)
    except TypeError:
        raise TypeError(
            f"frame_buffer: argument 'count' must be an integer, got {count!r}"
        ) from None
    if number <= 0:
        raise ValueError(f"frame_buffer: argument 'count' must be positive, got {count}")
    return FrameBuffer(sizes, _dtype_of(dtype), number)


def _dtype_of(dtype: Any) -> np.dtype[Any]:
    """``dtype`` as numpy has it, of those that Paddle has too."""
    try:
        known = np.dtype(dtype)
    except TypeError:
        known = None
    if known is None or known not in SHARED_DTYPES:
        names = ", ".join(sorted(one.name for one in SHARED_DTYPES))
        raise TypeError(f"frame_buffer: argument 'dtype' must be one of {names}, got {dtype!r}")
    return known
