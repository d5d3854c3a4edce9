"""Watches a trace through branches and loops, and ends it before it does what eager would not.

``paddle.static.nn.cond`` runs one of its functions in eager mode, and a loop without turns runs
none: the call that was observed says nothing about the others.  A trace runs them all.  So the
trace of such a call is watched as the call was, and inside a branch or a body *more strictly*:
where an effect would follow the trace is ended before it, as it would be an effect of our own
making.  What the functions there read is guarded like everything else.

Two answers of Paddle's are refused as well, as no op shows them: numbers of Python's that become
tensors because branches differ in them, and those that a loop carries (eager never advances them).
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any

from ..errors import CaptureRefused
from . import _paddle as pd
from .lock import STATIC_LOCK
from .observe import MUTATORS, Observation, Observer, for_user, user_location
from .scan import location, scan, writes_in_place
from .sources import origin
from .values import is_simple, same_value
from .yielding import finalizes

_CODES = frozenset(id(code) for code in pd.flow_codes())

#: Functions in C that change one of their arguments.
_CHANGES = frozenset(
    {
        "next", "send", "__next__", "setitem", "delitem", "iadd", "iconcat", "insort",
        "insort_left", "insort_right", "heappush", "heappop", "heapify", "heapreplace",
        "heappushpop",
    }
)  # fmt: skip


class Unrehearsed(BaseException):
    """Ends a trace.  Not an Exception, so that the code it ends does not handle it."""


def branches_on_tensors(observation: Observation) -> bool:
    """Whether the observed call went through ``cond``, ``while_loop`` or what is made of them."""
    return not _CODES.isdisjoint(observation.codes)


class Rehearsal(Observer):
    """Context manager: what is traced inside its ``with`` block is watched.

    seen: the observation of the call, joined with what the trace went through.

    Raises:
        CaptureRefused: on exit, when a branch or body must not be compiled.
    """

    def __init__(self, observed: Observation) -> None:
        super().__init__()
        self.seen = self.observation
        self.seen.codes.update(observed.codes)
        self.seen.user_codes.extend(observed.user_codes)
        self.seen.dynamic_reads = observed.dynamic_reads
        self.seen.written.update(observed.written)
        self.seen.mutated.update(observed.mutated)
        self._depth = 0

    def __enter__(self) -> Observation:
        self._before = sys.getprofile()
        self._patched = [
            (owner, name, getattr(owner, name), replacement)
            for owner, name, replacement in self._patches()
        ]
        for owner, name, _, replacement in self._patched:
            setattr(owner, name, replacement)
        sys.setprofile(self._on_event)
        return self.seen

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        blind = sys.getprofile() != self._on_event
        sys.setprofile(self._before)
        for owner, name, original, _ in self._patched:
            setattr(owner, name, original)
        if self.seen.refusals:
            refusal = self.seen.refusals[0]
            raise CaptureRefused(refusal.reason, refusal.where, permanent=True) from error
        if blind and kind is None:
            raise CaptureRefused("its branches could not be watched to the end")

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._before is not None:
            self._before(frame, event, arg)  # type: ignore[arg-type]
        if id(frame.f_code) in _CODES and event in ("call", "return"):
            self._depth += 1 if event == "call" else -1
        if not self._depth or event not in ("call", "c_call") or finalizes(frame):
            return
        refusals = len(self.seen.refusals)
        if event == "call":
            if id(frame.f_code) not in self.seen.codes:
                self._take_note(frame)
            self._check_entry(frame)
        else:
            self._check_c_call(frame, arg)
            self._check_strictly(frame, arg)
        if len(self.seen.refusals) > refusals:
            raise Unrehearsed

    def _take_note(self, frame: FrameType) -> None:
        kind = origin(frame.f_code.co_filename)
        if kind != "ours":
            self.seen.codes[id(frame.f_code)] = frame.f_code
        if kind == "user":
            self.seen.user_codes.append((frame.f_code, frame.f_globals))

    def _check_entry(self, frame: FrameType) -> None:
        """A function of the user's must hold no instruction with an effect, taken or not."""
        code = frame.f_code
        kind = origin(code.co_filename)
        if kind == "paddle":
            self._origins[id(code)] = kind
            self._check_paddle_effect(frame)
        if kind != "user":
            return
        effect = next(iter(scan(code).effects), None) or writes_in_place(code)
        if effect is not None:
            self.seen.refuse(f"{effect.reason}, inside a branch", location(code, effect.line))
        if any(hasattr(frame.f_locals.get(name), "__next__") for name in code.co_freevars):
            self.seen.refuse("reads an iterator inside a branch", user_location(frame))
        if _uses_numpy(code, frame.f_globals):
            self.seen.refuse("uses numpy inside a branch", user_location(frame))

    def _check_strictly(self, frame: FrameType, function: Any) -> None:
        """Changes to containers: which of them outlive the call is not known here."""
        kind = origin(frame.f_code.co_filename)
        through = frame.f_code.co_filename == contextlib.__file__
        if kind not in ("user", "stdlib") or through or not for_user(frame):
            return
        owner, name = getattr(function, "__self__", None), function.__name__
        if name in _CHANGES or (
            name in MUTATORS and not isinstance(owner, (pd.EagerTensor, pd.Value))
        ):
            self.seen.refuse(f"calls {name}() inside a branch", user_location(frame))
        if "numpy" in f"{type(owner).__module__}.{getattr(function, '__module__', '')}":
            self.seen.refuse("uses numpy inside a branch", user_location(frame))

    # -- what no op shows -------------------------------------------------------------------------

    def _patches(self) -> list[tuple[Any, str, Any]]:
        """(owner, name, replacement) of what Paddle joins the results of branches with."""
        flow = pd.control_flow
        selector, variable = flow.OutputSelector, flow.LoopVar
        seen = self.seen

        class Selector(selector):  # type: ignore[misc, valid-type]
            def __init__(self, op: Any, then: Any, otherwise: Any, *args: Any, **more: Any) -> None:
                if STATIC_LOCK.tracing_here:
                    for some, other in itertools.zip_longest(then, otherwise):
                        _check_pair(seen, some, other)
                super().__init__(op, then, otherwise, *args, **more)

        class Variable(variable):  # type: ignore[misc, valid-type]
            def __init__(self, curr_var: Any, *args: Any, **more: Any) -> None:
                if STATIC_LOCK.tracing_here and not isinstance(curr_var, pd.Value):
                    seen.refuse("a while_loop carries what is not a tensor", "")
                super().__init__(curr_var, *args, **more)

        return [(flow, "OutputSelector", Selector), (flow, "LoopVar", Variable)]


def _check_pair(seen: Observation, some: Any, other: Any) -> None:
    """Results of two branches: both tensors, or the same plain value."""
    if isinstance(some, pd.Value) and isinstance(other, pd.Value):
        return
    if not (is_simple(some) and is_simple(other) and same_value(some, other)):
        kinds = f"{type(some).__name__} and {type(other).__name__}"
        seen.refuse(
            f"the branches of a cond return different values that are no tensors: {kinds}", ""
        )


def _uses_numpy(code: CodeType, scope: dict[str, Any]) -> bool:
    modules = (scope.get(name) for name in scan(code).global_names)
    return any(getattr(module, "__name__", None) == "numpy" for module in modules)
