"""The part of Protocol Buffers that an ONNX model needs: messages are written, never read.

Field numbers are those of ``onnx.proto`` (public, unchanged since ONNX 1.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Union

import numpy as np

_VARINT, _BYTES, _FIXED32 = 0, 2, 5

#: numpy's name of a dtype -> ``TensorProto.DataType``.
ELEMENT_TYPE = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float64": 11,
}

Attribute = Union[int, float, str, Sequence[int], Sequence[str]]


class Message:
    """A message under construction; large contents are kept by reference until :meth:`join`."""

    def __init__(self) -> None:
        self._chunks: list[Any] = []
        self._size = 0

    def number(self, field: int, value: int) -> Message:
        """An integer."""
        self._append(_varint(field << 3 | _VARINT) + _varint(value & (1 << 64) - 1))
        return self

    def real(self, field: int, value: float) -> Message:
        """A float of 32 bits."""
        self._append(_varint(field << 3 | _FIXED32) + struct.pack("<f", value))
        return self

    def text(self, field: int, value: str) -> Message:
        """A string."""
        return self.raw(field, value.encode())

    def raw(self, field: int, value: Any) -> Message:
        """Bytes, or a memoryview of them."""
        self._append(_varint(field << 3 | _BYTES) + _varint(len(value)))
        self._append(value)
        return self

    def message(self, field: int, value: Message) -> Message:
        """Another message."""
        self._append(_varint(field << 3 | _BYTES) + _varint(value._size))
        self._chunks += value._chunks
        self._size += value._size
        return self

    def join(self) -> bytes:
        """The message as bytes."""
        return b"".join(self._chunks)

    def _append(self, chunk: Any) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def tensor(name: str, array: np.ndarray) -> Message:
    """A ``TensorProto`` with the content of a C-contiguous array."""
    made = _tensor_head(name, array)
    return made.raw(9, array.reshape(-1).view("uint8").data)


def absent_tensor(name: str, array: np.ndarray) -> Message:
    """A ``TensorProto`` of the form of ``array`` whose content its reader is given otherwise."""
    location = Message().text(1, "location").text(2, name)
    return _tensor_head(name, array).message(13, location).number(14, 1)


def _tensor_head(name: str, array: np.ndarray) -> Message:
    made = Message()
    for side in array.shape:
        made.number(1, side)
    return made.number(2, ELEMENT_TYPE[str(array.dtype)]).text(8, name)


def value_info(name: str, shape: Iterable[int], dtype: str) -> Message:
    """A ``ValueInfoProto`` of a tensor."""
    sides = Message()
    for side in shape:
        sides.message(1, Message().number(1, side))
    form = Message().number(1, ELEMENT_TYPE[dtype]).message(2, sides)
    return Message().text(1, name).message(2, Message().message(1, form))


def node(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: dict[str, Attribute],
    domain: str = "",
) -> Message:
    """A ``NodeProto``; an input or output called "" is left out."""
    made = Message()
    for name in inputs:
        made.text(1, name)
    for name in outputs:
        made.text(2, name)
    made.text(4, op)
    for name, value in attributes.items():
        made.message(5, _attribute(name, value))
    return made.text(7, domain) if domain else made


def _attribute(name: str, value: Attribute) -> Message:
    made = Message().text(1, name)
    if isinstance(value, str):
        return made.text(4, value).number(20, 3)
    if isinstance(value, float):
        return made.real(2, value).number(20, 1)
    if isinstance(value, (int, np.integer)):
        return made.number(3, int(value)).number(20, 2)
    if any(isinstance(item, str) for item in value):
        for item in value:
            made.text(9, str(item))
        return made.number(20, 8)
    for item in value:
        made.number(8, int(item))
    return made.number(20, 7)


def model(graph: Message, opset: int, ir_version: int) -> Message:
    """A ``ModelProto``, with Microsoft's operators beside the standard ones."""
    made = Message().number(1, ir_version).text(2, "paddle_fluid_boost").message(7, graph)
    made.message(8, Message().text(1, "").number(2, opset))
    return made.message(8, Message().text(1, "com.microsoft").number(2, 1))
