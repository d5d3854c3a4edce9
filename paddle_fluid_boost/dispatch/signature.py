"""The key of a call: what must be equal for a compiled version to serve it.

Per tensor its class, dtype, shape, place, whether it is contiguous and ``stop_gradient``; every
other argument by type and value; and the modes that change what Paddle's functions do: gradients on
or off, default dtype.  Budget: a few microseconds for a call with one tensor.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..capture import _paddle as pd
from ..capture.structure import is_namedtuple

_Tensor = pd.EagerTensor
_Parameter = pd.framework.EagerParamBase
_tracer_holder = pd.tracer_holder
_default_dtype = pd.default_dtype
_current_place = pd.current_place
_SCALARS = frozenset({int, float, bool, str, bytes, complex, type(None), type(pd.paddle.float32)})
#: Tensors can live in several places only where this Paddle knows more than the CPU.
MANY_PLACES = pd.paddle.is_compiled_with_cuda() or bool(
    pd.paddle.device.get_all_custom_device_type() or ()
)


class Opaque(Exception):
    """An argument that cannot be part of a key; says which type."""


class Call(NamedTuple):
    """One call: its key, its tensors in order, and the arguments as given."""

    key: Any
    tensors: list[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _exact(value: Any) -> tuple[Any, ...]:
    """Keeps apart what is equal but not the same: 1, 1.0 and True, 0.0 and -0.0."""
    kind = type(value)
    if kind is complex or (kind is float and not value):
        return (kind, repr(value))
    return (kind, value)


_known_device: tuple[Any, str] = (None, "")


def _default_device() -> str:
    """The name of the device where functions make new tensors; Paddle's own answer takes 1.5 us."""
    global _known_device
    place = _current_place()
    if place is not _known_device[0]:
        _known_device = (place, pd.paddle.device.get_device())
    return _known_device[1]


def _leaf(value: Any, tensors: list[Any]) -> Any:
    kind = type(value)
    if kind is _Tensor or kind is _Parameter:
        tensors.append(value)
        if kind is _Tensor and value.__dict__:
            raise Opaque("a tensor that has attributes of the user's")
        shape = value.shape
        if MANY_PLACES:
            place = value.place
            if not place.is_cpu_place():  # its text takes longer than the rest of the key
                shape.append(str(place))
        return (kind, value.dtype, *shape, value.is_contiguous(), value.stop_gradient)
    if kind in _SCALARS:
        return _exact(value)
    if kind is list or kind is tuple or is_namedtuple(value):
        return (kind, *[_leaf(item, tensors) for item in value])
    if kind is dict or kind is OrderedDict:
        return (kind, *[(_exact(key), _leaf(item, tensors)) for key, item in value.items()])
    if isinstance(value, enum.Enum):
        return (kind, value)
    if isinstance(value, _Tensor):
        raise Opaque(f"a tensor of the subclass {kind.__name__}")
    if kind is slice:
        return (kind, *[_leaf(part, tensors) for part in (value.start, value.stop, value.step)])
    raise Opaque(f"an argument of type {kind.__module__}.{kind.__name__}")


def key_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The key of a call and its tensors in order.

    Raises:
        Opaque: an argument has a type whose equality means nothing to us.
    """
    tensors: list[Any] = []
    parts = [_leaf(value, tensors) for value in args]
    if kwargs:
        for name, value in kwargs.items():
            parts.append(name)
            parts.append(_leaf(value, tensors))
    parts.append(_tracer_holder._dygraph_tracer_._has_grad)
    if MANY_PLACES:  # where functions make new tensors
        parts.append((_default_dtype(), _default_device()))
    else:
        parts.append(_default_dtype())
    return tuple(parts), tensors


def describe(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The call as a person would write it, e.g. ``float32[1,3,224,224], scale=2.0``."""
    shown = [_describe(value) for value in args]
    shown += [f"{name}={_describe(value)}" for name, value in kwargs.items()]
    return ", ".join(shown)


def _describe(value: Any) -> str:
    if isinstance(value, _Tensor):
        return f"{str(value.dtype).rpartition('.')[2]}{list(value.shape)}".replace(" ", "")
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_describe, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_describe(item)}" for key, item in value.items()) + "}"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
