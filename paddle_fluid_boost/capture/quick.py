"""The facts of a snapshot, laid out so that one call checks them all in a few microseconds.

Every loop runs in C: ``map`` over parallel lists, or one comparison of lists of dictionaries.  A
check may fail for facts that hold (an equal value of another identity); it never passes for facts
that do not.

What is looked at in each call: all facts that are not about layers; of the user's own layers the
attributes that are read; of every layer the entries of its tables (parameters, buffers, sublayers,
hooks) and how many attributes it has.  Other attributes of Paddle's own layers are looked at when
the layer was touched.
"""

from __future__ import annotations

import math
from itertools import chain, repeat
from operator import attrgetter, is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from . import _paddle as pd
from .values import MISSING, ClassView, cell_value

if TYPE_CHECKING:
    from .facts import Snapshot

_dict_get = dict.get
_proxy_get: Any = MappingProxyType.get
_dict_values = dict.values
_attributes: Any = object.__getattribute__
_contents, _code = attrgetter("cell_contents"), attrgetter("__code__")
_defaults, _keywords = attrgetter("__defaults__"), attrgetter("__kwdefaults__")
_missing, _dunder_dict = repeat(MISSING), repeat("__dict__")


class Quick:
    """The check of every call, for the facts as they are now."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._take_entries(snapshot)
        self._take_cells(snapshot)
        self._take_tables(snapshot)
        keyed = [mapping for mapping, _, _ in snapshot.key_sets]
        sequences = [sequence for sequence, _, _ in snapshot.sequences]
        self._iterated: list[Any] = [*keyed, *sequences]
        self._items = [
            item for _, items, _ in (*snapshot.key_sets, *snapshot.sequences) for item in items
        ]
        spaces = (*snapshot.namespaces, *snapshot.layer_namespaces)
        # Parallel loops end with the shorter side: the lengths of all that is iterated count too.
        self._sized = [*self._iterated, *(space for space, _, _, _ in spaces), *self._strict]
        self._sizes = [len(items) for _, items, _ in (*snapshot.key_sets, *snapshot.sequences)]
        self._sizes += map(len, self._sized[len(self._iterated) :])
        self._objects = [value for value, _, _, _ in snapshot.objects]
        self._types = [cls for _, cls, _, _ in snapshot.objects]
        owners = [fact for fact in snapshot.objects if fact[2] is not None]
        self._owners = [value for value, _, _, _ in owners]
        self._owned = [attributes for _, _, attributes, _ in owners]
        self._functions = [function for function, _, _ in snapshot.functions]
        parts = [parts for _, parts, _ in snapshot.functions]
        self._codes, self._defaults, self._keywords = ([p[i] for p in parts] for i in range(3))
        plain = (*snapshot.plain, *snapshot.sets)
        self._plain, self._copies = [one for one, _, _ in plain], [copy for _, copy, _ in plain]
        self._arrays = [(array, content) for array, content, _ in snapshot.arrays]

    def holds(self) -> bool:
        """True when every fact holds; False may mean "look closer"."""
        try:
            return (
                list(map(len, self._sized)) == self._sizes
                and not any(self._empty)
                and all(map(is_, map(_dict_get, self._dicts, self._keys, _missing), self._values))
                and all(map(is_, map(_proxy_get, self._of, self._names, _missing), self._answers))
                and all(map(is_, chain.from_iterable(self._iterated), self._items))
                and self._tables == self._table_copies
                and all(
                    map(is_, chain.from_iterable(map(_dict_values, self._strict)), self._entries)
                )
                and self._cells_hold()
                and self._objects_hold()
                and self._plain == self._copies
                and all(array.tobytes() == content for array, content in self._arrays)
            )
        except Exception:  # another tensor in a table, which has no truth value; a racing thread
            return False

    def _cells_hold(self) -> bool:
        return all(map(is_, map(_contents, self._cells), self._contents)) and all(
            cell_value(cell) is MISSING for cell in self._empty_cells
        )

    def _objects_hold(self) -> bool:
        return (
            all(map(is_, map(type, self._objects), self._types))
            and all(map(is_, map(_attributes, self._owners, _dunder_dict), self._owned))
            and all(map(is_, map(_code, self._functions), self._codes))
            and all(map(is_, map(_defaults, self._functions), self._defaults))
            and all(map(is_, map(_keywords, self._functions), self._keywords))
        )

    def _take_entries(self, snapshot: Snapshot) -> None:
        self._dicts: list[Any] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._of: list[Any] = []
        self._names: list[str] = []
        self._answers: list[Any] = []
        for mapping, key, value, _ in (*snapshot.entries, *snapshot.open_layer_entries):
            if not isinstance(mapping, ClassView):
                self._dicts.append(mapping)
                self._keys.append(key)
                self._values.append(value)
                continue
            for attributes in mapping.looked_at(key):
                self._of.append(attributes)
                self._names.append(key)
                self._answers.append(attributes.get(key, MISSING))

    def _take_cells(self, snapshot: Snapshot) -> None:
        full = [(cell, value) for cell, value, _ in snapshot.cells if value is not MISSING]
        self._cells, self._contents = [cell for cell, _ in full], [value for _, value in full]
        self._empty_cells = [cell for cell, value, _ in snapshot.cells if value is MISSING]

    def _take_tables(self, snapshot: Snapshot) -> None:
        tables: list[Any] = [table for table, _, _ in snapshot.layer_key_sets]
        self._empty = [table for table in tables if not table]
        full = [table for table in tables if table]
        self._tables = [table for table in full if all(map(_never_equal, table.values()))]
        self._table_copies = [dict(table) for table in self._tables]
        known = set(map(id, self._tables))
        self._strict = [table for table in full if id(table) not in known]
        self._entries = [value for table in self._strict for value in table.values()]


def _never_equal(value: Any) -> bool:
    """True when ``==`` cannot call another object equal to ``value``: then dictionaries that hold
    it are compared in one go.  Two tensors of one element may be equal."""
    if isinstance(value, pd.EagerTensor):
        return math.prod(value.shape) > 1
    return value is None or (
        isinstance(value, pd.paddle.nn.Layer) and type(value).__eq__ is object.__eq__
    )
