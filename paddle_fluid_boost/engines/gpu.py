"""NVIDIA GPUs through Paddle Inference, with TensorRT where it is there, as an engine.

No GPU was at hand: the tests play Paddle's answers, and ``tests/devices/test_gpu.py`` waits for a
machine that has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..hardware.advice import Advice, accelerator_advice
from ..hardware.devices import Device, parse_device
from ..options import options
from . import _paddle as pd
from . import _paddle_devices as devices
from . import tensorrt
from .device_build import check_program, create, finished, reserved, survive, wanted_device
from .device_memory import peak_bytes
from .device_run import DeviceExecutable
from .gpu_config import PRECISIONS, GpuSettings, make_gpu_config
from .paddle_inference import CSE
from .paddle_inference_export import ExportedModel, exported

#: Less than float32 is offered only to a user who tolerates errors of its size.
_HALF_RTOL = 5e-3
#: MiB that Paddle's allocator takes at first where the library does not say.
_POOL_MB = 100


class Gpu:
    """Builds predictors on GPUs.

    Settings: ``device``, e.g. ``"gpu:0"``; ``precision``, a key of ``PRECISIONS``; ``tensorrt``
    (bool).
    """

    name = "gpu"

    def unavailable(self) -> str | None:
        """Why this engine cannot be used on this machine, or None when it can."""
        if not pd.paddle.is_compiled_with_cuda():
            return "this build of Paddle is one without CUDA"
        if pd.paddle.is_compiled_with_rocm():
            return "this build of Paddle is for ROCm, on which nothing here was ever tried"
        for name in ("enable_use_gpu", "use_gpu", "enable_new_ir", "enable_new_executor"):
            if not hasattr(pd.paddle.inference.Config, name):
                return f"paddle.inference.Config of Paddle {pd.paddle.__version__} has no {name}"
        try:
            found = devices.gpus()
        except (RuntimeError, OSError, ValueError) as error:  # what a broken driver gives
            return f"Paddle cannot count the GPUs: {error}"
        return None if found else "Paddle sees no GPU"

    def candidates(self, captured: CapturedProgram) -> list[dict[str, Any]]:
        """Plain predictors first, as one is soon built; TensorRT takes minutes, and is for the
        tuner, which looks at what serves much."""
        if any(0 in slot.shape for slot in captured.inputs):
            return []
        device = wanted_device(captured)
        precisions = ["float32", *_lower(captured, accelerator_advice(device))]
        ways = [False]
        if options.tensorrt and tensorrt.unavailable(device) is None:
            ways.append(True)
        return [
            {"device": str(device), "precision": precision, "tensorrt": way}
            for way in ways
            for precision in precisions
        ]

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> DeviceExecutable:
        """Builds a predictor on one GPU, after a child process has survived it.

        Raises:
            EngineError: the settings are wrong, the GPU is missing or has no room, TensorRT is
                asked for and missing, the program has open shapes or a dtype that predictors do not
                take, the child process found it to be dangerous, or Paddle refused it.
        """
        device = _checked(settings)
        check_program(self.name, captured)
        advice = accelerator_advice(device)
        notes = [f"Paddle Inference {pd.paddle.__version__} on {device}, {settings['precision']}"]
        with exported(captured, onednn=False) as model:
            left_out = _passes_to_leave_out(captured, advice)
            notes += [f"without {name}: the hardware library says so" for name in left_out]
            if model.predictor_outputs > 1:
                left_out = (CSE, *left_out)
            final = gpu_settings(device, settings["precision"], left_out)
            with reserved(device, model.parameter_bytes + peak_bytes(captured)) as share:
                files = (model.model, model.params)
                if settings["tensorrt"]:
                    identity = tensorrt.identity_of(captured)
                    program, params, said = tensorrt.converted(
                        files, identity, captured.inputs, final, advice
                    )
                    files = (program, params)
                    notes.append(said)
                if options.probe_in_child:
                    survive(self.name, device, _request(captured, model, files, final))
                predictor = create(self.name, lambda: make_gpu_config(*files, final))
                kind = "tensorrt" if settings["tensorrt"] else "paddle_inference"
                return finished(
                    captured,
                    model,
                    predictor,
                    device,
                    share,
                    engine=f"{kind} on {device}",
                    notes=notes,
                )


def _request(
    captured: CapturedProgram,
    model: ExportedModel,
    files: Sequence[str],
    settings: GpuSettings,
) -> dict[str, Any]:
    """What the child process is to try: the program of ``files`` beside a plain one on the CPU."""
    return {
        "model": model.model,
        "params": model.params,
        "gpu_model": files[0],
        "gpu_params": files[1],
        "device": f"gpu:{settings.number}",
        "gpu": settings.to_dict(),
        "inputs": [(slot.name, slot.shape, slot.dtype) for slot in captured.inputs],
    }


def gpu_settings(
    device: Device, precision: str = "float32", left_out: tuple[str, ...] = ()
) -> GpuSettings:
    """How a predictor on ``device`` is built, by what the hardware library says of it."""
    pool_mb = accelerator_advice(device).memory.get("pool_mb", _POOL_MB)
    return GpuSettings(device.number, precision, pool_mb, left_out)


def _lower(captured: CapturedProgram, advice: Advice) -> list[str]:
    """The types narrower than float32 that pay on this GPU, for a program in float32 whose user
    tolerates their errors."""
    if options.rtol < _HALF_RTOL or all(slot.dtype != "float32" for slot in captured.outputs):
        return []
    return [name for name in advice.pays() if name in PRECISIONS and name != "float32"]


def _passes_to_leave_out(captured: CapturedProgram, advice: Advice) -> tuple[str, ...]:
    """Paddle passes that the hardware library avoids on this GPU, or that would harm this program
    by a fault of this version of Paddle.

    Raises EngineError where the library says not to use Paddle Inference for it at all.
    """
    names = set(captured.op_names)
    faults = [
        fault
        for fault in advice.faults_of("paddle_inference", "gpu", pd.paddle.__version__)
        if not names.isdisjoint(fault.ops)
    ]
    hopeless = [fault.does for fault in faults if fault.avoid]
    if hopeless:
        raise EngineError(f"gpu: the hardware library knows a fault: {hopeless[0]}")
    harmful = [fault.leave_out for fault in faults if fault.leave_out]
    return tuple(dict.fromkeys([*harmful, *advice.avoid]))


def _checked(settings: dict[str, Any]) -> Device:
    """The GPU of ``settings``, which must exist."""
    if set(settings) != {"device", "precision", "tensorrt"}:
        raise EngineError(f"gpu: settings need device, precision and tensorrt, got {settings}")
    if settings["precision"] not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise EngineError(f"gpu: precision must be one of {known}, got {settings['precision']!r}")
    device = parse_device(settings["device"])
    known_devices = devices.gpus()
    if device not in known_devices:
        names = ", ".join(map(str, known_devices)) or "none"
        raise EngineError(f"gpu: there is no device {device}; Paddle sees: {names}")
    reason = tensorrt.unavailable(device) if settings["tensorrt"] else None
    if reason is not None:
        raise EngineError(f"gpu: {reason}")
    return device
