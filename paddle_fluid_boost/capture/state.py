"""The Python state that a captured call has read, as facts that can be checked again.

Starting from the callable and the globals of every function that ran, the walk visits what those
functions can have reached through the attribute names in their bytecode.  Each step becomes a
fact: "this dictionary holds this very object under this name".  A compiled version is valid only
while all facts hold.

Two kinds of facts.  Those on a Layer's own attributes are checked only after the layer was
touched (``plugin`` hooks every public way of changing one and calls ``watch.touch``).  All others
- globals, closure cells, class attributes, plain objects, lists and dictionaries - can change
without anybody noticing, and are checked at every call: a handful of identity comparisons.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import importlib.util
import sys
from array import array as RawArray
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, is_, methodcaller
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy

from ..errors import CaptureRefused
from . import _paddle as pd
from .observe import Observation
from .scan import scan
from .sources import origin

MISSING = object()
_SIMPLE = (int, float, complex, bool, str, bytes, type(None), type(pd.paddle.float32))
#: More comparisons than this at every call would cost more than guards are worth.
MAX_CALL_FACTS = 1500
_MAX_ARRAY_BYTES = 4096
#: What no fact describes, with the reason.
_UNGUARDED: tuple[tuple[Any, str], ...] = (
    ((bytearray, memoryview, RawArray, ctypes._SimpleCData, ctypes.Array, ctypes.Structure),
     "raw memory, which is not guarded"),
    ((attrgetter, methodcaller), "whose reads cannot be followed"),
    ((numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator),
     "a random generator"),
)  # fmt: skip
#: Attributes that Paddle's machinery writes on its own, and that no forward reads.
_BOOKKEEPING = frozenset({"_built", "_full_name", "_helper", "_original_funcs"})
#: A Layer's bookkeeping: dictionaries whose entries are what the layer is made of.
_LAYER_TABLES = (
    "_parameters",
    "_buffers",
    "_sub_layers",
    "_forward_pre_hooks",
    "_forward_post_hooks",
)


def is_simple(value: Any) -> bool:
    """True for immutable values that compare by value: numbers, strings, dtypes, tuples of them."""
    if isinstance(value, tuple):
        return all(map(is_simple, value))
    return isinstance(value, (*_SIMPLE, enum.Enum, numpy.generic))


def same_value(one: Any, other: Any) -> bool:
    """Identity, or equality of simple values of one type (so that 1, 1.0 and True differ, and 0.0
    and -0.0)."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, numpy.generic):
        return one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return one.hex() == other.hex()
    return is_simple(one) and bool(one == other)


def _name_of(value: Any) -> str:
    text = repr(value) if is_simple(value) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


