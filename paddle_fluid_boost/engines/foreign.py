"""What engines that wrap another project's runtime share: the graph, tensors over the same memory,
closing, and forks.

Inputs are read where Paddle holds them and outputs written into fresh tensors of Paddle, so that
nothing is copied on the way and every tensor's lifetime is Paddle's own.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..hardware.advice import most_threads
from ..ir.graph import Graph, numpy_dtype
from ..ir.importer import import_program
from ..options import options
from ..passes.pipeline import optimise
from ..report.records import OpShare
from . import _paddle as pd
from .dense import dense


def thread_settings() -> list[dict[str, Any]]:
    """The one candidate of these engines; the tuner tries fewer threads itself."""
    return [{"threads": options.threads or most_threads()}]


def checked_threads(engine: str, settings: dict[str, Any]) -> int:
    """The number of threads that ``settings`` ask for; EngineError when they are not understood."""
    if set(settings) != {"threads"}:
        raise EngineError(f"{engine}: settings need threads and nothing else, got {settings}")
    threads = settings["threads"]
    if type(threads) is not int or threads < 1:
        raise EngineError(f"{engine}: threads must be an int of at least 1, got {threads!r}")
    return threads


def optimised_graph(captured: CapturedProgram) -> tuple[Graph, list[str]]:
    """The program's graph after the passes, and a note for each that fired."""
    graph = import_program(captured)
    records = optimise(graph)
    return graph, [
        f"pass {record.name}: fired {record.fired}" for record in records if record.fired
    ]


class ForeignExecutable:
    """A program built by another runtime; see :class:`engines.base.Executable`.

    Subclasses say in :meth:`_run` how ``held``, what the runtime built, runs.

    has_threads: it starts threads, which a forked child does not have.
    """

    def __init__(
        self,
        engine: str,
        held: Any,
        graph: Graph,
        *,
        has_threads: bool,
        nbytes: int,
        notes: Sequence[str],
    ) -> None:
        self.engine = engine
        self.nbytes = nbytes
        self.notes = list(notes)
        self._held: Any = held
        self._gone = "is closed"
        self._has_threads = has_threads
        self._inputs = [(list(v.shape), pd.dtype_of(v.dtype)) for v in graph.inputs]
        self._outputs = [(list(v.shape), pd.dtype_of(v.dtype)) for v in graph.outputs]
        self._item_sizes = [numpy_dtype(value.dtype).itemsize for value in graph.inputs]
        _LIVE.add(self)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs on dense eager CPU tensors that match the program's input slots.

        Raises EngineError when the executable is closed or an input has another shape or dtype.
        """
        held = self._held  # in one step: another thread may close meanwhile
        if held is None:
            raise EngineError(f"{self.engine}: the executable {self._gone}")
        given = self._checked(inputs)
        outputs = [pd.empty_tensor(shape, dtype) for shape, dtype in self._outputs]
        self._run(held, given, outputs)
        return outputs

    def _run(self, held: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs once, from ``inputs`` into the memory of ``outputs``.  Several at once may run."""
        raise NotImplementedError

    def _checked(self, inputs: Sequence[Any]) -> list[Any]:
        if len(inputs) != len(self._inputs):
            raise EngineError(f"{self.engine}: needs {len(self._inputs)} inputs, got {len(inputs)}")
        given = []
        for i, (tensor, (shape, dtype)) in enumerate(zip(inputs, self._inputs)):
            if tensor.shape != shape or tensor.dtype != dtype:
                raise EngineError(
                    f"{self.engine}: input {i} must be {dtype}{shape}, "
                    f"got {tensor.dtype}{list(tensor.shape)}"
                )
            tensor = dense(tensor)
            if tensor.data_ptr() % self._item_sizes[i]:  # shared from memory of somebody else
                tensor = tensor.detach().clone()
            given.append(tensor)
        return given

    def coverage(self) -> list[OpShare]:
        """Empty: these runtimes do not tell."""
        return []

    def close(self) -> None:
        """Frees everything once running calls have ended; a later call raises EngineError.
        Idempotent."""
        self._held = None

    def _stay_with_parent(self) -> None:
        """In a forked child: the runtime's threads are the parent's, and freeing it would wait for
        them for ever."""
        if self._has_threads and self._held is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._held))
            self._held = None
            self._gone = "has its threads in the process that forked this one"


def array_over(tensor: Any, dtype: str) -> np.ndarray:
    """The memory of a dense CPU tensor as an array, which keeps the tensor alive in nothing: hold
    one."""
    of_numpy = numpy_dtype(dtype)
    shape = tensor.shape
    memory = (ctypes.c_char * (prod(shape) * of_numpy.itemsize)).from_address(tensor.data_ptr())
    return np.frombuffer(memory, of_numpy).reshape(shape)


def told(error: Exception) -> str:
    """What an exception of a runtime says, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def bytes_of(graph: Graph) -> int:
    """An estimate of what a runtime holds for ``graph``: its constants, and inputs and outputs."""
    return sum(
        prod(value.shape) * numpy_dtype(value.dtype).itemsize
        for value in (*graph.constants, *graph.inputs, *graph.outputs)
    )


_LIVE: weakref.WeakSet[ForeignExecutable] = weakref.WeakSet()


def _after_fork() -> None:
    for executable in list(_LIVE):
        executable._stay_with_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
