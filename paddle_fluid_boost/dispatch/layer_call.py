"""Units for whole layers, met at ``Layer.__call__``.

Used for every top-level layer under ``install(auto=True)``, and for the parts of a function that
cannot be compiled as a whole.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ..capture import _paddle as pd
from .plainly import running_plainly
from .split import watch_parts
from .unit import Unit

Layer = pd.paddle.nn.Layer
stock_call = Layer.__call__

#: Watch every top-level layer (``install(auto=True)``).
auto = False

_units: dict[int, tuple[Unit, weakref.ref[Any]]] = {}
_depth = threading.local()


def call(layer: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The replacement of ``Layer.__call__`` while the plugin watches layers."""
    entry = _units.get(id(layer))
    if entry is None:
        nested = getattr(_depth, "inside", False) or running_plainly()  # in a compile, that is
        if not auto or nested or is_decorated(layer):
            return stock_call(layer, *args, **kwargs)
        entry = watch_layer(layer)
    unit = entry[0]
    if unit.skip:  # transparent: its parts are watched instead
        unit.skip -= 1
        return stock_call(layer, *args, **kwargs)
    before = getattr(_depth, "inside", False)
    _depth.inside = True
    try:
        return unit.call(args, kwargs)
    finally:
        _depth.inside = before


def is_decorated(layer: Any) -> bool:
    """True for a layer whose ``forward`` is under ``to_static`` and so is watched there."""
    forward = layer.__dict__.get("forward") or type(layer).forward
    return isinstance(forward, pd.StaticFunction)


def watch_layer(layer: Any) -> tuple[Unit, weakref.ref[Any]]:
    """Gives ``layer`` a Unit of its own, held for as long as the layer lives."""
    key = id(layer)
    entry = _units.get(key)
    if entry is None:
        # Bound early: at the exit of the interpreter the names of this module may be gone.
        def forget(_: Any, units: dict[int, Any] = _units) -> None:
            units.pop(key, None)

        here = weakref.ref(layer, forget)

        def eager(*args: Any, **kwargs: Any) -> Any:
            return stock_call(here(), *args, **kwargs)

        unit = Unit(
            type(layer).__name__,
            eager,
            lambda: [("self", here())],
            owner=layer,
            on_refused=watch_parts,
        )
        entry = _units[key] = (unit, here)
    return entry


def unit_of(layer: Any) -> Unit | None:
    """The Unit of a watched layer, or None."""
    entry = _units.get(id(layer))
    return entry[0] if entry else None


def any_watched() -> bool:
    """True when some layer has a Unit, so that ``Layer.__call__`` must be patched."""
    return bool(_units)
