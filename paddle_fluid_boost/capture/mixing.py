"""What Python may do with tensors while a trace runs.

Four things go wrong when plain Python meets symbols, and all are set right here, for the length of
a trace and in its thread alone:

- An eager tensor (from a list, a global, a closure) meets a symbol or an operator of its own.
  Paddle's C++ operators of eager tensors end the process in static mode, so the tensor is turned
  into a parameter of the program first.
- Python asks for a tensor's value: ``item()``, a hash, a truth value, text.  The answer of a symbol
  is an error at best, which user code may catch, and a wrong answer at worst.  Each such question
  is noted, and the trace is refused for it even when the user's code went on.
- Python asks for a shape that depends on values (``nonzero``), and decides by the -1 it is told.
- Paddle answers what static mode does not know, such as ``place``, with a warning and ``None``.

Other threads may use the same classes meanwhile: they get the original methods.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ..errors import CaptureRefused
from . import _paddle as pd
from .lock import STATIC_LOCK
from .scan import location
from .sources import origin

_BINARY = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv", "rtruediv", "mod",
    "rmod", "matmul", "rmatmul", "floordiv", "rfloordiv", "pow", "rpow", "eq", "ne", "lt", "le",
    "gt", "ge", "and", "rand", "or", "ror", "xor", "rxor", "getitem", "setitem",
)  # fmt: skip
_OPERATORS = tuple(f"__{name}__" for name in _BINARY)
#: Methods of eager tensors in C++ that run an op.
_EAGER_OPS = ("clone", "detach", "contiguous", "T")
#: What tells user code something about a tensor's value, or something that a symbol cannot know.
_QUESTIONS = (
    "item", "numpy", "tolist", "__bool__", "__float__", "__int__", "__complex__", "__str__",
    "__repr__", "__format__",
)  # fmt: skip
_SYMBOL_QUESTIONS = (*_QUESTIONS, "__hash__", "is_contiguous", "name")
_EAGER_QUESTIONS = (*_QUESTIONS, "__index__", "__array__")

_OPEN_SHAPE = "a shape that depends on values"

_ABSENT = object()


@contextmanager
def mixing() -> Iterator[list[CaptureRefused]]:
    """Patches Paddle's two tensor classes; the caller holds ``STATIC_LOCK`` and is not in static
    mode yet.

    Yields the questions about values that were asked, as the errors to raise for them.
    """
    asked: list[CaptureRefused] = []
    changed: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, replacement in _patches(asked):
            changed.append((owner, name, owner.__dict__.get(name, _ABSENT)))
            setattr(owner, name, replacement)
        yield asked
    finally:
        for owner, name, before in reversed(changed):
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _patches(asked: list[CaptureRefused]) -> Iterator[tuple[Any, str, Any]]:
    for name in _OPERATORS:
        if hasattr(pd.Value, name):
            yield pd.Value, name, _converting(getattr(pd.Value, name))
    for name in (*_OPERATORS, *_EAGER_OPS):
        if name in pd.EagerTensor.__dict__ and hasattr(pd.Value, name):
            yield pd.EagerTensor, name, _as_symbol(name, pd.EagerTensor.__dict__[name])
    for name in _SYMBOL_QUESTIONS:
        original = pd.Value.__dict__.get(name, getattr(pd.Value, name))
        yield pd.Value, name, _asking(name, original, asked)
    for name in _EAGER_QUESTIONS:
        if name in pd.EagerTensor.__dict__:
            yield pd.EagerTensor, name, _refusing(name, pd.EagerTensor.__dict__[name], asked)
    yield pd.Value, "__getattr__", _unknown_attribute(asked)
    yield pd.Value, "place", _place(pd.Value.__dict__["place"])
    yield pd.Value, "shape", _shape(pd.Value.__dict__["shape"], asked)
    yield pd.Value, "__len__", _length(asked)
    yield pd.Value, "__iter__", _iteration(asked)
    quiet = _QuietWarnings()
    for module in pd.modules_that_warn_in_static_mode():
        yield module, "warnings", quiet


def _symbolic(value: Any) -> Any:
    """``value`` with eager tensors, also inside an index, turned into parameters of the program."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_symbolic, value)) if type(value) in (tuple, list) else value
    return pd.as_symbol(value)


def _converting(original: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Any, *args: Any) -> Any:
        if STATIC_LOCK.tracing_here:
            args = tuple(map(_symbolic, args))
        return original(self, *args)

    return operator


