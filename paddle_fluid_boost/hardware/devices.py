"""Devices by name, as Paddle writes them: ``"cpu"``, ``"gpu:0"``, ``"npu:1"``.

A kind that is neither ``cpu`` nor one that Paddle is built for is a *custom device*: a plug-in that
Paddle loads from ``CUSTOM_DEVICE_ROOT`` or an installed package, such as ``npu`` for Ascend.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_FORM = re.compile(r"([a-zA-Z_]\w*)(?::(\d+))?\Z")
#: What Paddle says of a tensor's place: ``Place(npu:0)``, ``Place(cpu)``, ``Place(gpu_pinned)``.
_PLACE = re.compile(r"Place\((\w+)(?::(\d+))?\)")
#: Kinds that Paddle knows by itself, whether this build serves them or not.
BUILT_IN_KINDS = frozenset({"cpu", "gpu", "gpu_pinned", "xpu", "xpu_pinned", "ipu"})


class Device(NamedTuple):
    """One device: its kind and its number among those of the kind (0 for the CPU)."""

    kind: str
    number: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.number}"


CPU = Device("cpu")


def parse_device(text: str) -> Device:
    """``"npu"`` and ``"npu:0"`` both as ``Device("npu", 0)``.

    Raises:
        ValueError: ``text`` does not name a device.
    """
    found = _FORM.match(text.strip())
    if found is None or (found[1] == "cpu" and found[2] is not None):
        raise ValueError(f"{text!r} is no device; needs 'cpu', 'gpu', 'gpu:0', 'npu', 'npu:1', ...")
    return Device(found[1], int(found[2] or 0))


def device_of(tensor: Any) -> Device:
    """Where an eager tensor lives."""
    place = tensor.place
    if place.is_cpu_place():
        return CPU
    found = _PLACE.search(str(place))
    return Device(found[1], int(found[2] or 0)) if found else Device(str(place))


def is_custom(kind: str) -> bool:
    """Whether devices of this kind come from a plug-in."""
    return kind not in BUILT_IN_KINDS
