"""The patches that tell us when layers and tensors change, and when static programs are built.

Every patch calls the original and then ``watch.touch``; nothing else changes.  Only ``plugin``
installs and removes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..capture import _paddle as pd
from ..capture.lock import STATIC_LOCK
from ..capture.writers import uncounted_writers
from .watch import touch, touch_everything

#: True while the patches are in place: without them no compiled version may be trusted.
watching = False


def _nobody_listens() -> None:
    """Stands in until ``plugin`` is imported."""


#: Asks ``plugin`` to patch ``Layer.__call__``: some layer has a Unit of its own now.
request_layer_calls: Callable[[], None] = _nobody_listens

#: Methods that change the structure or the attributes of the layer they are called on.
_LAYER_METHODS = {
    "Layer": (
        "__setattr__",
        "__delattr__",
        "add_sublayer",
        "add_parameter",
        "register_buffer",
        "register_forward_pre_hook",
        "register_forward_post_hook",
    ),
    "LayerList": ("__setitem__", "__delitem__", "insert", "append", "extend", "pop"),
    "LayerDict": ("__setitem__", "__delitem__", "clear", "pop", "update"),
    "ParameterList": ("__setitem__", "append"),
    "ParameterDict": ("__setitem__", "update"),
    "Sequential": ("__setitem__", "__delitem__", "append", "insert", "extend"),
}
#: Methods that may change the content of all parameters below the layer they are called on.
_WEIGHT_METHODS = ("set_state_dict", "set_dict", "load_dict", "load_state_dict", "_apply", "apply")
#: Methods that may change the content of the tensor without its ``inplace_version`` telling.
_TENSOR_METHODS = (
    "set_value",
    "copy_",
    "get_tensor",
    "value",
    "_clear_data",
    "set_data",
)
#: Methods that give the tensor they are called with the memory of the one they are called on.
_SHARING_METHODS = ("_share_buffer_to", "_share_underline_tensor_to")
#: Arguments of the batch normalisation ops, by position.
_IS_TEST, _TRAINABLE_STATISTICS = 5, 10


def watch_patches() -> Iterable[tuple[Any, str, Callable[..., Any]]]:
    """(class, method name, replacement) of every patch, for this version of Paddle."""
    nn = pd.paddle.nn
    for class_name, methods in _LAYER_METHODS.items():
        cls = getattr(nn, class_name, None)
        for name in methods:
            if cls is not None and name in cls.__dict__:
                wrap = _touching_if_new if name == "__setattr__" else _touching_self
                yield cls, name, wrap(cls.__dict__[name])
    for name in _WEIGHT_METHODS:
        if name in nn.Layer.__dict__:
            yield nn.Layer, name, _touching_weights(nn.Layer.__dict__[name])
    for name in _TENSOR_METHODS:
        if hasattr(pd.paddle.Tensor, name):
            yield pd.paddle.Tensor, name, _touching_self(getattr(pd.paddle.Tensor, name))
    for name in _SHARING_METHODS:
        if hasattr(pd.paddle.Tensor, name):
            yield pd.paddle.Tensor, name, _touching_target(getattr(pd.paddle.Tensor, name))
    yield pd.paddle.Tensor, "data", _touching_property(pd.paddle.Tensor.__dict__["data"])
    initializer = nn.initializer.Initializer
    yield initializer, "__call__", _touching_target(initializer.__call__)
    for module, name, written in uncounted_writers():
        wrap_op = _touching_statistics if "batch_norm" in name else _touching_written
        yield module, name, wrap_op(getattr(module, name), written)
    for cls, name in pd.methods_that_change_anything():
        yield cls, name, _touching_everything(getattr(cls, name))
    for cls, name in pd.optimizer_methods():
        yield cls, name, _touching_optimized(getattr(cls, name))
    for cls, name in pd.static_builders():
        yield cls, name, _building(cls.__dict__[name])
    yield pd.TracerHolder, "__setattr__", _reporting_static_mode(pd.TracerHolder.__setattr__)


def _touching_self(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            touch(self)

    return patched


def _touching_target(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            for target in (self, *args, *kwargs.values()):
                touch(target)

    return patched


def _touching_property(original: Any) -> Any:
    def assign(self: Any, value: Any) -> None:
        try:
            original.__set__(self, value)
        finally:
            touch(self)

    return property(original.__get__, assign, doc=original.__doc__)


def _touching_written(original: Callable[..., Any], written: slice) -> Callable[..., Any]:
    """An op that writes to its arguments ``written``: tensors or lists of tensors."""

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            for argument in args[written]:
                for tensor in argument if isinstance(argument, (list, tuple)) else (argument,):
                    touch(tensor)

    return patched


def _touching_statistics(original: Callable[..., Any], written: slice) -> Callable[..., Any]:
    """Batch normalisation, which writes to the running statistics unless it is in test mode."""
    touching = _touching_written(original, written)

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        is_test = len(args) > _IS_TEST and args[_IS_TEST] is True
        trainable = len(args) <= _TRAINABLE_STATISTICS or args[_TRAINABLE_STATISTICS]
        if is_test and not trainable:
            return original(*args, **kwargs)
        return touching(*args, **kwargs)

    return patched


def _touching_if_new(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(self: Any, name: str, value: Any) -> None:
        if self.__dict__.get(name, _touching_if_new) is value:  # BatchNorm does so at each call
            return original(self, name, value)
        try:
            return original(self, name, value)
        finally:
            touch(self)

    return patched


def _touching_weights(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            for tensor in (*self.parameters(), *self.buffers()):
                touch(tensor)

    return patched


def _touching_everything(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            touch_everything()

    return patched


def _touching_optimized(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with STATIC_LOCK.building():
                return original(self, *args, **kwargs)
        finally:
            for entry in self._parameter_list or ():
                for tensor in entry["params"] if isinstance(entry, dict) else (entry,):
                    touch(tensor)

    return patched


def _building(original: Any) -> Any:
    if isinstance(original, (staticmethod, classmethod)):
        return type(original)(_building(original.__func__))

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        with STATIC_LOCK.building():
            try:
                return original(*args, **kwargs)
            except BaseException:
                if STATIC_LOCK.alone:
                    pd.forget_failed_captures()
                raise

    return patched


def _reporting_static_mode(original: Callable[..., Any]) -> Callable[..., Any]:
    """Every way into static mode and out of it sets the tracer of this thread."""

    @functools.wraps(original)
    def patched(self: Any, name: str, value: Any) -> None:
        if name != "_dygraph_tracer_":
            return original(self, name, value)
        if STATIC_LOCK.tracing_here:  # the original would also set what new threads start with
            return pd.switch_this_thread(value)
        was_static = self.__dict__.get(name) is None
        if value is None and not was_static:
            STATIC_LOCK.start_building()
        original(self, name, value)
        if value is not None and was_static:
            STATIC_LOCK.stop_building()

    return patched