class Snapshot:
    """Facts about Python state, collected by :func:`take`.

    layers / tensors: what ``watch`` must report on.
    iterators: set when the walk met an iterator, whose position no fact can describe.
    """

    def __init__(self) -> None:
        self.layers: list[Any] = []
        self.tensors: list[Any] = []
        self._entries: list[list[Any]] = []  # [mapping, key, value, label]
        self._layer_entries: list[list[Any]] = []
        self._cells: list[list[Any]] = []  # [cell, value, label]
        self._sequences: list[tuple[Any, list[Any], str]] = []
        self._key_sets: list[tuple[Mapping[Any, Any], list[Any], str]] = []
        self._layer_key_sets: list[tuple[Mapping[Any, Any], list[Any], str]] = []
        #: [attributes, names that functions read, those of them present, label]
        self._layer_names: list[tuple[Mapping[str, Any], frozenset[str], set[str], str]] = []
        self._sets: list[tuple[Any, frozenset[Any], str]] = []
        self._arrays: list[tuple[numpy.ndarray, bytes, str]] = []

    @property
    def call_facts(self) -> int:
        """How many comparisons a call costs."""
        return (
            len(self._entries)
            + len(self._cells)
            + sum(len(items) + 1 for _, items, _ in self._sequences)
            + sum(len(keys) + 1 for _, keys, _ in self._key_sets)
            + len(self._sets)
            + 4 * len(self._arrays)
        )

    def holds(self) -> bool:
        """The check of every call: False may mean "look closer" (see :meth:`mismatch`)."""
        for mapping, key, value, _ in self._entries:
            if mapping.get(key, MISSING) is not value:
                return False
        for cell, value, _ in self._cells:
            if _cell_value(cell) is not value:
                return False
        for sequence, items, _ in self._sequences:
            if len(sequence) != len(items) or not all(map(is_, sequence, items)):
                return False
        for mapping, keys, _ in self._key_sets:
            if len(mapping) != len(keys) or not all(map(is_, mapping, keys)):
                return False
        for group, members, _ in self._sets:
            if group != members:
                return False
        return all(array.tobytes() == content for array, content, _ in self._arrays)

    def layer_mismatch(self) -> str | None:
        """The first fact about a Layer that no longer holds, in words; None when all do."""
        reason = _changed_entry(self._layer_entries) or _changed_keys(self._layer_key_sets)
        if reason:
            return reason
        for attributes, names, present, label in self._layer_names:
            if names & attributes.keys() != present:
                return f"attributes were added to or removed from {label}"
        return None

    def mismatch(self) -> str | None:
        """The first of the other facts that no longer holds, in words; None when all do.

        Compares by value where :meth:`holds` compares by identity, and remembers the new identity
        of equal values.
        """
        reason = _changed_entry(self._entries) or _changed_keys(self._key_sets)
        if reason:
            return reason
        for entry in self._cells:
            now = _cell_value(entry[0])
            if not same_value(now, entry[1]):
                return f"{entry[2]} changed from {_shown(entry[1])} to {_shown(now)}"
            entry[1] = now
        for sequence, items, label in self._sequences:
            if len(sequence) != len(items) or not all(map(same_value, sequence, items)):
                return f"the content of {label} changed"
            items[:] = sequence
        for group, members, label in self._sets:
            if group != members:
                return f"the content of {label} changed"
        for array, content, label in self._arrays:
            if array.tobytes() != content:
                return f"the content of {label} changed"
        return None


def _changed_entry(entries: list[list[Any]]) -> str | None:
    for entry in entries:
        mapping, key, value, label = entry
        now = mapping.get(key, MISSING)
        if not same_value(now, value):
            return f"{label} changed from {_shown(value)} to {_shown(now)}"
        entry[2] = now
    return None


def _changed_keys(key_sets: list[tuple[Mapping[Any, Any], list[Any], str]]) -> str | None:
    for mapping, keys, label in key_sets:
        if len(mapping) != len(keys) or not all(map(same_value, mapping, keys)):
            return f"the keys of {label} changed"
        keys[:] = mapping
    return None


def _cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell: the variable is not assigned yet
        return MISSING


def _shown(value: Any) -> str:
    return "nothing" if value is MISSING else _name_of(value)


