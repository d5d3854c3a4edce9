"""The names of Paddle about accelerators that the engines rely on, and nothing else.

Checked on PaddlePaddle 3.1.1, 3.2.2 and 3.3.1 with the simulated device of ``tests/devices``; what
concerns GPUs was run nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
from collections.abc import Iterator
from typing import Any

from ..hardware.devices import CPU, Device
from . import _paddle as pd

_KERNEL = re.compile(r"data_type\[(?:::phi::dtype::)?(\w+)\].*place\[Place\((\w+)")
#: C++ names of dtypes in the kernel registry -> numpy's.
_DTYPES = {"float": "float32", "double": "float64", "int": "int32"}
_KERNELS = "_get_all_register_op_kernels"  # of paddle.base.core; missing in its stubs
_PRINT_IR = "FLAGS_print_ir"


def custom_devices() -> list[Device]:
    """The custom devices that plug-ins have registered, in Paddle's order."""
    if not pd.core.get_all_custom_device_type():
        return []
    return [Device(*_split(name)) for name in pd.core.get_available_custom_device()]


def gpus() -> list[Device]:
    """The NVIDIA GPUs that this build of Paddle can use.

    Raises what Paddle does with a broken driver: RuntimeError, OSError or ValueError.
    """
    if not pd.paddle.is_compiled_with_cuda():
        return []
    return [Device("gpu", number) for number in range(pd.paddle.device.cuda.device_count())]


def tensorrt_version() -> tuple[int, ...]:
    """The version of TensorRT's library as it is installed; zeros where there is none.

    Ask only a build of Paddle that was compiled with it.
    """
    return tuple(pd.paddle.inference.get_trt_runtime_version())


def _split(name: str) -> tuple[str, int]:
    kind, _, number = name.partition(":")
    return kind, int(number or 0)


def place_of(device: Device) -> Any:
    """Paddle's object for ``device``."""
    if device == CPU:
        return pd.paddle.CPUPlace()
    if device.kind == "gpu":
        return pd.paddle.CUDAPlace(device.number)
    return pd.paddle.CustomPlace(device.kind, device.number)


def copy_to(tensor: Any, place: Any) -> Any:
    """A copy of ``tensor`` on ``place``, finished when this returns; no gradient."""
    return tensor.detach()._copy_to(place, True)


def synchronize(device: Device) -> None:
    """Waits until the device has done what it was asked to."""
    pd.paddle.device.synchronize(str(device))


def give_back_cached_memory() -> None:
    """Frees what Paddle's allocators keep of the accelerators for later."""
    release = getattr(pd.paddle.device, "empty_cache", None)  # 3.1 knows it for GPUs only
    if release is not None:
        release()
    elif pd.paddle.is_compiled_with_cuda():
        pd.paddle.device.cuda.empty_cache()


@functools.cache
def kernel_dtypes(kind: str) -> dict[str, frozenset[str]]:
    """Kernel name -> the dtypes (numpy's names) for which devices of ``kind`` have it."""
    found: dict[str, set[str]] = {}
    for name, keys in getattr(pd.core, _KERNELS)("phi").items():
        for key in keys:
            match = _KERNEL.search(key)
            if match is not None and match[2] == kind:
                found.setdefault(name, set()).add(
                    _DTYPES.get(match[1], match[1].removesuffix("_t"))
                )
    return {name: frozenset(dtypes) for name, dtypes in found.items()}


@contextlib.contextmanager
def lowered_programs_printed(path: str) -> Iterator[None]:
    """Lets Paddle print every program it lowers meanwhile, and this process's standard output, to
    the file ``path``.  For a child process: standard output belongs to all threads."""
    before = pd.paddle.get_flags([_PRINT_IR])
    standard = os.dup(1)
    with open(path, "w") as file:
        os.dup2(file.fileno(), 1)
        pd.paddle.set_flags({_PRINT_IR: True})
        try:
            yield
        finally:
            pd.paddle.set_flags(before)
            ctypes.CDLL(None).fflush(None)
            os.dup2(standard, 1)
            os.close(standard)
