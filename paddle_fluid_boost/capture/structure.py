"""Nested structures of tensors: taken apart for an engine, put together for the user.

Only exact built-in containers (and named tuples, ``OrderedDict``) are opened; a value of any other
type is one leaf, so that nothing about a user's own class is guessed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any


def is_namedtuple(value: Any) -> bool:
    """True for instances of a ``collections.namedtuple`` class."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of ``value`` in which every leaf has gone through ``change``."""
    kind = type(value)
    if kind is list:
        return [map_leaves(item, change) for item in value]
    if kind is tuple:
        return tuple(map_leaves(item, change) for item in value)
    if kind is dict or kind is OrderedDict:
        return kind((key, map_leaves(item, change)) for key, item in value.items())
    if is_namedtuple(value):
        return kind(*(map_leaves(item, change) for item in value))
    return change(value)


def leaves(value: Any) -> list[Any]:
    """The leaves of ``value`` in order."""
    found: list[Any] = []
    map_leaves(value, found.append)
    return found


def same_structure(one: Any, other: Any) -> bool:
    """True when both open into the same containers with the same keys and lengths."""
    kind = type(one)
    if kind in (list, tuple) or is_namedtuple(one):
        return (
            type(other) is kind
            and len(one) == len(other)
            and all(same_structure(a, b) for a, b in zip(one, other))
        )
    if kind is dict or kind is OrderedDict:
        return (
            type(other) is kind
            and list(one) == list(other)
            and all(same_structure(one[key], other[key]) for key in one)
        )
    return type(other) not in (list, tuple, dict, OrderedDict) and not is_namedtuple(other)
