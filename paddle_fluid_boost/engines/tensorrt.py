"""Programs for TensorRT: converted by Paddle in a child process, kept on disk.

A PIR program meets TensorRT through ``paddle.tensorrt.export.convert``, which replaces what
TensorRT can run by ``tensorrt_engine`` ops and writes the program anew, the built engines beside
it.  That takes minutes, changes flags and the global scope of its process, and always works on
GPU 0: so a child process does it.  The interface is that of Paddle 3.0 to 3.3, as published; the
CPU builds do not contain it, and it was run nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..cache import folders
from ..cache.programs import program_key
from ..cache.surroundings import key, surroundings
from ..capture.program import CapturedProgram, Slot
from ..errors import EngineError
from ..hardware.advice import Advice
from ..hardware.devices import Device
from ..hardware.modules import installed
from ..hardware.probe import probe
from . import _paddle as pd
from . import _paddle_devices as devices
from .dense import fingerprint
from .device_build import survive
from .gpu_config import GpuSettings

_KIND = "tensorrt"
#: Seconds that TensorRT may take to build its engines.
_BUILD_SECONDS = 1800.0
#: Where the library does not say: MiB for choosing kernels, and ops that make a part worth it.
_WORKSPACE_MB, _SMALLEST_PART = 1024, 3

Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def unavailable(device: Device) -> str | None:
    """Why TensorRT cannot be used on ``device``, or None when it can."""
    if not any(pd.paddle.inference.get_trt_compile_version()):
        return "this build of Paddle has no TensorRT"
    for name in ("paddle.tensorrt", "tensorrt"):
        if not installed(name):
            return f"the module {name}, which converts programs for TensorRT, is not installed"
    try:
        version = devices.tensorrt_version()
    except (RuntimeError, OSError) as error:
        return f"TensorRT's library cannot be loaded: {error}"
    if not any(version):
        return "TensorRT's library is not installed"
    if device.number:
        names = {gpu.index: gpu.name for gpu in probe().gpus}
        if names.get(device.number) != names.get(0):
            return f"Paddle builds for gpu:0, and {device} is another kind of GPU"
    return None


def shape_ranges(
    inputs: Sequence[Slot], seen: Sequence[Sequence[tuple[int, ...]]] = ()
) -> dict[str, Range]:
    """The smallest, the usual and the largest shape of every input by its name.

    Args:
        inputs: what enters the program; -1 marks a size that varies.
        seen: the shapes of all inputs in calls that were learned, the most frequent first.

    Raises:
        EngineError: a size varies and no call tells how.
    """
    ranges = {}
    for position, slot in enumerate(inputs):
        sizes = []
        for axis, size in enumerate(slot.shape):
            known = [size] if size >= 0 else [shapes[position][axis] for shapes in seen]
            if not known:
                raise EngineError(
                    f"gpu: TensorRT needs a range for dimension {axis} of '{slot.name}', and no "
                    "call has shown one"
                )
            sizes.append((min(known), known[0], max(known)))
        low, usual, high = zip(*sizes) if sizes else ((), (), ())
        ranges[slot.name] = (tuple(low), tuple(usual), tuple(high))
    return ranges


def converted(
    files: tuple[str, str],
    identity: Any,
    inputs: Sequence[Slot],
    settings: GpuSettings,
    advice: Advice,
    seen: Sequence[Sequence[tuple[int, ...]]] = (),
) -> tuple[str, str, str]:
    """The paths of program and parameters for TensorRT, and a note for ``explain``.

    Kept on disk for this program with these weights and ranges, this GPU and this software.

    Args:
        files: paths of the program and, "" without any, its parameters.
        identity: plain values that are equal for the same program with the same weights alone.
        inputs, seen: as for :func:`shape_ranges`.

    Raises:
        EngineError: there is no place to keep it, or the child process could not build it.
    """
    if not files[1]:
        raise EngineError("gpu: Paddle converts no program without parameters for TensorRT")
    ranges = shape_ranges(inputs, seen)
    plan = {
        "workspace": advice.tensorrt.get("workspace_mb", _WORKSPACE_MB) << 20,
        "smallest_part": advice.tensorrt.get("smallest_part", _SMALLEST_PART),
        "precision": settings.precision,
        "left_out": list(settings.left_out),
        "inputs": [
            {"name": slot.name, "dtype": slot.dtype, "range": ranges[slot.name]} for slot in inputs
        ],
    }
    name = _name(identity, settings.number, plan)
    found = folders.find(_KIND, name)
    if found is not None:
        return (*_files(found), "TensorRT engines from the on-disk cache")
    return (*_build(files, settings.number, plan, name), "TensorRT engines built anew")


def identity_of(captured: CapturedProgram) -> Any:
    """What :func:`converted` knows a captured program by."""
    return [program_key(captured), [fingerprint(one) for one in captured.parameters.values()]]


def _name(identity: Any, number: int, plan: Mapping[str, Any]) -> str:
    """Engines hold the weights, and fit one kind of GPU, driver and version of TensorRT."""
    gpu = next((gpu for gpu in probe().gpus if gpu.index == number), None)
    kind = None if gpu is None else (gpu.name, gpu.capability, gpu.memory, gpu.driver)
    version = devices.tensorrt_version()
    return key(_KIND, identity, plan, kind, version, surroundings())


def _build(
    source: tuple[str, str], number: int, plan: dict[str, Any], name: str
) -> tuple[str, str]:
    try:
        folder = folders.create(_KIND)
    except OSError as error:
        raise EngineError(f"gpu: no place for TensorRT engines: {error}") from error
    try:
        request = {**plan, "model": source[0], "params": source[1], "folder": str(folder)}
        survive("gpu", Device("gpu", number), {"tensorrt": request}, _BUILD_SECONDS)
        files = _files(str(folder))
        if not os.path.exists(files[0]):
            raise EngineError("gpu: Paddle's conversion for TensorRT has written no program")
        about = {"inputs": [f"{one['name']} {one['range']}" for one in plan["inputs"]]}
        if not folders.keep(_KIND, name, folder, about):
            raise EngineError("gpu: TensorRT engines cannot be kept in the on-disk cache")
    except BaseException:
        folders.discard(folder)
        raise
    return files


def _files(folder: Any) -> tuple[str, str]:
    """Paths of the program and, "" where it has none left, its parameters."""
    model, params = (os.path.join(folder, f"model.{end}") for end in ("json", "pdiparams"))
    return model, params if os.path.exists(params) else ""
