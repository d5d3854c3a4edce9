"""From the outputs of an engine back to what the user's function returns.

A result is a nested structure whose leaves are fresh tensors, inputs or live parameters handed
back as the very same object, and plain Python values.  What cannot be rebuilt exactly is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..capture import _paddle as pd
from ..capture.state import is_simple, same_value
from ..capture.structure import leaves, map_leaves, same_structure
from ..errors import CaptureRefused

Rebuild = Callable[[list[Any], Sequence[Any]], Any]


@dataclass(frozen=True)
class _Fresh:
    """The n-th output of the engine."""

    index: int


@dataclass(frozen=True)
class _Input:
    """The n-th tensor of the call, the same object."""

    index: int


@dataclass(frozen=True)
class Layout:
    """How to build a result.

    rebuild: (engine outputs, input tensors) -> result.
    used: which outputs of the traced program the engine must produce, in order.
    fresh: the eager tensors, from the example run, that the outputs must equal.
    """

    rebuild: Rebuild
    used: list[int]
    fresh: list[Any]


def layout(
    eager: Any,
    traced: Any,
    inputs: Sequence[Any],
    symbols: Sequence[Any],
    live: Sequence[Any],
    arguments: Any = (),
) -> Layout:
    """Works out the layout of a result from one eager run and the trace of the same call.

    Args:
        eager: what the function returned for ``inputs`` in eager mode.
        traced: what it returned on symbols.
        inputs: the eager input tensors; ``symbols``: their ``pir.Value``, same order.
        live: parameters and other tensors that outlive the call.
        arguments: what the eager run was called with.

    Raises:
        CaptureRefused: the result has parts that a compiled call cannot give back exactly.
    """
    if not same_structure(eager, traced):
        raise CaptureRefused("returns another structure when traced than in eager mode")
    _refuse_shared_containers(eager, traced, arguments)
    eager_leaves, traced_leaves = leaves(eager), leaves(traced)
    input_index = {id(tensor): i for i, tensor in enumerate(inputs)}
    live_ids = {id(tensor) for tensor in live}
    fresh: list[Any] = []
    used: list[int] = []
    seen: dict[int, _Fresh] = {}
    plan: list[Any] = []
    next_value = 0
    for got, symbol in zip(eager_leaves, traced_leaves):
        value_index = None
        if isinstance(symbol, pd.Value):
            value_index, next_value = next_value, next_value + 1
        if not isinstance(got, pd.EagerTensor):
            plan.append(_constant(got, symbol))
        elif id(got) in input_index:
            plan.append(_Input(input_index[id(got)]))
        elif id(got) in live_ids or symbol is got:
            plan.append(got)
        elif id(got) in seen:
            plan.append(seen[id(got)])
        elif value_index is None:
            raise CaptureRefused("returns a tensor that does not depend on this call", "")
        else:
            if not got.stop_gradient:
                raise CaptureRefused("returns a tensor that takes part in gradients")
            seen[id(got)] = _Fresh(len(fresh))
            plan.append(seen[id(got)])
            fresh.append(got)
            used.append(value_index)
    _refuse_shared_memory(fresh, [*inputs, *live])
    return Layout(_builder(traced, plan), used, fresh)


def _refuse_shared_containers(eager: Any, traced: Any, arguments: Any) -> None:
    """A rebuilt result is made of new lists: none may have been the same as another one."""
    returned = [id(container) for container in _mutable(eager)]
    if len(set(returned)) != len(returned):
        raise CaptureRefused("returns one list or dictionary in two places")
    if not {id(container) for container in _mutable(arguments)}.isdisjoint(returned):
        raise CaptureRefused("returns a list or dictionary that it was given")
    if not {id(container) for container in _mutable(traced)}.isdisjoint(returned):
        raise CaptureRefused("returns a list or dictionary that outlives the call")


def _mutable(value: Any) -> Iterator[Any]:
    """The lists and dictionaries among the containers that ``value`` is made of."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _mutable(item)
    elif isinstance(value, (list, tuple)):
        if isinstance(value, list):
            yield value
        for item in value:
            yield from _mutable(item)


def _constant(got: Any, symbol: Any) -> Any:
    if isinstance(symbol, (pd.Value, pd.EagerTensor)):
        raise CaptureRefused(
            f"returns a {type(got).__name__} that was computed from the value of a tensor"
        )
    if not is_simple(got):
        raise CaptureRefused(f"returns an object of type {type(got).__name__}")
    if not same_value(got, symbol):
        raise CaptureRefused(f"returns {got!r} in eager mode but {symbol!r} when traced")
    return got


def _builder(structure: Any, plan: list[Any]) -> Rebuild:
    if plan == [_Fresh(0)] and isinstance(structure, pd.Value):
        return lambda outputs, inputs: outputs[0]

    def rebuild(outputs: list[Any], inputs: Sequence[Any]) -> Any:
        steps = iter(plan)

        def leaf(_: Any) -> Any:
            step = next(steps)
            if type(step) is _Fresh:
                return outputs[step.index]
            if type(step) is _Input:
                return inputs[step.index]
            return step

        return map_leaves(structure, leaf)

    structure = map_leaves(structure, lambda _: None)  # do not keep the traced program alive
    return rebuild


def _span(tensor: Any) -> tuple[int, int]:
    """First and past-the-end address of a dense tensor's elements."""
    if 0 in tensor.shape or not tensor._is_initialized():
        return (0, 0)
    first = tensor.data_ptr()
    strides = tensor.strides
    last = sum((n - 1) * abs(step) for n, step in zip(tensor.shape, strides))
    return first, first + (last + 1) * tensor.element_size()


def _refuse_shared_memory(fresh: Sequence[Any], others: Sequence[Any]) -> None:
    """Views of inputs, of parameters or of each other would be separate memory when compiled."""
    spans = sorted(_span(tensor) for tensor in fresh)
    for (_, end), (start, _) in zip(spans, spans[1:]):
        if start and start < end:
            raise CaptureRefused("returns two tensors that share memory")
    for tensor in others:
        low, high = _span(tensor)
        if any(start < high and low < end for start, end in spans if end):
            raise CaptureRefused("returns a view of an input or parameter")
