"""``x[...] = value``, as the pieces around it joined with what is put in."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from .table import Op, Refused, Value, rewrites


@rewrites("set_value", "set_value_with_tensor")
def set_value(op: Op) -> Sequence[Value]:
    """Axis by axis; steps other than 1 and bounds that depend on data are refused."""
    starts, ends, steps = op.numbers("starts"), op.numbers("ends"), op.numbers("steps")
    if starts is None or ends is None or steps is None:
        raise Refused("assignment to a slice whose bounds depend on data")
    if any(step != 1 for step in steps) or op.attrs["none_axes"]:
        raise Refused("assignment to a slice with a step or a new axis")
    axes = list(op.attrs["axes"])
    values = op.inputs.get("values")
    if values is None:
        numbers = op.attrs["values"]
        values = paddle.reshape(paddle.to_tensor(numbers, dtype=op.x.dtype), op.attrs["shape"])
    bounds = [
        (axis, *_bounds(int(op.x.shape[axis]), start, end))
        for axis, start, end in zip(axes, starts, ends)
    ]
    dropped = op.attrs["decrease_axes"]
    return [_put(op.x, sorted(bounds), values, sorted(dropped))]


def _bounds(side: int, start: int, end: int) -> tuple[int, int]:
    if side < 0:
        if start < 0 or end < 0 or end > 2**30:
            raise Refused("assignment to a slice counted from the end of an open axis")
        return start, end
    start, end = (bound + side if bound < 0 else bound for bound in (start, end))
    return max(0, min(start, side)), max(0, min(end, side))


def _put(
    x: Value, bounds: Sequence[tuple[int, int, int]], value: Value, dropped: Sequence[int]
) -> Value:
    """``x`` with ``value`` in the slice that ``bounds`` (axis, start, end) describe."""
    if not bounds:
        return _broadcast(value, x, dropped)
    axis, start, end = bounds[0]
    inner = _put(paddle.slice(x, [axis], [start], [end]), bounds[1:], value, dropped)
    pieces = []
    if start > 0:
        pieces.append(paddle.slice(x, [axis], [0], [start]))
    pieces.append(inner)
    side = int(x.shape[axis])
    if side < 0 or end < side:
        pieces.append(paddle.slice(x, [axis], [end], [2**31 - 1]))
    return paddle.concat(pieces, axis) if len(pieces) > 1 else inner


def _broadcast(value: Value, like: Value, dropped: Sequence[int]) -> Value:
    """``value`` in the shape of ``like``; axes indexed by a number are missing in it."""
    rank = len(like.shape)
    value = paddle.cast(value, like.dtype) if value.dtype != like.dtype else value
    kept = [axis for axis in range(rank) if axis not in dropped]
    missing = len(kept) - len(value.shape)
    sizes = [1] * max(missing, 0) + [int(size) for size in value.shape][max(-missing, 0) :]
    full = [1] * rank
    for axis, size in zip(kept, sizes):
        full[axis] = size
    if full.count(-1) > 1:
        raise Refused("assignment of a tensor with several open sizes")
    return paddle.add(paddle.zeros_like(like), paddle.reshape(value, full))
