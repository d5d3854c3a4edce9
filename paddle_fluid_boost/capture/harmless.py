"""Which objects a walk may pass by: immutable ones, and those whose state no forward reads.

Everything else is opened by the walk or refused; an object written in C that is not known here
may hide anything.
"""

from __future__ import annotations

import logging
import operator
import random
import re
import sys
import threading
import types
from typing import Any

import numpy

from . import _paddle as pd
from .sources import origin

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes made by a class statement, or by C code like one
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_IMMUTABLE = (
    range,
    slice,
    type(Ellipsis),
    type(NotImplemented),
    types.CodeType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    types.GenericAlias,
    types.TracebackType,
    re.Pattern,
    re.Match,
    operator.itemgetter,
    numpy.dtype,
    numpy.ufunc,
)
#: Not read by what a forward computes, or (exceptions) read by their arguments alone.
_STATELESS = (logging.Handler, *_LOCKS, BaseException)
#: Generators whose draws the observer sees.
_WATCHED_GENERATORS = (random.random.__self__, numpy.random.rand.__self__)  # type: ignore[attr-defined]
#: Modules all of whose objects are immutable.
_IMMUTABLE_MODULES = frozenset(
    {
        "datetime", "decimal", "fractions", "pathlib", "uuid", "ipaddress", "zoneinfo", "typing",
        "types",
    }
)  # fmt: skip
#: Functions that are objects of a C class of their own.
_FUNCTION_CLASSES = frozenset(
    {"_ArrayFunctionDispatcher", "cython_function_or_method", "builtin_function_or_method"}
)
#: C classes whose instances hold what their Python attributes show, nothing more.
_PLAIN_BASES = (object, types.SimpleNamespace)


def is_harmless(value: Any) -> bool:
    """True for objects that need no fact."""
    cls = type(value)
    if cls is object or isinstance(value, (*_IMMUTABLE, *_STATELESS)):
        return True
    if cls is types.SimpleNamespace:
        return False
    if isinstance(value, random.Random) or any(value is one for one in _WATCHED_GENERATORS):
        return True
    if cls.__name__ in _FUNCTION_CLASSES:
        return True
    module = _module_of(cls)
    if module.partition(".")[0] in _IMMUTABLE_MODULES and is_library_class(cls):
        return True
    return module.startswith("paddle.") and _is_paddle_constant(cls)


def _is_paddle_constant(cls: type) -> bool:
    """Places, and the enumerations of pybind."""
    return cls.__name__.endswith("Place") or "__members__" in cls.__dict__


def is_plain_object(value: Any) -> bool:
    """True when an object is made of Python attributes, without hidden state of a C base class."""
    return c_base(type(value)) in _PLAIN_BASES


def c_base(cls: type) -> type:
    """The nearest base (or ``cls`` itself) that is written in C."""
    for base in cls.__mro__:
        if not base.__flags__ & _HEAP_TYPE:
            return base
        new = base.__dict__.get("__new__")
        if isinstance(new, types.BuiltinFunctionType) and new.__self__ is base:
            return base
    return object


def is_library_class(cls: type) -> bool:
    """True for classes of Python, Paddle and numpy, whose methods count as unchanging."""
    if not cls.__flags__ & _HEAP_TYPE:
        return True
    name = _module_of(cls)
    module = sys.modules.get(name)
    if module is None:
        return False
    if name == "builtins":  # also said of a class that ``exec`` made
        return getattr(module, cls.__name__, None) is cls
    file = getattr(module, "__file__", None)
    if file is None:
        return name in sys.builtin_module_names or name.startswith("paddle.")
    return origin(file) != "user"


def _module_of(cls: type) -> str:
    name = cls.__module__
    return name if isinstance(name, str) else ""


def is_of_paddle(value: Any) -> bool:
    """True for what a layer of Paddle's keeps for itself: neither layer, tensor nor function, and
    of a library class."""
    if isinstance(value, (pd.EagerTensor, pd.paddle.nn.Layer, type)):
        return False
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return False
    return is_library_class(type(value))
