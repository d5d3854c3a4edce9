"""What to do with a function that cannot be compiled as a whole: watch its parts.

Its own Python keeps running as it is, so prints, counters and branches on values stay exactly
eager; the layers it calls are compiled one by one where that is safe.  This is what a graph break
is in other compilers, at the seams that the user's own code has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..capture import _paddle as pd

if TYPE_CHECKING:
    from .unit import Unit

_CONTAINERS = (pd.paddle.nn.LayerList, pd.paddle.nn.LayerDict)


def watch_parts(unit: Unit) -> None:
    """Watches the layers directly below the unit's own."""
    from . import hooks, layer_call  # both ways round: a watched layer may be split in its turn

    owner = unit.owner
    if owner is None:
        return
    parts = [part for part in _parts(owner) if not layer_call.is_decorated(part)]
    for part in parts:
        layer_call.watch_layer(part)
    if parts:
        hooks.request_layer_calls()


def _parts(layer: Any) -> list[Any]:
    found: list[Any] = []
    for child in layer._sub_layers.values():
        if isinstance(child, _CONTAINERS):
            found += _parts(child)
        elif child is not None and (child._sub_layers or not _is_paddles_own(child)):
            found.append(child)  # one op of Paddle's alone would gain nothing
    return found


def _is_paddles_own(layer: Any) -> bool:
    return type(layer).__module__.partition(".")[0] == "paddle"
