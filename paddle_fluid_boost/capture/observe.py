"""Watches one eager call of the user's code and tells what could make a compiled call differ.

A profile hook sees every Python function entered and every C function called while the call runs
as usual, in the user's own thread.  From that follow (a) effects that a compiled version would
lose: prints, files, clocks, host random numbers, writes to attributes or globals; (b) the set of
functions whose names say which Python state the call has read (``state.py`` guards it).

Effects on state that can be compared, such as a list that grows, are left to ``state.py``: it
compares what was read before and after.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterable
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

import numpy

from ..report.records import Refusal
from . import _paddle as pd
from .scan import location, scan
from .sources import origin

log = logging.getLogger("paddle_fluid_boost.guards")

#: Python functions of Paddle that change something that outlives the call.
_PADDLE_EFFECTS = {
    "__setattr__": "writes the attribute '{name}' of a layer",
    "__delattr__": "deletes the attribute '{name}' of a layer",
    "set_value": "sets the value of a tensor",
    "register_hook": "registers a gradient hook",
    "register_forward_pre_hook": "registers a hook",
    "register_forward_post_hook": "registers a hook",
    "backward": "runs a backward pass",
    "grad": "computes gradients",
    "step": "steps an optimizer",
    "clear_grad": "clears gradients",
    "clear_gradients": "clears gradients",
    "seed": "seeds a random generator",
    "set_rng_state": "sets a random generator",
    "set_default_dtype": "sets the default dtype",
    "set_device": "sets the device",
    "set_flags": "sets flags of Paddle",
    "set_printoptions": "sets how tensors are printed",
    "set_global_initializer": "sets the initializer of new layers",
    "enable_static": "switches to static mode",
}
#: Decorators of Paddle's, which stand between a caller and such a function.
_PADDLE_WRAPPERS = frozenset({"__impl__", "wrapper", "_decorate_function"})
_BUILTIN_EFFECTS = frozenset(
    {
        "print", "input", "open", "exec", "eval", "compile", "breakpoint", "setattr", "delattr",
        "globals", "__import__",
    }
)  # fmt: skip
_DYNAMIC_READS = frozenset({"getattr", "hasattr", "vars", "dir", "locals"})
#: C functions of these modules depend on their arguments alone (or are compared by ``state.py``).
_PURE_MODULES = frozenset(
    {
        "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools",
        "collections", "_collections", "_collections_abc", "copy", "copyreg", "re", "_sre",
        "_string", "enum", "types", "typing", "_typing", "abc", "_abc", "numbers", "_struct",
        "_bisect", "_heapq", "_weakref", "inspect", "dataclasses", "_decimal", "_statistics",
    }
)  # fmt: skip
_PURE_OWNERS: tuple[type, ...] = (
    list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, complex, bool, slice,
    range, type(None), numpy.ndarray, numpy.generic, type({}.keys()), type({}.items()),
    type({}.values()), property,
)  # fmt: skip
_TENSOR_EFFECTS = frozenset(
    {
        "_register_grad_hook",
        "_register_backward_hook",
        "_register_void_function_post_hook",
        "_share_buffer_to",
        "_share_underline_tensor_to",
        "_clear_data",
        "clear_gradient",
        "get_tensor",
        "copy_",
    }
)
#: Methods in C that change a container in place.
MUTATORS = frozenset(
    {
        "append", "extend", "insert", "pop", "clear", "remove", "sort", "reverse", "update",
        "setdefault", "popitem", "add", "discard", "appendleft", "extendleft", "popleft", "rotate",
        "move_to_end", "difference_update", "intersection_update", "symmetric_difference_update",
        "__setitem__", "__delitem__", "__iadd__", "__ior__", "fill", "put", "resize", "partition",
        "setfield", "itemset", "setflags",
    }
)  # fmt: skip
_LOCK_METHODS = frozenset({"acquire", "release", "__enter__", "__exit__", "locked"})


class Busy(Exception):
    """Another profiler is active in this thread; the call was not observed."""


class Observation:
    """What one observed call did.

    codes: every Python function entered, of Paddle's too, by ``id`` (equal code may stand in two
        modules): the attribute names in them say what guards must look at.
    user_codes: those of them that are the user's, each with its globals.
    refusals: reasons not to compile, in the order met, each once.
    dynamic_reads: user code called ``getattr`` and the like, so that attribute names in its
        bytecode are not all it may read.
    """

    def __init__(self) -> None:
        self.codes: dict[int, CodeType] = {}
        self.user_codes: list[tuple[CodeType, dict[str, Any]]] = []
        self.refusals: list[Refusal] = []
        self.dynamic_reads = False
        #: Attributes of layers that Paddle itself wrote.  They are guarded: a call that leaves what
        #: it finds need not be repeated for it.
        self.written: set[str] = set()
        #: Containers that methods in C have changed in place, by ``id``, each with where: new ones
        #: are the call's own business, but one that was there before is shared with other calls.
        self.mutated: dict[int, tuple[Any, str]] = {}
        self._said: set[tuple[str, str]] = set()

    @property
    def attribute_names(self) -> frozenset[str]:
        """Every attribute name that some function entered may have read or Paddle has written.

        Of code that is not the user's all names count, global ones too: to read them out of its
        bytecode would take longer than most calls.
        """
        users = {id(code) for code, _ in self.user_codes}
        read = (
            scan(code).attribute_names if key in users else code.co_names
            for key, code in self.codes.items()
        )
        return frozenset(self.written).union(*read)

    def mutation_of(self, containers: Iterable[Any]) -> str | None:
        """Where the first of ``containers`` was changed in place; None when none of them was."""
        if not self.mutated:
            return None
        found = (self.mutated.get(id(container)) for container in containers)
        return next((seen[1] for seen in found if seen is not None), None)

    def refuse(self, reason: str, where: str) -> None:
        """Adds a reason unless it is there already."""
        if (reason, where) not in self._said:
            self._said.add((reason, where))
            self.refusals.append(Refusal(reason, where, permanent=True))


class Observer:
    """Context manager: the calls inside its ``with`` block are observed.

    Raises:
        Busy: on entry, when a profiler is already active in this thread.
    """

    def __init__(self) -> None:
        self.observation = Observation()
        self._origins: dict[int, str] = {}
        #: Functions that write to attributes of their first argument -> whether it was always a
        #: Layer, whose own ``__setattr__`` is seen here.
        self._writes_to_layers: dict[int, bool] = {}

    def __enter__(self) -> Observation:
        if _profiled():
            raise Busy
        self._host_random = _host_random_state()
        self._modes = _modes()
        sys.setprofile(self._on_event)
        return self.observation

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
        if _host_random_state() != self._host_random:
            self.observation.refuse("draws random numbers from Python or numpy", "")
        if _modes() != self._modes:
            self.observation.refuse("leaves Paddle in another mode than it found", "")
        for code, _ in self.observation.user_codes:
            if "__dict__" in scan(code).attribute_names:
                self.observation.dynamic_reads = True
            for effect in scan(code).effects:
                if not (effect.on_self and self._writes_to_layers.get(id(code))):
                    self.observation.refuse(effect.reason, location(code, effect.line))

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        try:
            self._see(frame, event, arg)
        except Exception as error:  # raised here it would surface in the user's code
            log.warning("the observer failed", exc_info=True)
            self.observation.refuse(f"could not be observed: {type(error).__name__}: {error}", "")

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if id(frame.f_code) in self._writes_to_layers:
                self._check_first_argument(frame)
            if id(frame.f_code) not in self.observation.codes:
                self._enter(frame)
            elif frame.f_code.co_name in _PADDLE_EFFECTS:
                self._check_paddle_effect(frame)
        elif event == "c_call":
            self._check_c_call(frame, arg)

    def _enter(self, frame: FrameType) -> None:
        code = frame.f_code
        kind = self._origins[id(code)] = origin(code.co_filename)
        if kind == "ours":
            return
        self.observation.codes[id(code)] = code
        if kind == "paddle":
            self._check_paddle_effect(frame)
        elif kind == "user":
            self.observation.user_codes.append((code, frame.f_globals))
            if any(effect.on_self for effect in scan(code).effects):
                self._writes_to_layers[id(code)] = True
                self._check_first_argument(frame)

    def _check_first_argument(self, frame: FrameType) -> None:
        code = frame.f_code
        if not isinstance(frame.f_locals.get(code.co_varnames[0]), pd.paddle.nn.Layer):
            self._writes_to_layers[id(code)] = False

    def _check_paddle_effect(self, frame: FrameType) -> None:
        code = frame.f_code
        effect = _PADDLE_EFFECTS.get(code.co_name)
        if effect is None or self._origins.get(id(code)) != "paddle":
            return
        caller = _caller(frame)
        by_paddle = caller is not None and origin(caller.co_filename) == "paddle"
        name = ""
        if code.co_name.endswith("attr__"):
            name = frame.f_locals.get("name", "?")
            if by_paddle and caller is not None and caller.co_name != "__init__":  # of a new layer
                self.observation.written.add(name)
                return
        elif by_paddle:  # Paddle's own bookkeeping inside a layer or function
            return
        self.observation.refuse(effect.format(name=name), user_location(frame))

    def _check_c_call(self, frame: FrameType, function: Any) -> None:
        code = frame.f_code
        kind = self._origins.get(id(code))
        if kind is None:
            kind = self._origins[id(code)] = origin(code.co_filename)
        if kind in ("ours", "numpy"):
            return
        name = function.__name__
        if kind == "paddle":
            if name in ("print", "input", "open") and function.__module__ in ("builtins", "io"):
                self.observation.refuse(f"calls {name}()", user_location(frame))
            return
        reason = self._judge(frame, function, name, kind)
        if reason:
            self.observation.refuse(reason, user_location(frame))

    def _judge(self, frame: FrameType, function: Any, name: str, kind: str) -> str | None:
        """Why a C function called from user or library code is an effect, or None."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, type):
            module = _definer(owner, name).__module__
        elif owner is not None and not isinstance(owner, ModuleType):
            if name in MUTATORS and id(owner) not in self.observation.mutated:
                self.observation.mutated[id(owner)] = (owner, user_location(frame))
            if isinstance(owner, _PURE_OWNERS):
                return None
            if isinstance(owner, pd.EagerTensor):
                return f"calls Tensor.{name}" if name in _TENSOR_EFFECTS else None
            if isinstance(owner, random.Random):
                return "draws random numbers from Python"
            module = type(owner).__module__
            if name in _LOCK_METHODS and module in ("_thread", "threading"):
                return None
            if kind == "stdlib" and module in _PURE_MODULES:
                return None
        else:
            module = function.__module__ or ""
        root = module.partition(".")[0]
        if module == "builtins":
            if name in _DYNAMIC_READS:
                if kind == "user" or for_user(frame):
                    self.observation.dynamic_reads = True
                return None
            return f"calls {name}()" if name in _BUILTIN_EFFECTS else None
        if module in _PURE_MODULES or root in ("paddle", "numpy"):
            return None
        if module == "sys" and name in ("_getframe", "intern", "getrecursionlimit", "getsizeof"):
            return None
        return f"calls {module or type(owner).__name__}.{name}, which may have effects"


