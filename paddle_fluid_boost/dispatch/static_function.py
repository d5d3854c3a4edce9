"""Paddle's ``StaticFunction`` objects with our dispatch in front.

The objects stay what they are: everything that ``paddle.jit.save``, ``rollback``, ``deepcopy`` or
``concrete_program`` know about them still holds.  ``pfb.to_static`` gives them a subclass whose
``__call__`` asks a Unit; ``plugin.install`` does the same for all of Paddle's own by patching
``StaticFunction.__call__``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ..capture import _paddle as pd
from ..options import options
from .programs import HISTORY, History, catching_up
from .split import watch_parts
from .unit import Unit

_UNIT = "_pfb_unit"

stock_call = pd.StaticFunction.__call__


def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, hooked: bool) -> Any:
    """One call of a StaticFunction: through its Unit, or Paddle's own way where that is asked for.

    hooked: True for an object that the user made with ``paddle.jit.to_static``.
    """
    if not function._program_trans.enable_to_static:
        return stock_call(function, *args, **kwargs)
    unit = ensure_unit(function, hooked=hooked)
    if unit is None:
        return stock_call(function, *args, **kwargs)
    if not isinstance(function, pd.ASTStaticFunction):
        return unit.call(args, kwargs)
    result = unit.call(args, kwargs)
    owner = unit.owner
    training = function._training if owner is None else owner.training
    function.__dict__[HISTORY].called(training)
    return result


def unit_of(function: Any) -> Unit | None:
    """The Unit of a StaticFunction, or None before its first call."""
    return function.__dict__.get(_UNIT)


def ensure_unit(function: Any, *, hooked: bool | None = None) -> Unit | None:
    """The Unit of a StaticFunction, made when there is none; None where the user asked for another
    compiler than ours."""
    if hooked is None:
        hooked = not isinstance(function, (BoostedSymbolicFunction, BoostedWholeGraphFunction))
    if _UNIT not in function.__dict__:
        function.__dict__[_UNIT] = _make_unit(function, hooked)
    return function.__dict__[_UNIT]


def _make_unit(function: Any, hooked: bool) -> Unit | None:
    instance = function.class_instance
    if function._property or isinstance(instance, type) or _asks_for_another_compiler(function):
        return None
    function.__dict__[HISTORY] = History()
    stock = functools.partial(stock_call, function)
    eager = _eager(function)
    training = options.training
    if training == "auto":
        training = "stock" if hooked else "eager"
    return Unit(
        _name(function),
        eager,
        lambda: _roots(function),
        cold=_cold(function, eager, stock) if hooked else eager,
        training=stock if training == "stock" else eager,
        owner=instance if isinstance(instance, pd.paddle.nn.Layer) else None,
        in_static_mode=stock,
        on_signature=lambda args, kwargs: _meet(function, args, kwargs),
        on_refused=watch_parts,
    )


def _eager(function: Any) -> Callable[..., Any]:
    """The user's code, bound without keeping its instance alive."""
    code, instance = function._dygraph_function, function._class_instance
    if instance is None:
        return code

    def bound(*args: Any, **kwargs: Any) -> Any:
        return code(instance(), *args, **kwargs)

    return bound


def _cold(
    function: Any, eager: Callable[..., Any], stock: Callable[..., Any]
) -> Callable[..., Any]:
    """What runs cold calls of an object made by ``paddle.jit.to_static``: eager, except where the
    user asked for the whole graph; and arguments that do not fit are Paddle's error, not Python's.
    """
    if isinstance(function, pd.ASTStaticFunction):
        return stock

    def cold(*args: Any, **kwargs: Any) -> Any:
        try:
            return eager(*args, **kwargs)
        except TypeError:
            function._function_spec.unified_args_and_kwargs(args, kwargs)  # raises if it is theirs
            raise

    return cold


def _asks_for_another_compiler(function: Any) -> bool:
    backend = function._kwargs.get("backend")
    return backend is not None and not backend.is_phi()


def _name(function: Any) -> str:
    instance = function.class_instance
    name = getattr(function._dygraph_function, "__name__", "function")
    return f"{type(instance).__name__}.{name}" if instance is not None else name


def plain_function(method: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method of any object as a function: Paddle takes methods of layers only."""

    @functools.wraps(method)
    def function(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return function


def _roots(function: Any) -> list[tuple[str, Any]]:
    instance = function.class_instance
    code = function._dygraph_function
    if isinstance(code, FunctionType) and code.__code__.co_filename == __file__:
        code = inspect.unwrap(code)
    roots = [(_name(function), code)]
    return roots if instance is None else [*roots, ("self", instance)]


def _meet(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keeps the shapes of a call, so that programs can be built later as if Paddle had seen it."""
    history = function.__dict__[HISTORY]
    history.signature(function, args, kwargs)
    if isinstance(function, pd.SymbolicStaticFunction):
        function.last_call_input_spec = history.args


class BoostedSymbolicFunction(pd.SymbolicStaticFunction):
    """A function under ``pfb.to_static``."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        unit = self.__dict__.get(_UNIT)
        if unit is not None and unit.skip:  # refused: next to nothing on top of eager
            unit.skip -= 1
            return unit.cold(*args, **kwargs)
        return call(self, args, kwargs, hooked=False)


class BoostedWholeGraphFunction(pd.ASTStaticFunction):
    """A function under ``pfb.to_static(full_graph=True)``.

    Paddle builds a program at each call with a new signature; ours builds it when somebody asks
    for it, from the signatures that were called.
    """

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return call(self, args, kwargs, hooked=False)

    program_cache, get_traced_count, concrete_program_specify_input_spec = catching_up(
        pd.ASTStaticFunction
    )


def adopt(function: Any) -> Any:
    """Gives a StaticFunction our subclass; other objects are returned as they are."""
    for stock, boosted in (
        (pd.ASTStaticFunction, BoostedWholeGraphFunction),
        (pd.SymbolicStaticFunction, BoostedSymbolicFunction),
    ):
        if type(function) is stock:
            function.__class__ = boosted
    return function
