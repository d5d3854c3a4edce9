"""The engines by name.  Each is imported when it is first asked for."""

from __future__ import annotations

import functools
import importlib

from ..errors import OptionError
from ..options import options
from .base import Engine

#: name in ``options.engines`` -> (module, class)
_ENGINES = {
    "native": ("native.engine", "NativeEngine"),
    "paddle_inference": ("paddle_inference", "PaddleInference"),
}


def engine_names() -> list[str]:
    """The engines that ``options.engines`` asks for, in order.

    Raises:
        OptionError: a name that no engine has.
    """
    names = [name.strip() for name in options.engines.split(",") if name.strip()]
    for name in names:
        if name not in _ENGINES:
            raise OptionError(
                f"option 'engines': unknown engine '{name}', known: {', '.join(_ENGINES)}"
            )
    return names


@functools.cache
def make_engine(name: str) -> Engine:
    """The engine of that name; engines are stateless, so one serves all."""
    module, cls = _ENGINES[name]
    return getattr(importlib.import_module(f".{module}", __package__), cls)()