def _as_symbol(name: str, original: Any) -> Any:
    if isinstance(original, property):
        get = original.fget
        assert get is not None
        return property(
            lambda self: (
                getattr(pd.as_symbol(self), name) if STATIC_LOCK.tracing_here else get(self)
            )
        )

    def operator(self: Any, *args: Any, **kwargs: Any) -> Any:
        if STATIC_LOCK.tracing_here:
            return getattr(pd.as_symbol(self), name)(*map(_symbolic, args), **kwargs)
        return original(self, *args, **kwargs)

    return operator


def _asking(name: str, original: Any, asked: list[CaptureRefused]) -> Any:
    """The original, which notes that user code asked a symbol."""
    if isinstance(original, property):
        get = original.fget
        assert get is not None

        def read(self: Any) -> Any:
            _note(asked, name, sys._getframe(1))
            return get(self)

        return property(read, original.fset)

    def question(self: Any, *args: Any, **kwargs: Any) -> Any:
        _note(asked, name, sys._getframe(1))
        return original(self, *args, **kwargs)

    return question


def _refusing(name: str, original: Any, asked: list[CaptureRefused]) -> Any:
    """Reading an eager tensor would freeze the value that it has now into the program."""

    def question(self: Any, *args: Any, **kwargs: Any) -> Any:
        if STATIC_LOCK.tracing_here:
            refusal = _refusal(name, sys._getframe(1))
            asked.append(refusal)
            raise refusal
        return original(self, *args, **kwargs)

    return question


def _unknown_attribute(asked: list[CaptureRefused]) -> Callable[[Any, str], Any]:
    """Called where a symbol lacks what eager tensors have, or what the user has set on one."""

    def __getattr__(self: Any, name: str) -> Any:
        if not name.startswith("__") or hasattr(pd.EagerTensor, name):
            _note(asked, name, sys._getframe(1))
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    return __getattr__


def _place(original: property) -> property:
    get = original.fget
    assert get is not None
    place = pd.expected_place()  # in static mode it is not known
    return property(lambda self: place if STATIC_LOCK.tracing_here else get(self))


def _shape(original: property, asked: list[CaptureRefused]) -> property:
    get = original.fget
    assert get is not None

    def shape(self: Any) -> Any:
        sizes = get(self)
        if -1 in sizes and not _is_input(self):
            _note(asked, _OPEN_SHAPE, sys._getframe(1))
        return sizes

    return property(shape, original.fset)


def _is_input(value: Any) -> bool:
    """A dimension that the caller of the trace has left open is no question of values."""
    op = value.get_defining_op()
    return op is not None and op.name() == "pd_op.data"


def _length(asked: list[CaptureRefused]) -> Callable[[Any], int]:
    def __len__(self: Any) -> int:
        return _rows(self, asked, sys._getframe(1))

    return __len__


def _iteration(asked: list[CaptureRefused]) -> Callable[[Any], Iterator[Any]]:
    def __iter__(self: Any) -> Iterator[Any]:
        return map(self.__getitem__, range(_rows(self, asked, sys._getframe(1))))

    return __iter__


def _rows(value: Any, asked: list[CaptureRefused], frame: FrameType) -> int:
    """The first dimension; symbols have no ``len()`` of their own."""
    if not STATIC_LOCK.tracing_here or not len(value.shape):
        raise TypeError("a symbol without dimensions has no length and no elements")
    rows = int(value.shape[0])
    if rows < 0:
        asked.append(_refusal(_OPEN_SHAPE, frame))
        raise asked[-1]
    return rows


class _QuietWarnings:
    """Stands in for the module ``warnings`` in modules of Paddle's that warn about static mode,
    which the user has not chosen and does not know of."""

    def __getattr__(self, name: str) -> Any:
        return getattr(warnings, name)

    @staticmethod
    def warn(
        message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any
    ) -> None:
        if not STATIC_LOCK.tracing_here:
            warnings.warn(message, category, stacklevel + 1, source, **more)


def _note(asked: list[CaptureRefused], name: str, frame: FrameType) -> None:
    if STATIC_LOCK.tracing_here and _asker(frame) is not None:
        asked.append(_refusal(name, frame))


def _asker(frame: FrameType | None) -> FrameType | None:
    """The user's frame on whose behalf the question is asked, or None when Paddle asks."""
    while frame is not None and origin(frame.f_code.co_filename) == "stdlib":
        frame = frame.f_back
    if frame is None or origin(frame.f_code.co_filename) != "user":
        return None
    return frame


def _refusal(name: str, frame: FrameType) -> CaptureRefused:
    user: FrameType | None = frame
    while user is not None and origin(user.f_code.co_filename) != "user":
        user = user.f_back
    where = location(user.f_code, user.f_lineno) if user is not None else ""
    question = name if name == _OPEN_SHAPE else f"its value ({name})"
    return CaptureRefused(f"asks a tensor for {question}", where, permanent=False)
