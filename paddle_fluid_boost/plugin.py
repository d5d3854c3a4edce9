"""Putting the plugin in and taking it out: the only file that patches Paddle.

Three groups of patches, each applied at most once and each restored to the letter:
the *watch* group (who changes layers and tensors; static building is serialised) as soon as
anything is boosted, the *entry* group (``StaticFunction.__call__``) by :func:`install`, and
``Layer.__call__`` when single layers are watched.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from .capture import _paddle as pd
from .capture.lock import STATIC_LOCK
from .dispatch import hooks, layer_call, static_function
from .dispatch.programs import QUESTIONS, catching_up
from .dispatch.promotion import WORKER
from .dispatch.watch import touch_everything
from .memory import paddle_tensors

_MISSING = object()
_lock = threading.RLock()
#: Seconds that :func:`uninstall` waits for a running compile to end.
_PATIENCE = 10.0


class _Patches:
    """A group of patches that go in and out together."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Any]] = []

    @property
    def applied(self) -> bool:
        return bool(self._originals)

    def apply(self, patches: Iterable[tuple[Any, str, Callable[..., Any]]]) -> None:
        """Sets every attribute; nothing when the group is already in."""
        if self.applied:
            return
        for owner, name, replacement in patches:
            self._originals.append((owner, name, owner.__dict__.get(name, _MISSING)))
            setattr(owner, name, replacement)

    def restore(self) -> None:
        """Puts back what was there, last first."""
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


_watch, _entry, _layers, _sot_entry = _Patches(), _Patches(), _Patches(), _Patches()


def watch() -> None:
    """Applies the watch group: from here on compiled versions may be trusted."""
    with _lock:
        _watch.apply(list(hooks.watch_patches()))
        pd.keep_sot_out_of(os.path.dirname(__file__))
        STATIC_LOCK.open()
        if not hooks.watching:
            touch_everything()  # what happened while nobody watched is not known
        hooks.watching = True
        paddle_tensors.follow_option()


def install(auto: bool = False) -> None:
    """Makes every ``paddle.jit.to_static`` object fast where it is hot, those made before too.

    Args:
        auto: also watch every top-level ``Layer.__call__``, with no decorator anywhere.

    Idempotent; a later ``install(auto=True)`` adds the watching of layers.

    Raises:
        TypeError: ``auto`` is not a bool.
    """
    if not isinstance(auto, bool):
        raise TypeError(f"install: argument 'auto' must be a bool, got {auto!r}")
    with _lock:
        watch()
        whole = pd.ASTStaticFunction
        answers = zip(QUESTIONS, catching_up(whole))
        patches = [(whole, name, answer) for name, answer in answers]
        _entry.apply([(pd.StaticFunction, "__call__", _hooked_call), *patches])
        if auto:
            layer_call.auto = True
            _watch_layer_calls()


def uninstall() -> None:
    """Takes all patches out; Paddle is as it was.  Idempotent.

    Functions under ``pfb.to_static`` go on running, eagerly, until something is boosted again.
    """
    hooks.watching = False
    STATIC_LOCK.close()  # a trace must not go on when nobody reports static work any more
    WORKER.wait_idle(_PATIENCE)  # a running compile sees ``hooks.watching`` and ends
    with _lock:
        layer_call.auto = False
        for group in (_layers, _sot_entry, _entry, _watch):
            group.restore()
        paddle_tensors.stop_following()


def installed() -> bool:
    """True between :func:`install` and :func:`uninstall`."""
    return _entry.applied


def _watch_layer_calls() -> None:
    with _lock:
        _sot_entry.apply([(pd.paddle.framework.core, "set_eval_frame", _set_eval_frame)])
        if not _threads_in_sot:
            _layers.apply([(pd.paddle.nn.Layer, "__call__", _layer_call)])


#: SOT translates bytecode and knows ``Layer.__call__`` by its code object: where it runs (a
#: function under ``paddle.jit.to_static`` that trains, ``symbolic_translate``) ours must not stand
#: there.
_threads_in_sot: set[int] = set()


def _set_eval_frame(callback: Any) -> Any:
    """Paddle's function, through which SOT starts and ends; what it has translated calls it too, in
    between, and that is let pass."""
    if sys._getframe(1).f_code.co_filename != pd.SOT_ENTRY_FILE:
        return _stock_set_eval_frame(callback)
    if callback is not None:
        with _lock:
            _threads_in_sot.add(threading.get_ident())
            _layers.restore()
        return _stock_set_eval_frame(callback)
    before = _stock_set_eval_frame(callback)
    with _lock:
        _threads_in_sot.discard(threading.get_ident())
        if _sot_entry.applied:
            _watch_layer_calls()
    return before


_stock_set_eval_frame = pd.paddle.framework.core.set_eval_frame
hooks.request_layer_calls = _watch_layer_calls


@functools.wraps(static_function.stock_call)
def _hooked_call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    return static_function.call(self, args, kwargs, hooked=True)


@functools.wraps(layer_call.stock_call)
def _layer_call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    return layer_call.call(self, *args, **kwargs)


def to_static(
    function: Any = None,
    input_spec: Any = None,
    build_strategy: Any = None,
    backend: Any = None,
    **kwargs: Any,
) -> Any:
    """Drop-in for ``paddle.jit.to_static``: the same arguments, forms and returned objects.

    Cold calls and calls that need gradients run the user's own code, exactly as in eager mode; hot
    inference calls run compiled where that is shown to give the same result.

    Args:
        function: a function, method or ``paddle.nn.Layer``; None when used with arguments as a
            decorator.
        input_spec, build_strategy, backend, **kwargs: as in ``paddle.jit.to_static``.

    Raises:
        TypeError, ValueError: as ``paddle.jit.to_static`` raises for the same mistake.
    """
    watch()
    if inspect.ismethod(function) and not isinstance(function.__self__, pd.paddle.nn.Layer):
        function = static_function.plain_function(function)
    made = pd.paddle.jit.to_static(
        function, input_spec=input_spec, build_strategy=build_strategy, backend=backend, **kwargs
    )
    if isinstance(made, pd.paddle.nn.Layer):
        static_function.adopt(made.forward)
        return made
    if isinstance(made, pd.StaticFunction):
        return static_function.adopt(made)

    @functools.wraps(made)
    def decorated(function: Any) -> Any:
        return static_function.adopt(made(function))

    return decorated
