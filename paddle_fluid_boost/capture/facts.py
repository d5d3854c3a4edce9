"""Facts about Python state, and whether they still hold.

:class:`Snapshot` says so exactly and in words; ``quick.py`` holds the same facts in a form that
costs a few microseconds at every call and is never more lenient.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from operator import is_
from types import FunctionType
from typing import Any

import numpy

from .quick import Quick
from .values import MISSING, cell_value, same_value, shown

#: A Layer's bookkeeping: dictionaries whose entries are what the layer is made of.
LAYER_TABLES = (
    "_parameters",
    "_buffers",
    "_sub_layers",
    "_forward_pre_hooks",
    "_forward_post_hooks",
)


class Snapshot:
    """Facts about Python state, collected by ``walk.Walk``, which ends with :meth:`seal`.

    layers / tensors: what ``watch`` must report on.
    all_branches: it holds what every branch of the call reads, not only those that were taken.

    Of every fact its last item is a label for people.
    """

    def __init__(self) -> None:
        self.layers: list[Any] = []
        self.tensors: list[Any] = []
        self.entries: list[list[Any]] = []  # [mapping or ClassView, key, value, label]
        self.layer_entries: list[list[Any]] = []
        #: Those of a user's own layers: looked at in every call.
        self.open_layer_entries: list[list[Any]] = []
        self.cells: list[list[Any]] = []  # [cell, value, label]
        self.sequences: list[tuple[Any, list[Any], str]] = []
        self.key_sets: list[tuple[Mapping[Any, Any], list[Any], str]] = []
        self.layer_key_sets: list[tuple[Mapping[Any, Any], list[Any], str]] = []
        #: (attributes, names that functions read or None for all, those present, label)
        self.namespaces: list[tuple[Mapping[str, Any], frozenset[str] | None, set[str], str]] = []
        self.layer_namespaces: list[
            tuple[Mapping[str, Any], frozenset[str] | None, set[str], str]
        ] = []
        self.sets: list[tuple[Any, frozenset[Any], str]] = []
        self.arrays: list[tuple[numpy.ndarray, bytes, str]] = []
        #: (object, its class, its attributes or None, label)
        self.objects: list[tuple[Any, type, Any, str]] = []
        #: (layer, its class, its attributes, its tables, label)
        self.layer_bodies: list[tuple[weakref.ref[Any], type, Any, tuple[Any, ...], str]] = []
        #: [function, (code, defaults, keyword defaults), label]
        self.functions: list[tuple[FunctionType, list[Any], str]] = []
        #: (container of simple values, a copy of it, label): compared by value.
        self.plain: list[tuple[Any, Any, str]] = []
        self.all_branches = False
        self._quick: Quick | None = None

    @property
    def call_facts(self) -> int:
        """How many comparisons a call costs, not counting what layers are made of."""
        return (
            len(self.entries)
            + len(self.cells)
            + sum(len(items) + 1 for _, items, _ in self.sequences)
            + sum(len(keys) + 1 for _, keys, _ in self.key_sets)
            + len(self.namespaces)
            + len(self.sets)
            + len(self.objects)
            + 3 * len(self.functions)
            + 4 * len(self.arrays)
        )

    def seal(self) -> None:
        """All facts are there: prepares :meth:`holds`."""
        self._quick = Quick(self)

    def holds(self) -> bool:
        """The check of every call: False may mean "look closer" (see :meth:`mismatch`)."""
        return self._quick is not None and self._quick.holds()

    def layer_mismatch(self) -> str | None:
        """The first fact about a Layer that no longer holds, in words; None when all do."""
        for ref, cls, attributes, tables, label in self.layer_bodies:
            layer = ref()
            if layer is None:  # then nobody can call it; its attributes are still compared below
                continue
            if type(layer) is not cls:
                return f"the class of {label} changed from {cls.__name__}"
            if layer.__dict__ is not attributes or not all(
                map(is_, map(attributes.get, LAYER_TABLES), tables)
            ):
                return f"the attributes of {label} were replaced"
        return (
            _changed_entry(self.layer_entries)
            or _changed_entry(self.open_layer_entries)
            or _changed_keys(self.layer_key_sets)
            or _changed_names(self.layer_namespaces)
        )

    def mismatch(self) -> str | None:
        """The first fact of any call that no longer holds, in words; None when all do.

        Compares by value where :meth:`holds` compares by identity, and remembers the new identity
        of equal values.  Facts about layers are looked at when nothing else tells why
        :meth:`holds` is False.
        """
        reason = self._other_mismatch()
        if reason or self.holds():
            return reason
        reason = self.layer_mismatch()
        if not reason:
            self.seal()
        return reason

    def _other_mismatch(self) -> str | None:
        reason = (
            _changed_entry(self.entries)
            or _changed_keys(self.key_sets)
            or _changed_names(self.namespaces)
            or self._changed_object()
        )
        if reason:
            return reason
        for entry in self.cells:
            now = cell_value(entry[0])
            if not same_value(now, entry[1]):
                return f"{entry[2]} changed from {shown(entry[1])} to {shown(now)}"
            entry[1] = now
        for sequence, items, label in self.sequences:
            if len(sequence) != len(items) or not all(map(same_value, sequence, items)):
                return f"the content of {label} changed"
            items[:] = sequence
        for group, content, label in (*self.sets, *self.plain):
            if group != content:
                return f"the content of {label} changed"
        for array, content, label in self.arrays:
            if array.tobytes() != content:
                return f"the content of {label} changed"
        return None

    def _changed_object(self) -> str | None:
        for value, cls, attributes, label in self.objects:
            if type(value) is not cls:
                return f"the class of {label} changed from {cls.__name__}"
            if attributes is not None and attributes_of(value) is not attributes:
                return f"the attributes of {label} were replaced"
        for function, parts, label in self.functions:
            now = [function.__code__, function.__defaults__, function.__kwdefaults__]
            if now[0] is not parts[0]:
                return f"the code of {label} changed"
            if not all(map(same_value, now, parts)):
                return f"the defaults of {label} changed"
            parts[:] = now
        return None


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The instance's own attributes, asked without running the user's code; None without any."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def present(attributes: Mapping[str, Any], names: frozenset[str] | None) -> set[str]:
    """Those of ``names`` that ``attributes`` has now; all it has where ``names`` is None."""
    return set(attributes) if names is None else set(names & attributes.keys())


def _changed_entry(entries: list[list[Any]]) -> str | None:
    for entry in entries:
        mapping, key, value, label = entry
        now = mapping.get(key, MISSING)
        if not same_value(now, value):
            return f"{label} changed from {shown(value)} to {shown(now)}"
        entry[2] = now
    return None


def _changed_keys(key_sets: list[tuple[Mapping[Any, Any], list[Any], str]]) -> str | None:
    for mapping, keys, label in key_sets:
        if len(mapping) != len(keys) or not all(map(same_value, mapping, keys)):
            return f"the keys of {label} changed"
        keys[:] = mapping
    return None


def _changed_names(
    namespaces: list[tuple[Mapping[str, Any], frozenset[str] | None, set[str], str]],
) -> str | None:
    for attributes, names, known, label in namespaces:
        if present(attributes, names) != known:
            return f"attributes were added to or removed from {label}"
    return None
