"""Custom devices, Ascend NPUs above all, through Paddle Inference, as an engine."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..hardware.advice import accelerator_advice
from ..hardware.devices import Device, is_custom, parse_device
from ..options import options
from . import _paddle as pd
from . import _paddle_devices as devices
from .custom_device_config import make_custom_device_config, place_inputs
from .device_build import check_program, create, finished, reserved, survive, wanted_device
from .device_memory import peak_bytes
from .device_run import DeviceExecutable
from .lowered import Placement, parse_lowered, placement
from .paddle_inference import CSE
from .paddle_inference_export import ExportedModel, exported


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
        if any(0 in slot.shape for slot in captured.inputs):
            return []
        return [{"device": str(wanted_device(captured))}]

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> DeviceExecutable:
        """Builds a predictor on one device, after a child process has survived it.

        Raises:
            EngineError: the settings are wrong, the device is missing or has no room, the program
                has open shapes or a dtype that predictors do not take, the child process found it
                to be dangerous, or Paddle refused it.
        """
        device = _checked(settings)
        check_program(self.name, captured)
        with exported(captured, onednn=False) as model:
            left_out = accelerator_advice(device).avoid
            if model.predictor_outputs > 1:
                left_out = (CSE, *left_out)
            placed = os.path.join(os.path.dirname(model.model), "placed.json")
            with reserved(device, model.parameter_bytes + peak_bytes(captured)) as share:
                place_inputs(model.model, placed, device)
                where = _probe(captured, model, placed, device, left_out)
                predictor = create(
                    self.name,
                    lambda: make_custom_device_config(placed, model.params, device, left_out),
                )
                notes = [f"Paddle Inference {pd.paddle.__version__} on {device}"]
                notes += where.notes() if where is not None else []
                return finished(
                    captured,
                    model,
                    predictor,
                    device,
                    share,
                    engine=f"paddle_inference on {device}",
                    notes=notes,
                    placement=where,
                )


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
        survive(CustomDevice.name, device, request)
        try:
            with open(lowered) as file:
                ops = parse_lowered(file.read())
        except (OSError, ValueError):  # this version of Paddle prints in another way
            return None
    return placement(ops, device.kind, devices.kernel_dtypes(device.kind))
