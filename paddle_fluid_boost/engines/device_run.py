"""A predictor on an accelerator as an Executable.

* It is bound to the shapes it was built for, open sizes aside: an Ascend compiles each operator for
  a shape, and another shape would compile inside the user's call.
* Inputs elsewhere are copied to the device, outputs to where eager mode leaves them.
* The first run, in which the device compiles, is told apart from the others.
* A run that fails, out of memory above all, gives its memory back before the caller falls back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from ..capture.program import Slot
from ..errors import EngineError
from ..hardware.devices import Device, device_of
from ..report.records import OpShare
from . import _paddle_devices as devices
from .device_memory import Share
from .lowered import Placement
from .paddle_inference_run import PredictorExecutable, error_summary


class DeviceExecutable:
    """One built predictor on ``device``; see :class:`engines.base.Executable`.

    placement: which ops run on the device, or None where Paddle does not tell.
    first_seconds: of the first run, the device's compiles included; 0.0 before it.
    """

    def __init__(
        self,
        inner: PredictorExecutable,
        device: Device,
        inputs: Sequence[Slot],
        share: Share,
        placement: Placement | None,
    ) -> None:
        """Takes over ``inner``, whose outputs come where they are wanted, and ``share``."""
        self.engine = inner.engine
        self.nbytes = inner.nbytes
        self.notes = inner.notes
        self.placement = placement
        self.first_seconds = 0.0
        self._inner = inner
        self._device = device
        self._place = devices.place_of(device)
        self._shapes = [list(slot.shape) for slot in inputs]
        self._share = share
        self._process = os.getpid()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        shapes = [list(tensor.shape) for tensor in inputs]
        if shapes != self._shapes and not _fit(shapes, self._shapes):
            raise EngineError(f"{self.engine}: built for {self._shapes}, called with {shapes}")
        if os.getpid() != self._process:
            raise EngineError(f"{self.engine}: {self._device} cannot be used after a fork")
        started = time.perf_counter()
        try:
            feeds = [self._there(tensor) for tensor in inputs]
            devices.synchronize(self._device)  # the predictor may have a queue of its own
            outputs = self._inner(feeds)
            devices.synchronize(self._device)
        except EngineError:
            self._give_up()
            raise
        except Exception as error:  # Paddle throws what the driver said as any of its errors
            self._give_up()
            raise EngineError(f"{self.engine}: {error_summary(error)}") from error
        if not self.first_seconds:
            self._note_first(time.perf_counter() - started)
        return outputs

    def _there(self, tensor: Any) -> Any:
        return (
            tensor if device_of(tensor) == self._device else (devices.copy_to(tensor, self._place))
        )

    def _note_first(self, seconds: float) -> None:
        self.first_seconds = seconds
        self.notes.append(f"its first run on {self._device} took {seconds * 1e3:.3g} ms")

    def _give_up(self) -> None:
        """Whoever falls back needs the memory that this one holds."""
        self.close()
        devices.give_back_cached_memory()

    def coverage(self) -> list[OpShare]:
        """Empty: a predictor does not tell times; :attr:`placement` and ``notes`` say where ops
        run."""
        return []

    def close(self) -> None:
        """Frees the predictor.  Idempotent."""
        self._inner.close()
        self._share.release()


def _fit(shapes: list[list[int]], built_for: list[list[int]]) -> bool:
    """Whether all sizes are those of ``built_for``, in which -1 may be any."""
    return list(map(len, shapes)) == list(map(len, built_for)) and all(
        want in (size, -1)
        for shape, wanted in zip(shapes, built_for)
        for size, want in zip(shape, wanted)
    )
