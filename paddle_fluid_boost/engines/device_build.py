"""What the engines for accelerators share: checks, the child process, the finished executable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..hardware.devices import CPU, Device, parse_device
from ..options import options
from . import _paddle as pd
from . import _paddle_devices as devices
from .device_memory import Share
from .device_run import DeviceExecutable
from .lowered import Placement
from .openmp import math_threads
from .paddle_inference import ITEM_BYTES, slot_bytes
from .paddle_inference_export import ExportedModel
from .paddle_inference_run import PredictorExecutable, error_summary
from .probe_client import PROBE, ProbeUnavailable


def wanted_device(captured: CapturedProgram) -> Device:
    """The device of the program, or for one on the CPU the device that the options ask for."""
    return parse_device(captured.device if captured.device != str(CPU) else options.device)


def check_program(engine: str, captured: CapturedProgram) -> None:
    """Raises EngineError where a predictor on an accelerator does not take the program: it has
    open shapes, or a dtype that predictors do not know."""
    for slot in (*captured.inputs, *captured.outputs):
        if slot.dtype not in ITEM_BYTES:
            raise EngineError(f"{engine}: '{slot.name}' has dtype {slot.dtype}")
    if any(size < 0 for slot in captured.inputs for size in slot.shape):
        raise EngineError(f"{engine}: needs fixed shapes, got {captured.inputs}")


@contextlib.contextmanager
def reserved(device: Device, nbytes: int) -> Iterator[Share]:
    """A share of the device's memory for what the block builds; given back where it fails.

    Raises EngineError where the limit leaves no room.
    """
    share = Share(str(device), nbytes)
    try:
        yield share
    except BaseException:
        share.release()
        raise


def survive(engine: str, device: Device, request: dict[str, Any], seconds: float = 0.0) -> None:
    """Raises EngineError unless the child process survives ``request`` and finds nothing wrong.

    Args:
        request: see ``probe_device.py`` and ``tensorrt_child.py``.
        seconds: to wait for it; 0 takes ``options.compile_timeout_s``.
    """
    try:
        verdict = PROBE.ask(request, seconds or options.compile_timeout_s)
    except ProbeUnavailable as error:
        raise EngineError(f"{engine}: cannot be probed: {error}") from error
    finally:
        PROBE.close()  # a child that lives on would hold its share of the device's memory
    if verdict is not None:
        raise EngineError(f"{engine}: on {device}, in a child process, it {verdict}")


def create(engine: str, make_config: Callable[[], Any]) -> Any:
    """A predictor; this thread's and MKL's number of threads is what it was."""
    threads = math_threads()
    try:
        return pd.paddle.inference.create_predictor(make_config())
    except EngineError:
        raise
    except Exception as error:
        devices.give_back_cached_memory()
        raise EngineError(f"{engine}: {error_summary(error)}") from error
    finally:
        pd.set_math_threads(threads)


def finished(
    captured: CapturedProgram,
    model: ExportedModel,
    predictor: Any,
    device: Device,
    share: Share,
    *,
    engine: str,
    notes: Sequence[str],
    placement: Placement | None = None,
) -> DeviceExecutable:
    """The executable around ``predictor``; it takes over ``share``."""
    notes = list(notes)
    if captured.device == str(CPU):
        moved = sum(slot_bytes(slot) for slot in (*captured.inputs, *captured.outputs))
        notes.append(f"inputs and outputs are copied in each call, {moved / 1024:.1f} KiB")
    inner = PredictorExecutable(
        predictor,
        engine=engine,
        input_names=[slot.name for slot in captured.inputs],
        output_order=model.output_order,
        per_thread_caches=False,
        nbytes=share.nbytes,
        notes=notes,
        place=devices.place_of(parse_device(captured.device)),
    )
    return DeviceExecutable(inner, device, captured.inputs, share, placement)
