"""Custom devices, Ascend NPUs above all, through Paddle Inference, as an engine."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..hardware.devices import CPU, Device, is_custom, parse_device
from ..options import options
from . import _paddle as pd
from . import _paddle_devices as devices
from .custom_device_config import make_custom_device_config, place_inputs
from .device_memory import Share, peak_bytes
from .device_run import DeviceExecutable
from .lowered import Placement, parse_lowered, placement
from .openmp import math_threads
from .paddle_inference import CSE, ITEM_BYTES, slot_bytes
from .paddle_inference_export import ExportedModel, exported
from .paddle_inference_run import PredictorExecutable, error_summary
from .probe_client import PROBE, ProbeUnavailable


class CustomDevice:
    """Builds predictors on custom devices.  Settings: ``device``, e.g. ``"npu:0"``."""

    name = "custom_device"

    def unavailable(self) -> str | None:
        """Why this engine cannot be used on this machine, or None when it can."""
        if not devices.custom_devices():
            return "no plug-in has registered a custom device with Paddle"
        if not hasattr(pd.paddle.inference.Config, "enable_custom_device"):
            return f"paddle.inference of Paddle {pd.paddle.__version__} knows no custom devices"
        return None

    def candidates(self, captured: CapturedProgram) -> list[dict[str, Any]]:
        """The device of the program, or for one on the CPU the device that the options ask for."""
        wanted = captured.device if captured.device != str(CPU) else options.device
        if any(0 in slot.shape for slot in captured.inputs):
            return []
        return [{"device": str(parse_device(wanted))}]

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> DeviceExecutable:
        """Builds a predictor on one device, after a child process has survived it.

        Raises:
            EngineError: the settings are wrong, the device is missing or has no room, the program
                has open shapes or a dtype that predictors do not take, the child process found it
                to be dangerous, or Paddle refused it.
        """
        device = _checked(settings)
        for slot in (*captured.inputs, *captured.outputs):
            if slot.dtype not in ITEM_BYTES:
                raise EngineError(f"{self.name}: '{slot.name}' has dtype {slot.dtype}")
        if any(size < 0 for slot in captured.inputs for size in slot.shape):
            raise EngineError(f"{self.name}: needs fixed shapes, got {captured.inputs}")
        with exported(captured, onednn=False) as model:
            nbytes = model.parameter_bytes + peak_bytes(captured)
            share = Share(str(device), nbytes)
            try:
                placed = os.path.join(os.path.dirname(model.model), "placed.json")
                place_inputs(model.model, placed, device)
                left_out = (CSE,) if model.predictor_outputs > 1 else ()
                where = _probe(captured, model, placed, device, left_out)
                predictor = _create(placed, model.params, device, left_out)
            except BaseException:
                share.release()
                raise
        notes = [f"Paddle Inference {pd.paddle.__version__} on {device}"]
        notes += where.notes() if where is not None else []
        if captured.device == str(CPU):
            moved = sum(slot_bytes(slot) for slot in (*captured.inputs, *captured.outputs))
            notes.append(f"inputs and outputs are copied in each call, {moved / 1024:.1f} KiB")
        inner = PredictorExecutable(
            predictor,
            engine=f"paddle_inference on {device}",
            input_names=[slot.name for slot in captured.inputs],
            output_order=model.output_order,
            per_thread_caches=False,
            nbytes=nbytes,
            notes=notes,
            place=devices.place_of(parse_device(captured.device)),
        )
        return DeviceExecutable(inner, device, captured.inputs, share, where)


def _checked(settings: dict[str, Any]) -> Device:
    """The device of ``settings``, which must exist: Paddle aborts the process where it does not."""
    if set(settings) != {"device"}:
        raise EngineError(f"custom_device: settings need device, got {settings}")
    device = parse_device(settings["device"])
    known = devices.custom_devices()
    if not is_custom(device.kind) or device not in known:
        names = ", ".join(map(str, known)) or "none"
        raise EngineError(f"custom_device: no device {device} is registered; known: {names}")
    return device


def _probe(
    captured: CapturedProgram,
    model: ExportedModel,
    placed: str,
    device: Device,
    left_out: tuple[str, ...],
) -> Placement | None:
    """Raises EngineError unless a child process survives this predictor; where its ops run."""
    if not options.probe_in_child:
        return None
    with tempfile.TemporaryDirectory(prefix="pfb-probe-") as folder:
        lowered = os.path.join(folder, "lowered.txt")
        request = {
            "model": model.model,
            "placed": placed,
            "params": model.params,
            "device": str(device),
            "left_out": list(left_out),
            "lowered": lowered,
            "inputs": [(slot.name, slot.shape, slot.dtype) for slot in captured.inputs],
        }
        try:
            verdict = PROBE.ask(request, options.compile_timeout_s)
        except ProbeUnavailable as error:
            raise EngineError(f"custom_device: cannot be probed: {error}") from error
        finally:
            PROBE.close()  # a child that lives on would hold its share of the device's memory
        if verdict is not None:
            raise EngineError(f"custom_device: on {device}, in a child process, it {verdict}")
        try:
            with open(lowered) as file:
                ops = parse_lowered(file.read())
        except (OSError, ValueError):  # this version of Paddle prints in another way
            return None
    return placement(ops, device.kind, devices.kernel_dtypes(device.kind))


def _create(placed: str, params: str, device: Device, left_out: tuple[str, ...]) -> Any:
    threads = math_threads()
    try:
        config = make_custom_device_config(placed, params, device, left_out)
        return pd.paddle.inference.create_predictor(config)
    except Exception as error:
        devices.give_back_cached_memory()
        raise EngineError(f"custom_device: {error_summary(error)}") from error
    finally:
        pd.set_math_threads(threads)
