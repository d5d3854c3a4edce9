"""From ``module:attr`` or ``file.py:attr`` to a Layer, with its weights."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from ..errors import ExportError
from . import _paddle as pd

_FORM = "MODULE:NAME or FILE.py:NAME, e.g. paddle.vision.models:resnet18 or net.py:make_net"


def load_object(
    text: str, arguments: Mapping[str, Any] | None = None, weights: str | None = None
) -> tuple[Any, list[str]]:
    """The callable that ``text`` names, and warnings about its weights.

    Args:
        text: ``module:attr`` or ``file.py:attr``; attr is a Layer, or a class or function that
            returns one when called, or with no Layer a function of tensors.
        arguments: keyword arguments of that call.
        weights: a ``.pdparams`` file for the Layer.

    Raises:
        ExportError: there is no such thing, calling it failed, or the weights do not fit.
    """
    place, colon, path = text.rpartition(":")
    if not colon or not place or not path:
        raise ExportError(
            f"model: got {text!r}, needs {_FORM}, or the files of a saved model", usage=True
        )
    found: Any = _module(place)
    for name in path.split("."):
        if not hasattr(found, name):
            known = [n for n in dir(found) if not n.startswith("_")][:12]
            raise ExportError(f"model: {place} has no '{name}'; it has {', '.join(known)}")
        found = getattr(found, name)
    made = _called(found, text, arguments or {})
    return made, _load_weights(made, weights) if weights else []


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(place)
        except Exception as error:  # it is not there, or whatever the user's module raises
            raise ExportError(f"model: cannot import '{place}': {told(error)}") from error
    if not os.path.isfile(place):
        raise ExportError(f"model: no such file: {place}", usage=True)
    folder = os.path.dirname(os.path.abspath(place))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(place))[0]
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        raise ExportError(f"model: importing {place} failed: {told(error)}") from error
    return module


def told(error: BaseException) -> str:
    """An exception of the user's code in one line: type, message, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}:{error.lineno})"
        return f"{type(error).__name__}: {error.msg}{where}"
    return f"{type(error).__name__}: {error}{where}"


def _called(found: Any, text: str, arguments: Mapping[str, Any]) -> Any:
    layer = pd.paddle.nn.Layer
    if isinstance(found, layer):
        if arguments:
            raise ExportError(f"--args: {text} is a Layer already, it is not called")
        return found
    if not callable(found):
        raise ExportError(f"model: {text} is a {type(found).__name__}, needs a Layer or a callable")
    if not inspect.isclass(found) and not arguments:
        required = _required(found)
        if required:  # a function of tensors, exported as it is
            return found
    try:
        made = found(**arguments)
    except Exception as error:  # whatever the user's code raises
        given = dict(arguments) or "no arguments"
        if isinstance(error, TypeError) and error.__traceback__ and not error.__traceback__.tb_next:
            raise ExportError(
                f"model: {text} cannot be called with {given}: {error}; "
                "give them as --args '{\"name\": value}'"
            ) from error
        raise ExportError(f"model: {text}, called with {given}, raised {told(error)}") from error
    if not isinstance(made, layer):
        raise ExportError(f"model: {text}() returned a {type(made).__name__}, needs a Layer")
    return made


def _required(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]


def _load_weights(layer: Any, path: str) -> list[str]:
    if not isinstance(layer, pd.paddle.nn.Layer):
        raise ExportError("--weights: the model is a plain function and has none")
    if not os.path.isfile(path):
        raise ExportError(f"--weights: no such file: {path}")
    try:
        state = pd.paddle.load(path)
    except (ValueError, OSError, RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise ExportError(f"--weights: cannot read {path}: {error}") from error
    own = layer.state_dict()
    wrong = [
        f"{name} {list(state[name].shape)} for {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in state and list(state[name].shape) != list(tensor.shape)
    ]
    missing = [name for name in own if name not in state]
    if missing or wrong:
        raise ExportError(
            f"--weights: {path} does not fit: "
            + (f"{len(missing)} missing ({', '.join(missing[:4])}) " if missing else "")
            + (f"of another shape: {', '.join(wrong[:4])}" if wrong else "")
        )
    layer.set_state_dict(state)
    extra = [name for name in state if name not in own]
    return [f"--weights: {len(extra)} entries are not used ({', '.join(extra[:4])})"] * bool(extra)