def _profiled() -> bool:
    """True while a profiler watches this thread; since Python 3.12 ``cProfile`` does it by way of
    ``sys.monitoring``."""
    if sys.getprofile() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(monitoring.PROFILER_ID) is not None


def _host_random_state() -> tuple[Any, ...]:
    """Fingerprint of Python's and numpy's global generators."""
    _, keys, *rest = numpy.random.get_state(legacy=True)
    return (hash(random.getstate()), numpy.asarray(keys).tobytes(), *rest)


def _definer(cls: type, name: str) -> type:
    """The class in which a method bound to ``cls`` is defined."""
    return next((base for base in cls.__mro__ if name in base.__dict__), type)


def for_user(frame: FrameType) -> bool:
    """True when the standard library works for the user's code, not for Paddle's."""
    caller: FrameType | None = frame
    while caller is not None and origin(caller.f_code.co_filename) == "stdlib":
        caller = caller.f_back
    return caller is not None and origin(caller.f_code.co_filename) == "user"


def _caller(frame: FrameType) -> CodeType | None:
    """The function that called, decorators and patches of ours passed over."""
    caller = frame.f_back
    while caller is not None:
        kind = origin(caller.f_code.co_filename)
        if kind != "ours" and not (kind == "paddle" and caller.f_code.co_name in _PADDLE_WRAPPERS):
            return caller.f_code
        caller = caller.f_back
    return None


def _modes() -> tuple[Any, ...]:
    """Settings of Paddle's that outlive a call which does not put them back."""
    tracer = pd.tracer_holder._dygraph_tracer_
    levels = (tracer._has_grad, tracer._amp_level) if tracer is not None else ()
    return (*levels, pd.default_dtype())


def user_location(frame: FrameType | None) -> str:
    """The nearest frame of user code at or above ``frame``."""
    while frame is not None:
        if origin(frame.f_code.co_filename) == "user":
            return location(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return ""
