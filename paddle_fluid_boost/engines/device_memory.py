"""How much of an accelerator's memory compiled versions may hold, and how much they do."""

from __future__ import annotations

import threading
from math import prod
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..ir.graph import numpy_dtype
from ..options import options

_lock = threading.Lock()
_held: dict[str, int] = {}


class Share:
    """Part of a device's memory, counted against ``options.device_memory_mb`` until released."""

    def __init__(self, device: str, nbytes: int) -> None:
        """Raises EngineError where the limit leaves no room."""
        self._device = device
        self._nbytes = nbytes
        limit = options.device_memory_mb << 20
        with _lock:
            held = _held.get(device, 0)
            if limit and held + nbytes > limit:
                raise EngineError(
                    f"needs about {_mb(nbytes)} MiB on {device}, of which compiled versions hold "
                    f"{_mb(held)}; options.device_memory_mb allows {options.device_memory_mb}"
                )
            _held[device] = held + nbytes

    @property
    def nbytes(self) -> int:
        """What it counts for; 0 once released."""
        return self._nbytes

    def release(self) -> None:
        """Gives the part back.  Idempotent."""
        with _lock:
            _held[self._device] -= self._nbytes
            self._nbytes = 0


def held_bytes(device: str) -> int:
    """What compiled versions hold on ``device``, as estimated."""
    with _lock:
        return _held.get(device, 0)


def peak_bytes(captured: CapturedProgram) -> int:
    """What one run needs beside the parameters: the largest sum of values alive at one moment."""
    block = captured.program.global_block()
    last_use: dict[int, int] = {}
    ops = list(block.ops)
    for number, op in enumerate(ops):
        for source in op.operands_source():
            if source.initialized():
                last_use[source.id] = number
    for value in captured.output_values:
        last_use[value.id] = len(ops)
    dying: dict[int, int] = {}
    now = peak = 0
    for number, op in enumerate(ops):
        if op.name() == "builtin.parameter":
            continue
        for result in op.results():
            size = _nbytes(result)
            now += size
            end = last_use.get(result.id, number)
            dying[end] = dying.get(end, 0) + size
        peak = max(peak, now)
        now -= dying.pop(number, 0)
    return peak


def _nbytes(value: Any) -> int:
    if not value.initialized() or not value.is_dense_tensor_type():
        return 0
    width = numpy_dtype(str(value.dtype).rpartition(".")[2].lower()).itemsize
    return prod(max(int(size), 1) for size in value.shape) * width


def _mb(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f}"
