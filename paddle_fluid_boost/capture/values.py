"""When two pieces of Python state are the same, and how one is shown to a person."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import CellType
from typing import Any

import numpy

from . import _paddle as pd

MISSING = object()
_SIMPLE = (int, float, complex, bool, str, bytes, type(None), type(pd.paddle.float32))


def is_simple(value: Any) -> bool:
    """True for immutable values that compare by value: numbers, strings, dtypes, tuples of them."""
    if isinstance(value, tuple):
        return all(map(is_simple, value))
    return isinstance(value, (*_SIMPLE, enum.Enum, numpy.generic))


def same_value(one: Any, other: Any) -> bool:
    """Identity, or equality of simple values of one type (so that 1, 1.0 and True differ, and 0.0
    and -0.0)."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, numpy.generic):
        return one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return one.hex() == other.hex()
    return is_simple(one) and bool(one == other)


def shown(value: Any) -> str:
    """A short text for messages: simple values as they are, others by their type."""
    if value is MISSING:
        return "nothing"
    text = repr(value) if is_simple(value) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


def cell_value(cell: CellType) -> Any:
    """What a closure's cell holds, MISSING while its variable is not assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


class ClassView:
    """Lets class attributes be read like dictionary entries, without running descriptors."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def get(self, name: str, default: Any) -> Any:
        """What ``cls`` answers, wherever among its bases it finds it."""
        for base in self.cls.__mro__:
            if name in base.__dict__:
                return base.__dict__[name]
        return default

    def looked_at(self, name: str) -> list[Mapping[str, Any]]:
        """The attributes of the classes asked for ``name``, up to the one that answers."""
        asked: list[Mapping[str, Any]] = []
        for base in self.cls.__mro__:
            asked.append(base.__dict__)
            if name in base.__dict__:
                break
        return asked
