"""A predictor as an Executable: eager tensors in, fresh eager tensors out.

What Paddle Inference does on its own, and what is done about it here (measured on 3.3.1):

* It hands out its own buffers and may write to them in the next run: every output is copied.
* It reads any input as if it were contiguous: others are made so.
* It leaves the calling thread, and MKL in the whole process, at one thread: put back after a run.
* It switches the tensor operators of C++ extensions to another mode for good: put back too.
* It keeps the interpreter lock while it runs, so calls never overlap and one predictor is enough;
  the lock below is for the copies, which let other threads in, and for Paddle up to 3.2, which
  lets go of it.
* It keeps oneDNN's primitives once per calling thread (2 MB and 10 ms for resnet18): after a few
  threads, the rest go through one thread of ours.
* A forked child may go on using it, if no thread was inside it at the fork: a fork waits for those.
  Our own lock and thread must be new there.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..errors import EngineError
from ..report.records import OpShare
from . import _paddle as pd
from .dense import dense
from .openmp import math_threads

#: Threads that may keep oneDNN primitives of their own in one predictor.
MAX_DIRECT_THREADS = 4
#: From here on a copy through numpy is several times faster: it asks for huge pages.
LARGE_OUTPUT = 4 << 20
_NUMPY_DTYPES = {"float16", "float32", "float64", "int8", "uint8", "int32", "int64"}


class PredictorExecutable:
    """One built predictor; see :class:`engines.base.Executable`."""

    def __init__(
        self,
        predictor: Any,
        *,
        engine: str,
        input_names: Sequence[str],
        output_order: Sequence[int],
        per_thread_caches: bool,
        nbytes: int,
        notes: list[str],
        place: Any = None,
    ) -> None:
        """Takes over ``predictor``.

        Args:
            input_names: names of the captured inputs, in calling order.
            output_order: for each captured output, the number of the predictor's output.
            per_thread_caches: the predictor's memory grows with the number of calling threads.
            place: where the outputs are wanted; None for a predictor on the CPU.
        """
        self.engine = engine
        self.nbytes = nbytes
        self.notes = notes
        self._predictor: Any = predictor
        self._arity = len(input_names)
        self._feed_order = _positions(input_names, predictor.get_input_names())
        self._output_order = tuple(output_order)
        self._per_thread_caches = per_thread_caches
        self._place = place
        self._direct_threads: set[int] = set()
        self._lock = threading.Lock()
        with _forking:
            _LIVE.add(self)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        if self._per_thread_caches and not self._may_run_here():
            return _overflow_thread().submit(self._run, inputs).result()
        return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        if len(inputs) != self._arity:
            raise EngineError(f"{self.engine}: needs {self._arity} inputs, got {len(inputs)}")
        feeds = [dense(inputs[position]) for position in self._feed_order]
        with self._lock:
            if self._predictor is None:
                raise EngineError(f"{self.engine}: called after close()")
            threads = math_threads()
            try:
                with pd.operants_mode_kept():
                    results = self._predictor.run(feeds)
            except Exception as error:
                raise EngineError(f"{self.engine}: {error_summary(error)}") from error
            finally:
                pd.set_math_threads(threads)
            return [self._own_copy(results[number]) for number in self._output_order]

    def _own_copy(self, tensor: Any) -> Any:
        return _copy_of(tensor) if self._place is None else tensor._copy_to(self._place, True)

    def _may_run_here(self) -> bool:
        thread = threading.get_ident()
        if thread in self._direct_threads:
            return True
        if len(self._direct_threads) >= MAX_DIRECT_THREADS:
            return False
        self._direct_threads.add(thread)
        return True

    def coverage(self) -> list[OpShare]:
        """Empty: a predictor does not tell."""
        return []

    def close(self) -> None:
        """Frees the predictor; waits for a call that is running.  Idempotent."""
        with self._lock:
            self._predictor = None


def _positions(captured: Sequence[str], predictor: Sequence[str]) -> tuple[int, ...]:
    """For each predictor input, which captured input feeds it."""
    where = {name: index for index, name in enumerate(captured)}
    unknown = [name for name in predictor if name not in where]
    if unknown:
        raise EngineError(f"the predictor asks for inputs that were not captured: {unknown}")
    return tuple(where[name] for name in predictor)


def _copy_of(tensor: Any) -> Any:
    dtype = str(tensor.dtype).rsplit(".", 1)[-1].lower()
    if dtype in _NUMPY_DTYPES and tensor.size * tensor.element_size() >= LARGE_OUTPUT:
        return pd.adopt_array(np.from_dlpack(tensor).copy())
    return pd.copy_tensor(tensor)


def error_summary(error: BaseException) -> str:
    """The lines of a Paddle error that say what happened, without its C++ trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line.startswith(("(", "[Hint", "[", "ExternalError"))] or [
        x for x in lines if x
    ]
    return f"{type(error).__name__}: {' '.join(told[:3])[:500]}"


_LIVE: weakref.WeakSet[PredictorExecutable] = weakref.WeakSet()
_overflow: ThreadPoolExecutor | None = None


def _overflow_thread() -> ThreadPoolExecutor:
    """The one thread that runs predictors for callers beyond MAX_DIRECT_THREADS."""
    global _overflow
    if _overflow is None:
        _overflow = ThreadPoolExecutor(1, thread_name_prefix="pfb-predictor")
    return _overflow


#: Held during a fork, as two threads may fork at once, and by whoever changes ``_LIVE``.
_forking = threading.Lock()
_held: list[threading.Lock] = []


def _before_fork() -> None:
    """Waits until no predictor runs."""
    _forking.acquire()
    for executable in list(_LIVE):
        executable._lock.acquire()
        _held.append(executable._lock)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()
    _forking.release()


def _renew_after_fork() -> None:
    """In a forked child: the threads that held our locks, or ran predictors for us, are gone."""
    global _overflow, _forking
    _overflow = None
    _forking = threading.Lock()
    _held.clear()
    for executable in list(_LIVE):
        executable._lock = threading.Lock()
        executable._direct_threads = set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_renew_after_fork,
    )
