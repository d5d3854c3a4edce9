"""The signature of a layer that is already running under the plugin, from the calls it had.

A dimension that differed between calls becomes a name, and the sizes that were seen its range, the
most frequent first.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..dispatch.explanations import find_unit
from . import _paddle as pd
from .spec import Dim, Signature, TensorSpec

#: One call: (name of the argument, dtype, shape) of each tensor.
_Seen = tuple[tuple[str, str, tuple[int, ...]], ...]


def learned_signature(target: Any) -> Signature | None:
    """What calls of ``target`` looked like, or None when it had none of tensors alone.

    Calls that differ from the most frequent one in more than sizes are left out.
    """
    if not isinstance(target, (pd.paddle.nn.Layer, pd.StaticFunction)):
        return None
    unit = find_unit(target)
    if unit is None:
        return None
    calls: Counter[_Seen] = Counter()
    for key, stats in list(unit.stats.signatures.items()):
        seen = _read(key, _positional(target))
        if seen:
            calls[seen] += max(stats.calls, 1)
    if not calls:
        return None
    ordered = [seen for seen, _ in calls.most_common()]
    first = ordered[0]
    alike = [seen for seen in ordered if _kinds(seen) == _kinds(first)]
    ranges: dict[str, list[int]] = {}
    inputs = []
    for position, (name, dtype, shape) in enumerate(first):
        dims: list[Dim] = []
        for axis, size in enumerate(shape):
            sizes = list(dict.fromkeys(seen[position][2][axis] for seen in alike))
            if len(sizes) == 1:
                dims.append(size)
                continue
            dim = _name(sizes, ranges, "batch" if axis == 0 else f"{name}_d{axis}")
            ranges[dim] = sizes
            dims.append(dim)
        inputs.append(TensorSpec(name, tuple(dims), dtype))
    return Signature(tuple(inputs), ranges)


def _name(sizes: Sequence[int], ranges: dict[str, list[int]], name: str) -> str:
    """``name``, made unique where it stands for other sizes already."""
    while name in ranges and ranges[name] != sizes:
        name += "_"
    return name


def _kinds(seen: _Seen) -> list[tuple[str, str, int]]:
    return [(name, dtype, len(shape)) for name, dtype, shape in seen]


def _positional(target: Any) -> list[str]:
    function = target.forward if isinstance(target, pd.paddle.nn.Layer) else target
    function = getattr(function, "dygraph_function", function)
    return [name for name in inspect.signature(function).parameters if name != "self"]


def _read(key: Any, names: Sequence[str]) -> _Seen | None:
    """The tensors of a call's key (see ``dispatch/signature.py``); None with other arguments."""
    *parts, _, _ = key  # gradients on or off, default dtype
    seen = []
    waiting = list(names)
    name: str | None = None
    for part in parts:
        if isinstance(part, str):
            name = part
            continue
        if name is None:
            if not waiting:
                return None
            name = waiting.pop(0)
        if not (isinstance(part, tuple) and part[0] is pd.paddle.Tensor):
            return None
        dtype = str(part[1]).rpartition(".")[2].lower()
        shape = tuple(size for size in part[2:-2] if type(size) is int)
        seen.append((name, dtype, shape))
        name = None
    return tuple(seen)
