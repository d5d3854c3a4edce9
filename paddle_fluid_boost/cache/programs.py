"""The name of a captured program in the cache: the same in every process that captures it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .surroundings import key

if TYPE_CHECKING:
    from ..capture.program import CapturedProgram

#: Paddle counts layers and tensors in the order in which a process makes them.
_COUNTED = re.compile(r'(parameter_name|struct_name):"([^"]*)"')


def program_key(captured: CapturedProgram) -> str:
    """A digest of the ops, their attributes, every shape and dtype, and the device.

    The weights' names and content are no part of it: what is kept under it (how fast engines are,
    whether one crashes) holds for other weights too.
    """
    names: dict[str, int] = {}

    def renamed(match: re.Match[str]) -> str:
        if match[1] == "struct_name":
            return ""
        return f"parameter:{names.setdefault(match[2], len(names))}"

    text = _COUNTED.sub(renamed, str(captured.program))
    shapes = [(list(slot.shape), slot.dtype) for slot in (*captured.inputs, *captured.outputs)]
    return key(text, len(captured.inputs), shapes, captured.device)
