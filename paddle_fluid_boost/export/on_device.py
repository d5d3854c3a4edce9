"""A bundle's Paddle model on an accelerator, for ``pfb.load(path, device=...)``.

The model's sizes stay open; TensorRT gets them as ranges: those with which the model was exported,
which, where nobody named any, are the sizes that the plugin has seen in calls.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..capture.program import Slot
from ..engines import _paddle_devices as devices
from ..engines import tensorrt
from ..engines.custom_device import CustomDevice
from ..engines.custom_device_config import make_custom_device_config, place_inputs
from ..engines.device_build import create, reserved, survive
from ..engines.device_run import DeviceExecutable
from ..engines.gpu import Gpu, gpu_settings
from ..engines.gpu_config import make_gpu_config
from ..engines.paddle_inference_run import PredictorExecutable
from ..errors import EngineError
from ..hardware.advice import accelerator_advice
from ..hardware.devices import Device, is_custom
from ..options import options
from .other_runtimes import MODEL, PARAMS

Shapes = Sequence[Sequence[int]]


def check_device(device: Device, *, with_tensorrt: bool) -> None:
    """Raises EngineError unless a model can be put on ``device``, with TensorRT or without."""
    engine = CustomDevice() if is_custom(device.kind) else Gpu()
    if not is_custom(device.kind) and device.kind != "gpu":
        raise EngineError(f"load: no engine serves device '{device}'")
    reason = engine.unavailable()
    known = [] if reason else devices.gpus() if device.kind == "gpu" else devices.custom_devices()
    if reason is None and device not in known:
        reason = f"there is no such device; Paddle has: {', '.join(map(str, known)) or 'none'}"
    if reason is None and with_tensorrt:
        reason = tensorrt.unavailable(device)
    if reason is not None:
        raise EngineError(f"load: device '{device}': {reason}")


def open_on_device(
    contents: Mapping[str, bytes],
    inputs: Sequence[Mapping[str, Any]],
    outputs: int,
    device: Device,
    example: Shapes,
    ranges: Mapping[str, Sequence[int]],
    *,
    with_tensorrt: bool,
) -> DeviceExecutable:
    """The model on ``device``, after a child process has survived it; results stay there.

    Args:
        contents: the bundle's files by name.
        inputs: name, dtype and dims of each; a name among dims is a size that may vary.
        outputs: how many there are.
        example: shapes for the child process.
        ranges: sizes for the names among dims, the usual one first.

    Raises:
        EngineError: the device has no room, the child process found the model to be dangerous, or
            Paddle or TensorRT refused it.
    """
    slots = [
        Slot(one["name"], tuple(n if isinstance(n, int) else -1 for n in one["dims"]), one["dtype"])
        for one in inputs
    ]
    with tempfile.TemporaryDirectory(prefix="pfb-load-") as folder:
        files = _write(contents, folder)
        with reserved(device, len(contents.get(PARAMS, b""))) as share:
            if device.kind == "gpu":
                seen = seen_shapes(inputs, ranges) if with_tensorrt else None
                make, request = _for_gpu(files, contents, slots, device, seen)
            else:
                make, request = _for_custom_device(files, device, folder)
            if options.probe_in_child:
                of_all = [(one.name, list(shape), one.dtype) for one, shape in zip(slots, example)]
                request.update(model=files[0], params=files[1], device=str(device), inputs=of_all)
                survive("load", device, request)
            inner = PredictorExecutable(
                create("load", make),
                engine=f"{'tensorrt' if with_tensorrt else 'paddle_inference'} on {device}",
                input_names=[slot.name for slot in slots],
                output_order=range(outputs),
                per_thread_caches=False,
                nbytes=share.nbytes,
                notes=[],
                place=devices.place_of(device),
            )
            return DeviceExecutable(inner, device, slots, share, None)


def _for_gpu(
    files: tuple[str, str],
    contents: Mapping[str, bytes],
    slots: Sequence[Slot],
    device: Device,
    seen: Sequence[Sequence[tuple[int, ...]]] | None,
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What makes the Config, and the part of the child's request that is a GPU's own; with
    ``seen`` the program is one for TensorRT."""
    settings = gpu_settings(device)
    program, params = files
    if seen is not None:
        digests = [hashlib.sha256(contents.get(n, b"")).hexdigest() for n in (MODEL, PARAMS)]
        advice = accelerator_advice(device)
        program, params, _ = tensorrt.converted(files, digests, slots, settings, advice, seen)
    request = {"gpu": settings.to_dict(), "gpu_model": program, "gpu_params": params}
    return lambda: make_gpu_config(program, params, settings), request


def _for_custom_device(
    files: tuple[str, str], device: Device, folder: str
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The same for a custom device; ``folder`` is for files that go soon."""
    left_out = accelerator_advice(device).avoid
    placed = os.path.join(folder, "placed.json")
    place_inputs(files[0], placed, device)
    lowered = os.path.join(folder, "lowered.txt")
    request = {"placed": placed, "left_out": list(left_out), "lowered": lowered}
    return lambda: make_custom_device_config(placed, files[1], device, left_out), request


def seen_shapes(
    inputs: Sequence[Mapping[str, Any]], ranges: Mapping[str, Sequence[int]]
) -> list[tuple[tuple[int, ...], ...]]:
    """Shapes of all inputs that together show every size in ``ranges``, the usual ones first."""
    count = max((len(sizes) for sizes in ranges.values()), default=1)

    def size(dim: int | str, number: int) -> int:
        if isinstance(dim, int):
            return dim
        if not ranges.get(dim):
            raise EngineError(f"load: the bundle does not say which sizes '{dim}' may have")
        return int(ranges[dim][min(number, len(ranges[dim]) - 1)])

    return [
        tuple(tuple(size(dim, number) for dim in one["dims"]) for one in inputs)
        for number in range(count)
    ]


def _write(contents: Mapping[str, bytes], folder: str) -> tuple[str, str]:
    """Paths of the program and, "" without any, its parameters."""
    model, params = os.path.join(folder, "model.json"), os.path.join(folder, "model.pdiparams")
    for path, name in ((model, MODEL), (params, PARAMS)):
        if name in contents:
            with open(path, "wb") as file:
                file.write(contents[name])
    return model, params if PARAMS in contents else ""