class _ClassView:
    """Lets class attributes be read like dictionary entries, without running descriptors."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def get(self, name: str, default: Any) -> Any:
        for base in self._cls.__mro__:
            if name in base.__dict__:
                return base.__dict__[name]
        return default


def take(observation: Observation, roots: Iterable[tuple[str, Any]]) -> Snapshot:
    """Walks the state that the observed call can have read.

    Args:
        observation: of the call.
        roots: (label, object) where the call started: the callable, its bound instance.

    Raises:
        CaptureRefused: something it read cannot be guarded.
    """
    walk = _Walk(observation)
    for code, scope in observation.user_codes:
        for name in sorted(scan(code).global_names):
            if name in scope:
                walk.entry(scope, name, f"global '{name}'")
        for level, name in sorted(scan(code).imports):
            walk.imported("." * level + name, scope)
    for label, value in roots:
        walk.visit(value, label)
    if walk.snapshot.call_facts > MAX_CALL_FACTS:
        raise CaptureRefused(
            f"reads more mutable Python state ({walk.snapshot.call_facts} values) than can be "
            "checked at each call",
            permanent=True,
        )
    return walk.snapshot


class _Walk:
    def __init__(self, observation: Observation) -> None:
        self.snapshot = Snapshot()
        self._names = observation.attribute_names
        self._all_names = observation.dynamic_reads
        self._ran = observation.codes
        self._seen: dict[int, Any] = {}
        self._seen_entries: set[tuple[int, str]] = set()
        self._seen_classes: dict[int, type] = {}

    # -- facts ------------------------------------------------------------------------------------
    def entry(
        self, mapping: Any, key: Any, label: str, *, of_layer: bool = False, trusted: bool = False
    ) -> None:
        """The fact that ``mapping`` holds what it holds under ``key``, and a visit to that.

        ``trusted``: lists and dictionaries found here belong to Paddle and are not opened.
        """
        if (id(mapping), key) in self._seen_entries:
            return
        self._seen_entries.add((id(mapping), key))
        value = mapping.get(key, MISSING)
        entries = self.snapshot._layer_entries if of_layer else self.snapshot._entries
        entries.append([mapping, key, value, label])
        if value is not MISSING and not (trusted and isinstance(value, (list, dict, set))):
            self.visit(value, label)

    def visit(self, value: Any, label: str) -> None:
        """Goes on from ``value``; each object is visited once."""
        if is_simple(value) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        visitor = self._visitor(value)
        if visitor is not None:
            visitor(value, label)

    def _visitor(self, value: Any) -> Callable[[Any, str], None] | None:
        if isinstance(value, pd.EagerTensor):
            return self._tensor
        if isinstance(value, pd.paddle.nn.Layer):
            return self._layer
        if isinstance(value, (list, tuple, deque)):
            return self._sequence
        if isinstance(value, dict):
            return self._dict
        if isinstance(value, (set, frozenset)):
            return self._set
        if isinstance(value, FunctionType):
            return self._function
        if isinstance(value, MethodType):
            return self._method
        if isinstance(value, functools.partial):
            return self._partial
        if isinstance(value, type):
            return self._class
        if isinstance(value, ModuleType):
            return self._module
        if isinstance(value, numpy.ndarray):
            return self._array
        if isinstance(value, pd.StaticFunction):
            return self._static_function
        if isinstance(value, (staticmethod, classmethod)):
            return lambda wrapper, label: self.visit(wrapper.__func__, label)
        if isinstance(value, property):
            return lambda wrapper, label: self.visit(wrapper.fget, label)
        if isinstance(value, BuiltinFunctionType):
            return None
        if hasattr(value, "__next__"):
            return self._iterator
        for classes, reason in _UNGUARDED:
            if isinstance(value, classes):
                return functools.partial(self._unguarded, reason=reason)
        return self._object

    def imported(self, name: str, scope: Mapping[str, Any]) -> None:
        """A module that a function imports by itself, and the packages it is in."""
        full = importlib.util.resolve_name(name, scope.get("__package__") or "")
        parts = full.split(".")
        for end in range(1, len(parts) + 1):
            key = ".".join(parts[:end])
            module = sys.modules.get(key)
            if isinstance(module, ModuleType) and _is_users(module):
                self.entry(sys.modules, key, f"module '{key}'")

    # -- visitors ---------------------------------------------------------------------------------
    def _tensor(self, tensor: Any, label: str) -> None:
        self.snapshot.tensors.append(tensor)

    def _layer(self, layer: Any, label: str) -> None:
        self.snapshot.layers.append(layer)
        attributes = layer.__dict__
        for table in _LAYER_TABLES:
            content = attributes.get(table)
            if isinstance(content, dict):
                self._seen[id(content)] = content
                self.snapshot._layer_key_sets.append((content, list(content), f"{label}.{table}"))
                for key in content:
                    shown = f"{label}.{key}" if isinstance(key, str) else f"a hook of {label}"
                    self.entry(content, key, shown, of_layer=True)
        trusted = self._is_trusted_class(type(layer))
        for name in {"training", *self._names_of(attributes)}.difference(
            _LAYER_TABLES, _BOOKKEEPING
        ):
            self.entry(attributes, name, f"{label}.{name}", of_layer=True, trusted=trusted)
        names = frozenset(attributes) if self._all_names else self._names
        self.snapshot._layer_names.append((attributes, names, names & attributes.keys(), label))
        self._class(type(layer))

    def _sequence(self, sequence: Any, label: str) -> None:
        if not isinstance(sequence, tuple):
            self.snapshot._sequences.append((sequence, list(sequence), label))
        for index, item in enumerate(sequence):
            self.visit(item, f"{label}[{index}]")

    def _dict(self, content: dict[Any, Any], label: str) -> None:
        self.snapshot._key_sets.append((content, list(content), label))
        for key in content:
            self.entry(content, key, f"{label}[{key!r}]")
        if type(content) not in (dict, OrderedDict):
            self._object(content, label)

    def _set(self, group: Any, label: str) -> None:
        self.snapshot._sets.append((group, frozenset(group), label))

    def _function(self, function: FunctionType, label: str) -> None:
        if id(function.__code__) not in self._ran:
            return
        if origin(function.__code__.co_filename) != "user":
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            shown = f"variable '{name}' of {function.__qualname__}"
            value = _cell_value(cell)
            self.snapshot._cells.append([cell, value, shown])
            self.visit(value, shown)
        self.visit(function.__defaults__, f"defaults of {function.__qualname__}")
        self.visit(function.__kwdefaults__, f"defaults of {function.__qualname__}")
        if hasattr(function, "__wrapped__"):
            self.visit(function.__wrapped__, function.__qualname__)

    def _method(self, method: MethodType, label: str) -> None:
        self.visit(method.__self__, f"self of {label}")
        self.visit(method.__func__, label)

    def _partial(self, partial: functools.partial[Any], label: str) -> None:
        for part in (partial.func, partial.args, partial.keywords):
            self.visit(part, label)

    def _static_function(self, function: Any, label: str) -> None:
        self.visit(function._dygraph_function, label)

    def _class(self, cls: type, label: str = "") -> None:
        """What ``cls`` answers, wherever it finds it: a subclass may come to override a name."""
        if id(cls) in self._seen_classes or self._is_trusted_class(cls):
            return
        self._seen_classes[id(cls)] = cls
        view = _ClassView(cls)
        names = self._class_names(cls)
        names.update(name for name in ("forward", "__call__") if view.get(name, None) is not None)
        for name in sorted(names):
            self.entry(view, name, f"{cls.__name__}.{name}")
        for base in cls.__mro__[1:]:  # which super() asks
            self._class(base)

    def _module(self, module: ModuleType, label: str) -> None:
        if not _is_users(module):
            return
        for name in self._names_of(module.__dict__):
            self.entry(module.__dict__, name, f"{module.__name__}.{name}")

    def _array(self, array: numpy.ndarray, label: str) -> None:
        if array.nbytes > _MAX_ARRAY_BYTES or array.dtype.hasobject:
            raise CaptureRefused(f"reads {label}, a numpy array too large to be checked each call")
        self.snapshot._arrays.append((array, array.tobytes(), label))

    def _iterator(self, value: Any, label: str) -> None:
        raise CaptureRefused(f"reads {label}, an iterator, which changes when read", permanent=True)

    def _unguarded(self, value: Any, label: str, *, reason: str) -> None:
        raise CaptureRefused(f"reads {label}, {reason}", permanent=True)

    def _object(self, value: Any, label: str) -> None:
        cls = type(value)
        if self._is_trusted_class(cls) and cls.__module__ != "collections":
            return
        attributes = getattr(value, "__dict__", None)
        slots = {name for base in cls.__mro__ for name in _slots_of(base)}
        if slots & self._names:
            raise CaptureRefused(
                f"reads {label}, whose class {cls.__name__} uses __slots__, which is not guarded"
            )
        if isinstance(attributes, dict):
            for name in self._names_of(attributes):
                self.entry(attributes, name, f"{label}.{name}")
            if self._all_names:
                self.snapshot._key_sets.append((attributes, list(attributes), label))
            for name in self._class_names(cls):
                self.entry(attributes, name, f"{label}.{name}")  # may be shadowed by an instance's
        self._class(cls)

    def _class_names(self, cls: type) -> set[str]:
        """Names that functions read and ``cls`` itself answers."""
        bases = [base for base in cls.__mro__ if not self._is_trusted_class(base)]
        return {name for base in bases for name in self._names_of(base.__dict__)}

    def _names_of(self, attributes: Mapping[str, Any]) -> list[str]:
        if self._all_names:
            return [name for name in attributes if not name.startswith("__")]
        return [name for name in attributes if name in self._names]

    @staticmethod
    def _is_trusted_class(cls: type) -> bool:
        """Classes that nobody changes at run time: built in, Paddle's, numpy's, the library's."""
        root = cls.__module__.partition(".")[0]
        return root in ("builtins", "paddle", "numpy", "collections", "typing", "abc", "enum")


def _is_users(module: ModuleType) -> bool:
    return origin(getattr(module, "__file__", None) or "<frozen builtin>") == "user"


def _slots_of(cls: type) -> Iterable[str]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots
