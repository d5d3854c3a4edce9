"""In-place calls in a trace: later readers of what was overwritten read the result.

On symbols Paddle's ``F.relu_(t)`` or ``t.clip_(0, 1)`` compute a new value and leave ``t`` what it
was, where eager mode would have changed it: a program that goes on with ``t`` is wrong for every
input that the call changes, but not for one that it leaves as it is, by which a compile is checked.
So the calls are noted, and when the trace is done its ops are made to read what eager mode would
have read.  What cannot be said so, because the tensor has other names, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from ..errors import CaptureRefused
from . import _paddle as pd
from .aliases import Aliases, Placed, overwrites
from .lock import STATIC_LOCK
from .program import CapturedProgram
from .structure import leaves, map_leaves

#: (what was overwritten, what it is from then on), in the order of the calls.
Overwritten = list[tuple[Any, Any]]


@contextmanager
def noting_in_place_calls() -> Iterator[Overwritten]:
    """While a trace runs, notes the in-place calls that Paddle carries out out of place.

    Paddle looks the other function up with ``eval``, which is replaced in that module alone.
    """
    noted: Overwritten = []

    def find(name: str) -> Callable[..., Any]:
        function = reduce(getattr, name.split(".")[1:], pd.paddle)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if STATIC_LOCK.tracing_here:
                given = [*args, *kwargs.values()]
                noted.append((given[1 if name.endswith(".where") else 0], result))
            return result

        return call

    pd.inplace_utils.eval = find
    try:
        yield noted
    finally:
        del pd.inplace_utils.eval


def settle(program: Any, noted: Overwritten, result: Any) -> Any:
    """Makes the ops of ``program`` read what was overwritten; ``result`` with the same done to it.

    Raises:
        CaptureRefused: what was overwritten has other names, or changed its shape or type.
    """
    pairs = [(old, new) for old, new in noted if old is not new and not _same(old, new)]
    if not pairs:
        return result
    for old, new in pairs:
        if not isinstance(old, pd.Value):
            raise CaptureRefused("writes to a parameter or other tensor in place")
        if list(old.shape) != list(new.shape) or old.dtype != new.dtype:
            raise CaptureRefused("changes the shape or type of a tensor in place")
    return _Settling(Aliases.of(program), pairs, _values(result)).run(result)


class _Settling:
    """The names of overwritten tensors, and what each is from which op on."""

    def __init__(self, aliases: Aliases, pairs: Overwritten, returned: Sequence[Any]) -> None:
        self._aliases = aliases
        self._returned = {value.id for value in returned}
        self._group: dict[int, int] = {}
        #: Per group: (place of the op, what the tensor is behind it), in order.
        self._history: dict[int, list[tuple[int, Any]]] = {}
        by_op = {placed.op.id(): placed for placed in aliases.placed}
        for old, new in pairs:
            group = self._group.setdefault(old.id, old.id)
            self._add(group, by_op[new.get_defining_op().id()], old, new)
        for placed in aliases.placed:
            if overwrites(placed) and placed.target.id in self._group:
                group = self._group[placed.target.id]
                self._add(group, placed, placed.target, placed.op.result(0))
        for history in self._history.values():
            history.sort(key=lambda event: event[0])

    def _add(self, group: int, placed: Placed, old: Any, new: Any) -> None:
        for alias in self._aliases[old]:
            if alias.root.outside:
                raise CaptureRefused("writes to one of its inputs or parameters in place")
            if alias.viewed or alias.chosen or alias.root.block != placed.block:
                raise CaptureRefused("overwrites a tensor that has other names")
        self._group[new.id] = group
        self._history.setdefault(group, []).append((placed.place, new))

    def run(self, result: Any) -> Any:
        self._refuse_other_names()
        for placed in self._aliases.placed:
            for number, operand in enumerate(placed.op.operands_source()):
                if operand.initialized() and operand.id in self._group:
                    placed.op.operand(number).set_source(self._at(operand, placed.place))

        def latest(leaf: Any) -> Any:
            return self._at(leaf, self._end) if isinstance(leaf, pd.Value) else leaf

        return map_leaves(result, latest)

    @property
    def _end(self) -> int:
        return len(self._aliases.placed)

    def _at(self, value: Any, place: int) -> Any:
        """What the tensor called ``value`` is for an op at ``place``."""
        now = value
        for since, new in self._history.get(self._group.get(value.id, -1), ()):
            if since < place:
                now = new
        return now

    def _refuse_other_names(self) -> None:
        """A view would have to change too."""
        for key, group in self._group.items():
            for alias in self._aliases.aliases[key]:
                for other, _ in self._aliases.of_root(alias.root):
                    if other in self._group:
                        continue
                    places = [place for place, _ in self._history[group]]
                    if any(self._aliases.outlives(other, p, self._returned) for p in places):
                        raise CaptureRefused("overwrites a tensor and reads it by another name")


def screen_overwriting(captured: CapturedProgram, aliases: Aliases) -> None:
    """Raises CaptureRefused where an op overwrites what is read later by another name, or outside
    of the branch that it stands in."""
    returned = {value.id for value in captured.output_values}
    writers = [placed for placed in aliases.placed if overwrites(placed)]
    same: dict[int, int] = {}  # value -> the first name of the very same tensor
    for placed in writers:
        first = same.setdefault(placed.target.id, placed.target.id)
        same.update((result.id, first) for result in placed.op.results())
    for placed in writers:
        name = placed.name.partition(".")[2]
        for alias in aliases[placed.target]:
            if alias.root.outside:
                raise CaptureRefused(f"writes to one of its inputs or parameters ({name})")
            if alias.root.block != placed.block or alias.chosen:
                raise CaptureRefused(f"overwrites in one branch what others read ({name})")
            for key, _ in aliases.of_root(alias.root):
                if same.get(key) == same[placed.target.id]:
                    continue
                if aliases.outlives(key, placed.place, returned):
                    raise CaptureRefused(f"overwrites a tensor that has another name ({name})")


def _values(result: Any) -> list[Any]:
    return [leaf for leaf in leaves(result) if isinstance(leaf, pd.Value)]


def _same(old: Any, new: Any) -> bool:
    return isinstance(old, pd.Value) and isinstance(new, pd.Value) and old.is_same(new)
