"""The programs that Paddle's whole-graph objects show, though compiled calls pass Paddle by.

``program_cache``, ``concrete_program``, ``paddle.jit.save`` and ``get_traced_count`` tell of the
calls that Paddle has seen: which signatures, in which mode, which was the last.  Calls that ran
eagerly under observation, or compiled, it has not seen.  They are noted here where signature or
mode changes, and shown to Paddle when somebody asks.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

#: Where a StaticFunction keeps its History.
HISTORY = "_pfb_history"
#: Changes of signature or mode kept for one function.
_MAX_CHANGES = 8


class History:
    """The calls of one StaticFunction that Paddle has not been shown yet.

    changes: (args, kwargs, training) of calls unlike the one before, tensors as specs.
    """

    def __init__(self) -> None:
        self.changes: deque[tuple[Any, Any, bool]] = deque(maxlen=_MAX_CHANGES)
        self._signature: tuple[Any, Any] | None = None
        self._last: tuple[Any, bool | None] = (None, None)

    def signature(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The running call has another signature than the last one."""
        try:
            given = function._function_spec.unified_args_and_kwargs(args, dict(kwargs))
            self._signature = function._function_spec.args_to_input_spec(*given)
        except (TypeError, ValueError, AssertionError):  # Paddle has no program for such a call
            self._signature = None

    def called(self, training: bool) -> None:
        """A call has succeeded, with the last :meth:`signature` and in this mode."""
        signature, last = self._signature, self._last
        if signature is not None and (signature is not last[0] or training is not last[1]):
            self._last = (signature, training)
            self.changes.append((*signature, training))

    @property
    def args(self) -> list[Any] | None:
        """Specs of the positional arguments of the last call."""
        return list(self._signature[0]) if self._signature is not None else None


def catch_up(function: Any) -> None:
    """Lets Paddle build what it would have built, had it seen the calls."""
    history = function.__dict__.get(HISTORY)
    while history is not None and history.changes:
        args, kwargs, training = history.changes.popleft()
        _, layer = function.get_concrete_program(*args, **dict(kwargs), is_train=training)
        layer.training = training


#: Every way of asking Paddle's whole-graph class for programs.
QUESTIONS = ("program_cache", "get_traced_count", "concrete_program_specify_input_spec")


def catching_up(cls: Any) -> tuple[Any, Any, Any]:
    """The attributes :data:`QUESTIONS` of ``cls``, each catching up before it answers."""
    cache, count = cls.program_cache, cls.get_traced_count
    choose = cls.concrete_program_specify_input_spec

    def program_cache(self: Any) -> Any:
        catch_up(self)
        return cache.fget(self)

    @functools.wraps(count)
    def get_traced_count(self: Any) -> int:
        catch_up(self)
        return count(self)

    @functools.wraps(choose)
    def concrete_program(self: Any, input_spec: Any = None, *args: Any, **kwargs: Any) -> Any:
        if input_spec is None and self._function_spec.input_spec is None:
            catch_up(self)
        return choose(self, input_spec, *args, **kwargs)

    return property(program_cache, doc=cache.__doc__), get_traced_count, concrete_program
