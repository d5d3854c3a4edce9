"""``pfb.pipeline``: the next frame is prepared, and the last result fetched, while one is computed.

Three threads besides the user's: one takes a frame and puts it where the network computes, before
it takes another (whoever yields frames may write the next one to the same memory); one calls the
network; and one, where asked for, fetches results.  On the CPU that hides decoding; on an
accelerator uploads too, as far as its driver runs them beside kernels.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..capture.structure import leaves, map_leaves
from ..engines import openmp
from ..engines.dense import nbytes
from .bridges import to_tensor
from .frames import Frame
from .stages import Results, Stage, Stages

#: Milliseconds that the network's threads stay awake after a kernel: as a rule it is 200, for which
#: they would keep the cores from whoever decodes the next frame.
_AWAKE_MS = 2


def pipeline(
    net: Callable[..., Any],
    frames: Iterable[Any],
    depth: int = 2,
    *,
    prepare: Callable[[Any], Any] | None = None,
    collect: Callable[[Any], Any] | None = None,
) -> Results:
    """The results of ``net`` for each of ``frames``, in order, with the work overlapped.

    >>> for boxes in pfb.pipeline(net, camera, prepare=decode, collect=lambda out: out.numpy()):
    ...     draw(boxes)

    Args:
        net: called in a thread of its own, without gradients, with as many threads for kernels as
            the caller of this function has.  ``auto_cast`` around the loop does not reach it.
        frames: each is one argument of ``net``; a list or tuple holds all its arguments, a dict
            those by name.  numpy arrays are copied into tensors where Paddle computes; a
            :class:`~paddle_fluid_boost.io.Frame` is used in place and released once its result is
            there; tensors and whatever else go in as they are.
        depth: frames under way at most: being read, prepared, computed or fetched.  2 prepares one
            while another is computed; 3 also fetches a third.
        prepare: makes what ``net`` takes of what ``frames`` yields, in the thread that reads them.
        collect: makes what the loop gets of a result, in a thread of its own.

    Returns:
        An iterator.  What ``frames``, ``prepare``, ``net`` or ``collect`` raises is raised in the
        place of the result, after those before it, and ends the iteration.  ``close()``, leaving
        its ``with`` block, or forgetting it ends the threads.

    Raises:
        TypeError: ``net``, ``prepare`` or ``collect`` is not callable, ``frames`` not iterable, or
            ``depth`` no integer.
        ValueError: ``depth`` is not positive.
    """
    for name, function in (("net", net), ("prepare", prepare), ("collect", collect)):
        if not callable(function) and (function is not None or name == "net"):
            raise TypeError(f"pipeline: argument '{name}' must be callable, got {function!r}")
    if not isinstance(frames, Iterable):
        raise TypeError(f"pipeline: argument 'frames' must be iterable, got {type(frames)}")
    try:
        most = operator.index(depth)
    except TypeError:
        raise TypeError(f"pipeline: argument 'depth' must be an integer, got {depth!r}") from None
    if most < 1:
        raise ValueError(f"pipeline: argument 'depth' must be positive, got {depth}")
    threads = openmp.math_threads()

    def calls() -> Iterator[_Call]:
        for item in frames:
            try:
                call = _call_of(prepare(item) if prepare is not None else item)
            except BaseException:
                _release(item)
                raise
            del item  # a tensor of it may be large, and the next one may take its time
            yield call

    def computed(call: _Call) -> Any:
        try:
            return _unshared(net(*call.args, **call.kwargs), call.frames)
        finally:
            call.release()

    stages = [Stage("compute", computed, lambda: _as_the_caller(threads), _Call.release)]
    if collect is not None:
        stages.append(Stage("collect", collect, paddle.no_grad))
    return Results(Stages(calls(), stages, most))


class _Call(NamedTuple):
    """The arguments of one call, and the ring's frames among them."""

    args: list[Any]
    kwargs: dict[str, Any]
    frames: list[Frame]

    def release(self) -> None:
        for frame in self.frames:
            frame.release()


def _call_of(item: Any) -> _Call:
    frames: list[Frame] = []

    def argument(value: Any) -> Any:
        if isinstance(value, Frame):
            frames.append(value)
            return value.tensor
        return _tensor(value) if isinstance(value, np.ndarray) else value

    if isinstance(item, dict):
        return _Call([], {name: argument(value) for name, value in item.items()}, frames)
    given = item if isinstance(item, (list, tuple)) else [item]
    return _Call([argument(value) for value in given], {}, frames)


def _release(item: Any) -> None:
    """Gives back the ring's frames in what the source has yielded."""
    for value in leaves(item):
        if isinstance(value, Frame):
            value.release()


def _tensor(array: np.ndarray) -> Any:
    """A copy where Paddle computes: whoever yields an array may write the next frame to it."""
    if paddle.device.get_device() == "cpu" and array.size:
        return to_tensor(np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True))
    return paddle.to_tensor(array)


@contextlib.contextmanager
def _as_the_caller(threads: int) -> Iterator[None]:
    with paddle.no_grad(), openmp.threads(threads), openmp.team_awake_for(_AWAKE_MS):
        yield


def _unshared(result: Any, frames: list[Frame]) -> Any:
    """``result``, with copies of the tensors in it that lie in the memory of ``frames``."""
    if not frames:
        return result
    spans = [(frame.array.ctypes.data, frame.array.nbytes) for frame in frames]

    def own(value: Any) -> Any:
        if not isinstance(value, paddle.Tensor) or not nbytes(value):
            return value
        at = value.data_ptr() if value.place.is_cpu_place() else 0
        inside = any(start <= at < start + size for start, size in spans)
        return value.detach().clone() if inside else value

    return map_leaves(result, own)
