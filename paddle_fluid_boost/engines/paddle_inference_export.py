"""A captured program as the two files that Paddle Inference loads.

Paddle's own export is not used: ``normalize_program`` takes an output ``x + 1`` for ``x`` (it
skips a last ``scale`` of 1.0 and forgets the bias), fails on an output that is fetched twice and
drops inputs that are not read; ``save_vars`` goes through the global scope; and the C++ writer
holds the interpreter lock for as long as it writes (2.3 s for VGG16).
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import Any

import numpy as np

from ..capture.lock import STATIC_LOCK
from ..capture.program import CapturedProgram
from ..errors import EngineError
from ..ir.graph import numpy_dtype
from . import _paddle as pd
from .dense import on_host

#: Numbers of ``framework.proto``'s ``VarType.Type``, by numpy's name of the dtype.
_PROTO_TYPE = {
    "bool": 0,
    "int16": 1,
    "int32": 2,
    "int64": 3,
    "float16": 4,
    "float32": 5,
    "float64": 6,
    "uint8": 20,
    "int8": 21,
    "bfloat16": 22,
    "complex64": 23,
    "complex128": 24,
}
#: dtypes whose memory numpy can look at without a copy on every numpy that we meet.
_SHARED_WITH_NUMPY = ("float16", "float32", "float64", "int32", "int64", "uint8", "int8", "int16")
_CHUNK = 64 << 20


@dataclass(frozen=True)
class ExportedModel:
    """Files on disk, alive inside :func:`exported` only.

    model / params: paths of the program and of its parameters; ``params`` is "" without any.
    output_order: for each captured output, the number of the predictor output that holds it.
    parameter_bytes: size of all parameters.
    """

    model: str
    params: str
    output_order: tuple[int, ...]
    parameter_bytes: int

    @property
    def predictor_outputs(self) -> int:
        """Number of distinct outputs."""
        return len(set(self.output_order))


@contextmanager
def exported(captured: CapturedProgram, *, onednn: bool) -> Iterator[ExportedModel]:
    """Writes ``captured`` to files of its own that are gone when the ``with`` block ends.

    Args:
        onednn: spell the program in the way that suits Paddle's oneDNN path.

    Raises:
        EngineError: a parameter or output has a form that cannot be saved.
    """
    values, output_order = _distinct(captured.output_values)
    names = [f"pfb_out_{index}" for index in range(len(values))]
    parameters = _parameters_of(captured)
    size = sum(_nbytes(tensor) for tensor in parameters.values())
    with tempfile.TemporaryDirectory(prefix="pfb-") as folder:
        model = os.path.join(folder, "model.json")
        with STATIC_LOCK:
            program = pd.clone_with_fetches(captured.program, values, names)
            if onednn:
                pd.spell_out_means(program)
            # trainable=True: without it 3.3.1 leaves out attributes whose absence crashes loading.
            pd.serialize_pir_program(program, model, True, False, True)
        with _parameter_file(folder) as (file, path):
            write_parameters(parameters, file)
            yield ExportedModel(model, path if parameters else "", output_order, size)


def write_model(
    captured: CapturedProgram,
    model: str,
    params: str,
    names: Sequence[str],
    *,
    edit: Callable[[Any], Any] | None = None,
) -> None:
    """Writes ``captured`` to stay: the program to ``model``, its parameters, if any, to ``params``.

    Args:
        names: one for each of ``captured.output_values``, which must be distinct values.
        edit: changes the copy that is written, in place, before it is.

    Raises:
        EngineError: a parameter has a form that cannot be saved.
    """
    with STATIC_LOCK:
        program = pd.clone_with_fetches(captured.program, captured.output_values, names)
        if edit is not None:
            edit(program)
        # trainable=True: without it 3.3.1 leaves out attributes whose absence crashes loading.
        pd.serialize_pir_program(program, model, True, False, True)
        used = _parameter_names(program)
    missing = sorted(used - captured.parameters.keys())
    if missing:
        raise EngineError(f"parameters of the program without a tensor: {', '.join(missing)}")
    if used:
        with FileIO(params, "wb") as file:
            write_parameters({name: captured.parameters[name] for name in used}, file)


def _parameter_names(program: Any) -> set[str]:
    ops = program.global_block().ops
    return {op.attrs()["parameter_name"] for op in ops if op.name() == "builtin.parameter"}


@contextmanager
def _parameter_file(folder: str) -> Iterator[tuple[FileIO, str]]:
    """A file and its path: in memory on Linux, so that a killed process leaves no weights behind
    and a small ``/dev/shm`` does not matter; elsewhere in ``folder``."""
    if hasattr(os, "memfd_create"):
        with FileIO(os.memfd_create("pfb-parameters"), "wb") as file:
            path = f"/proc/{os.getpid()}/fd/{file.fileno()}"  # a probe child opens it, too
            if os.path.exists(path):
                yield file, path
                return
    path = os.path.join(folder, "model.pdiparams")
    with FileIO(path, "wb") as file:
        yield file, path


def write_parameters(parameters: Mapping[str, Any], file: FileIO) -> None:
    """Writes tensors in the format of ``.pdiparams``, ordered by name as the loader expects.

    The interpreter lock is free during the writes.
    """
    for name in sorted(parameters):
        _write_tensor(file, name, parameters[name])


def _write_tensor(file: FileIO, name: str, tensor: Any) -> None:
    dtype = _dtype_name(tensor)
    if dtype not in _PROTO_TYPE:
        raise EngineError(f"parameter '{name}': dtype {dtype} cannot be saved")
    shape = [int(n) for n in tensor.shape]
    description = b"\x08" + _varint(_PROTO_TYPE[dtype])
    description += b"".join(b"\x10" + _varint(n) for n in shape)
    # Stream version, levels of detail (none), tensor version, length of the description.
    file.write(struct.pack("<IQIi", 0, 0, 0, len(description)) + description)
    content = _content(tensor, dtype, shape).reshape(-1).view(np.uint8)
    written = 0
    while written < content.size:
        written += file.write(content[written : written + _CHUNK].data)


def _content(tensor: Any, dtype: str, shape: list[int]) -> np.ndarray:
    """The values of ``tensor`` as a C-contiguous array, without a copy where possible."""
    if not tensor._is_initialized():
        # A buffer that inference never reads, such as the dropout state of an RNN.
        return np.zeros(shape, numpy_dtype(dtype))
    tensor = on_host(tensor)
    if dtype in _SHARED_WITH_NUMPY:
        return np.from_dlpack(tensor.detach())
    return np.ascontiguousarray(tensor.numpy())


def _varint(number: int) -> bytes:
    """``number`` >= 0 in protobuf's variable-length form."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).rsplit(".", 1)[-1].lower()


def _nbytes(tensor: Any) -> int:
    width = numpy_dtype(_dtype_name(tensor)).itemsize
    return int(np.prod(tensor.shape, dtype=np.int64)) * width


def _parameters_of(captured: CapturedProgram) -> dict[str, Any]:
    """The live tensors of exactly the parameters that the program reads."""
    parameters = {}
    for op in captured.program.global_block().ops:
        if op.name() == "builtin.parameter":
            name = op.attrs()["parameter_name"]
            if name not in captured.parameters:
                raise EngineError(f"parameter '{name}' of the program has no tensor")
            parameters[name] = captured.parameters[name]
    return parameters


def _distinct(values: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """``values`` without repetitions, and where each of ``values`` is among them.

    A predictor cannot fetch one value under two names.
    """
    distinct: list[Any] = []
    order = []
    for value in values:
        for index, other in enumerate(distinct):
            if value.is_same(other):
                order.append(index)
                break
        else:
            order.append(len(distinct))
            distinct.append(value)
    return distinct, tuple(order)
