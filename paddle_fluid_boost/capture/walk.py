"""The walk over the Python state that an observed call can have read; see ``state.py``."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib.util
import logging
import sys
import threading
import weakref
from array import array as RawArray
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy

from ..errors import CaptureRefused
from . import _paddle as pd
from .facts import LAYER_TABLES, Snapshot, attributes_of, present
from .harmless import is_harmless, is_library_class, is_of_paddle, is_plain_object
from .observe import Observation
from .scan import CodeFacts, scan
from .sources import origin
from .values import MISSING, ClassView, cell_value, is_simple

_MAX_ARRAY_BYTES = 4096
_ATOMS = frozenset({int, float, bool, str, type(None)})
#: What no fact describes, with the reason.
_UNGUARDED: tuple[tuple[Any, str], ...] = (
    ((bytearray, memoryview, RawArray, ctypes._SimpleCData, ctypes.Array, ctypes.Structure),
     "raw memory, which is not guarded"),
    ((attrgetter, methodcaller), "whose reads cannot be followed"),
    ((numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator),
     "a random generator"),
    ((weakref.ReferenceType, weakref.ProxyType, weakref.CallableProxyType),
     "a weak reference, which is not guarded"),
    ((threading.local,), "which differs between threads"),
    ((type(functools.lru_cache(len)),), "a cache, which is not guarded"),
)  # fmt: skip
#: Attributes that Paddle's machinery writes on its own, and that no forward reads.
_BOOKKEEPING = frozenset({"_built", "_full_name", "_helper", "_original_funcs"})


class Walk:
    """Visits objects from :meth:`scope` and :meth:`visit` on; facts go to ``snapshot``."""

    def __init__(self, observation: Observation) -> None:
        self.snapshot = Snapshot()
        self._names = observation.attribute_names
        self._all_names = observation.dynamic_reads or any(
            scan(code).dynamic_reads for code, _ in observation.user_codes
        )
        self._ran = observation.codes
        self._seen: dict[int, Any] = {}
        self._seen_entries: set[tuple[int, Any]] = set()
        self._views: dict[int, ClassView] = {}
        self._layer_classes: set[type] = set()
        self._visited_codes: set[int] = set()

    # -- facts ------------------------------------------------------------------------------------
    def entry(
        self,
        mapping: Any,
        key: Any,
        label: str,
        *,
        trusted: bool = False,
    ) -> None:
        """The fact that ``mapping`` holds what it holds under ``key``, and a visit to that.

        ``trusted``: what is found here belongs to a layer of Paddle's.
        """
        if (id(mapping), key) in self._seen_entries:
            return
        self._seen_entries.add((id(mapping), key))
        value = mapping.get(key, MISSING)
        self.snapshot.entries.append([mapping, key, value, label])
        if type(value) not in _ATOMS and value is not MISSING:
            self._value(value, label, trusted)

    def _value(self, value: Any, label: str, trusted: bool) -> None:
        if trusted and is_of_paddle(value):
            self._own_value(value, label)
        else:
            self.visit(value, label)

    def visit(self, value: Any, label: str) -> None:
        """Goes on from ``value``; each object is visited once."""
        if is_simple(value) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        visitor = self._visitor(value)
        if visitor is not None:
            visitor(value, label)

    def scope(self, facts: CodeFacts, scope: Mapping[str, Any]) -> None:
        """The globals that a function has read, and those it did not find: a later global may hide
        a builtin."""
        for name in sorted(facts.global_names):
            self.entry(scope, name, f"global '{name}'")
        for level, name in sorted(facts.imports):
            self._imported("." * level + name, scope)
        self._functions_of_modules(facts, scope)

    def _functions_of_modules(self, facts: CodeFacts, scope: Mapping[str, Any]) -> None:
        """The names that a function has read from modules of Paddle and others."""
        for chain in sorted(facts.chains):
            owner = scope.get(chain[0])
            for name in chain[1:]:
                if not isinstance(owner, ModuleType) or name not in owner.__dict__:
                    break
                self.entry(owner.__dict__, name, f"{owner.__name__}.{name}", trusted=True)
                owner = owner.__dict__[name]

    def _imported(self, name: str, scope: Mapping[str, Any]) -> None:
        """A module that a function imports by itself, and the packages it is in."""
        full = importlib.util.resolve_name(name, scope.get("__package__") or "")
        parts = full.split(".")
        for end in range(1, len(parts) + 1):
            key = ".".join(parts[:end])
            module = sys.modules.get(key)
            if isinstance(module, ModuleType) and _is_users(module):
                self.entry(sys.modules, key, f"module '{key}'")

    def refuse_hidden_closures(self, user_codes: Iterable[CodeType]) -> None:
        """A closure that ran but was never met has variables that no fact describes.

        Functions that the call itself has made are met in the code that made them.
        """
        inner = {id(part) for code in self._ran.values() for part in code.co_consts}
        for code in user_codes:
            hidden = set(code.co_freevars) - {"__class__"}
            if hidden and id(code) not in self._visited_codes and id(code) not in inner:
                raise CaptureRefused(
                    f"reads the variables {sorted(hidden)} of {code.co_name}, a function that is "
                    "called in a way that cannot be followed",
                    permanent=True,
                )

    def _namespace(self, attributes: Mapping[str, Any], label: str) -> None:
        """The fact that no name which is read was added or removed."""
        names = None if self._all_names else self._names
        space = (attributes, names, present(attributes, names), label)
        self.snapshot.namespaces.append(space)

    # -- visitors ---------------------------------------------------------------------------------
    def _visitor(self, value: Any) -> Callable[[Any, str], None] | None:
        for kinds, visitor in self._KINDS:
            if isinstance(value, kinds):
                return functools.partial(visitor, self)
        if isinstance(value, pd.StaticFunction):
            return self._static_function
        if is_harmless(value):
            return None
        if hasattr(type(value), "__next__"):
            return self._iterator
        for classes, reason in _UNGUARDED:
            if isinstance(value, classes):
                return functools.partial(self._unguarded, reason=reason)
        return self._object

    def _tensor(self, tensor: Any, label: str) -> None:
        self.snapshot.tensors.append(tensor)

    def _layer(self, layer: Any, label: str) -> None:
        facts, attributes, cls = self.snapshot, layer.__dict__, type(layer)
        facts.layers.append(layer)
        tables = tuple(map(attributes.get, LAYER_TABLES))
        for table, content in zip(LAYER_TABLES, tables):
            if isinstance(content, dict):
                self._seen[id(content)] = content
                self._layer_table(content, table, label)
        facts.layer_bodies.append((weakref.ref(layer), cls, attributes, tables, label))
        trusted = is_library_class(cls)
        into = facts.layer_entries if trusted else facts.open_layer_entries
        names = None if self._all_names else self._names
        known = present(attributes, names)
        for name in known.difference(LAYER_TABLES, _BOOKKEEPING) | {"training"}:
            # As in entry(), for many thousand of them: each once, and mostly plain numbers.
            value = attributes.get(name, MISSING)
            into.append([attributes, name, value, f"{label}.{name}"])
            if type(value) not in _ATOMS and value is not MISSING:
                self._value(value, f"{label}.{name}", trusted)
        facts.layer_namespaces.append((attributes, names, known, label))
        if cls not in self._layer_classes:
            self._layer_classes.add(cls)
            self._class(cls)
            if trusted:
                self._layer_class(cls)

    def _layer_table(self, content: dict[Any, Any], table: str, label: str) -> None:
        """What a layer is made of: its parameters, buffers, sublayers or hooks."""
        self.snapshot.layer_key_sets.append((content, list(content), f"{label}.{table}"))
        entries = self.snapshot.layer_entries
        for key, value in content.items():
            shown = f"{label}.{key}" if isinstance(key, str) else f"a hook of {label}"
            entries.append([content, key, value, shown])
            if value is not None:
                self.visit(value, shown)

    def _layer_class(self, cls: type) -> None:
        """The ``forward`` of a layer of Paddle's, and the functions that it calls by name."""
        view = self._view(cls)
        self.entry(view, "forward", f"{cls.__name__}.forward")
        forward = view.get("forward", None)
        if isinstance(forward, FunctionType) and id(forward.__code__) in self._ran:
            self._functions_of_modules(scan(forward.__code__), forward.__globals__)

    def _own_value(self, value: Any, label: str) -> None:
        """What a layer of Paddle's keeps for itself, such as the strides of a convolution."""
        if isinstance(value, list) and all(map(is_simple, value)):
            self.snapshot.plain.append((value, list(value), label))
        elif isinstance(value, tuple):
            self.visit(value, label)

    def _sequence(self, sequence: Any, label: str) -> None:
        if not isinstance(sequence, tuple):
            self.snapshot.sequences.append((sequence, list(sequence), label))
        for index, item in enumerate(sequence):
            self.visit(item, f"{label}[{index}]")
        if not is_library_class(type(sequence)):
            self._attributes(sequence, label)

    def _dict(self, content: dict[Any, Any], label: str) -> None:
        self.snapshot.key_sets.append((content, list(content), label))
        for key in content:
            self.entry(content, key, f"{label}[{key!r}]")
        if type(content) not in (dict, OrderedDict):
            self._attributes(content, label)

    def _set(self, group: Any, label: str) -> None:
        self.snapshot.sets.append((group, frozenset(group), label))

    def _proxy(self, proxy: Any, label: str) -> None:
        for behind in gc.get_referents(proxy):  # the mapping, which has no other way to it
            self.visit(behind, label)

    def _function(self, function: FunctionType, label: str) -> None:
        if id(function.__code__) not in self._ran:
            return
        self._visited_codes.add(id(function.__code__))
        if origin(function.__code__.co_filename) != "user":
            self._decorator(function, label)
            return
        name = function.__qualname__
        closed = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        for variable, cell in closed.items():
            shown, value = f"variable '{variable}' of {name}", cell_value(cell)
            self.snapshot.cells.append([cell, value, shown])
            self.visit(value, shown)
        values = {variable: cell_value(cell) for variable, cell in closed.items()}
        self._functions_of_modules(scan(function.__code__), values)
        parts = [function.__code__, function.__defaults__, function.__kwdefaults__]
        self.snapshot.functions.append((function, parts, name))
        self.visit(function.__defaults__, f"defaults of {name}")
        self.visit(function.__kwdefaults__, f"defaults of {name}")
        if "__wrapped__" in function.__dict__:
            self.visit(function.__dict__["__wrapped__"], name)
        for key in self._names_of(function.__dict__):
            self.entry(function.__dict__, key, f"{name}.{key}")
        self._namespace(function.__dict__, name)

    def _decorator(self, function: FunctionType, label: str) -> None:
        """What a decorator of a library's, such as ``paddle.no_grad()``, has wrapped."""
        for cell in function.__closure__ or ():
            value = cell_value(cell)
            if isinstance(value, (FunctionType, MethodType, functools.partial)):
                self.visit(value, label)

    def _method(self, method: MethodType, label: str) -> None:
        self.visit(method.__self__, f"self of {label}")
        self.visit(method.__func__, label)

    def _builtin(self, function: Any, label: str) -> None:
        if not isinstance(function.__self__, (ModuleType, type)):
            self.visit(function.__self__, f"the object behind {label}")

    def _partial(self, partial: functools.partial[Any], label: str) -> None:
        for part in (partial.func, partial.args, partial.keywords):
            self.visit(part, label)

    def _static_function(self, function: Any, label: str) -> None:
        self.visit(function._dygraph_function, label)

    def _wrapper(self, wrapper: Any, label: str) -> None:
        self.visit(wrapper.__func__, label)

    def _property(self, wrapper: property, label: str) -> None:
        self.visit(wrapper.fget, label)

    def _class(self, cls: type, label: str = "") -> None:
        """What ``cls`` answers, wherever it finds it: a subclass may come to override a name."""
        if is_library_class(cls) or id(cls) in self._views:
            return
        view = self._view(cls)
        names = self._class_names(cls)
        if view.get("forward", MISSING) is not MISSING:
            names.add("forward")
        for name in sorted(names):
            self.entry(view, name, f"{cls.__name__}.{name}")
        self._namespace(cls.__dict__, cls.__name__)
        for base in cls.__mro__[1:]:  # which super() asks
            self._class(base)

    def _view(self, cls: type) -> ClassView:
        return self._views.setdefault(id(cls), ClassView(cls))

    def _module(self, module: ModuleType, label: str) -> None:
        if not _is_users(module):
            return
        for name in self._names_of(module.__dict__):
            self.entry(module.__dict__, name, f"{module.__name__}.{name}")
        self._namespace(module.__dict__, module.__name__)

    def _array(self, array: numpy.ndarray, label: str) -> None:
        if array.nbytes > _MAX_ARRAY_BYTES or array.dtype.hasobject:
            raise CaptureRefused(f"reads {label}, a numpy array too large to be checked each call")
        self.snapshot.arrays.append((array, array.tobytes(), label))

    def _logger(self, logger: logging.Logger, label: str) -> None:
        """A logger that said nothing while it was observed must still have nothing to say."""
        for name in ("level", "disabled", "parent"):
            self.entry(logger.__dict__, name, f"{label}.{name}")
        self.entry(logger.manager.__dict__, "_disable", "logging.disable()")

    def _iterator(self, value: Any, label: str) -> None:
        raise CaptureRefused(f"reads {label}, an iterator, which changes when read", permanent=True)

    def _unguarded(self, value: Any, label: str, *, reason: str) -> None:
        raise CaptureRefused(f"reads {label}, {reason}", permanent=True)

    def _object(self, value: Any, label: str) -> None:
        cls = type(value)
        slots = {name for base in cls.__mro__ for name in _slots_of(base)}
        if slots & self._names:
            raise CaptureRefused(
                f"reads {label}, whose class {cls.__name__} uses __slots__, which is not guarded",
                permanent=True,
            )
        if not is_plain_object(value):
            raise CaptureRefused(
                f"reads {label}, whose class {cls.__module__}.{cls.__name__} is written in C: "
                "what it holds cannot be seen",
                permanent=True,
            )
        self._attributes(value, label)

    def _attributes(self, value: Any, label: str) -> None:
        """The attributes of an instance: its own, and those of its class that they may hide."""
        cls, attributes = type(value), attributes_of(value)
        self.snapshot.objects.append((value, cls, attributes, label))
        if attributes is not None:
            for name in {*self._names_of(attributes), *self._class_names(cls)}:
                self.entry(attributes, name, f"{label}.{name}")
            if self._all_names:
                self.snapshot.key_sets.append((attributes, list(attributes), label))
            else:
                self._namespace(attributes, label)
        self._class(cls)

    #: Kinds of objects, in the order asked -> the method that visits them.
    _KINDS: tuple[tuple[Any, Callable[[Any, Any, str], None]], ...] = (
        (pd.EagerTensor, _tensor),
        (pd.paddle.nn.Layer, _layer),
        ((list, tuple, deque), _sequence),
        (dict, _dict),
        ((set, frozenset), _set),
        (MappingProxyType, _proxy),
        (FunctionType, _function),
        (MethodType, _method),
        ((BuiltinFunctionType, MethodWrapperType), _builtin),
        (functools.partial, _partial),
        (type, _class),
        (ModuleType, _module),
        (numpy.ndarray, _array),
        (logging.Logger, _logger),
        ((staticmethod, classmethod), _wrapper),
        (property, _property),
    )

    def _class_names(self, cls: type) -> set[str]:
        """Names that functions read and ``cls`` itself answers."""
        bases = [base for base in cls.__mro__ if not is_library_class(base)]
        return {name for base in bases for name in self._names_of(base.__dict__)}

    def _names_of(self, attributes: Mapping[str, Any]) -> list[str]:
        if self._all_names:
            return [name for name in attributes if not name.startswith("__")]
        return [name for name in attributes if name in self._names]


def _is_users(module: ModuleType) -> bool:
    return origin(getattr(module, "__file__", None) or "<frozen builtin>") == "user"


def _slots_of(cls: type) -> Iterable[str]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots
