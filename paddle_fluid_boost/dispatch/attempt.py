"""A hot signature is observed at one call and confirmed at the next.

The observed call runs the user's own code under the observer and yields the snapshot of the Python
state it read.  One more call, unobserved, must leave that state as it was; only then a compile job
goes to the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..capture.observe import Busy, Observation, Observer
from ..capture.rehearsal import branches_on_tensors
from ..capture.state import Snapshot, take
from ..errors import CaptureRefused
from ..report.records import Refusal
from .plainly import run_plainly
from .signature import Call, Opaque, key_of
from .version import Flag
from .watch import watch

log = logging.getLogger("paddle_fluid_boost.guards")

#: State that changes between two calls may settle; after so many tries it counts as an effect.
_CONFIRM_TRIES = 3


@dataclass
class Attempt:
    """A signature on its way to a compile.

    snapshot: the state that the observed call read; None before there was one.
    layers_touched: counts the touches of the layers in it.
    held: the tensors in it, each with its ``inplace_version`` after the observed call.
    branching: the observation of a call that has run ``cond`` or ``while_loop``, whose other
        branches are still to be seen; None for other calls.
    """

    snapshot: Snapshot | None = None
    layers_touched: Flag = field(default_factory=Flag)
    held: list[tuple[Any, int]] = field(default_factory=list)
    tries: int = 0
    branching: Observation | None = None

    def observe(
        self,
        eager: Callable[..., Any],
        roots: Callable[[], list[tuple[str, Any]]],
        call: Call,
    ) -> tuple[Any, list[Refusal]]:
        """Runs the call with the user's code ``eager``, observed; its result, and the reasons not
        to compile it.

        Raises:
            Busy: another profiler is active; nothing was run.
        """
        versions = [tensor.inplace_version for tensor in call.tensors]
        with run_plainly(), Observer() as observation:
            result = eager(*call.args, **call.kwargs)
        if [tensor.inplace_version for tensor in call.tensors] != versions:
            observation.refuse("writes to one of its arguments", "")
        if _key_after(call) != call.key:
            observation.refuse("changes one of its arguments", "")
        if not observation.refusals:
            self._take_snapshot(observation, roots)
        return result, observation.refusals

    def _take_snapshot(
        self, observation: Observation, roots: Callable[[], list[tuple[str, Any]]]
    ) -> None:
        try:
            self.snapshot = take(observation, roots())
        except CaptureRefused as error:
            observation.refusals.append(Refusal(error.reason, error.where, error.permanent))
        except Exception as error:  # a user's object that cannot be looked at must cost no call
            log.warning("taking the state of a call failed", exc_info=True)
            reason = f"its state cannot be read: {type(error).__name__}: {error}"
            observation.refusals.append(Refusal(reason, permanent=True))
        else:
            where = observation.mutation_of(containers(self.snapshot))
            if where is not None:
                self._settle_or_refuse(observation, where)
                return
            self.layers_touched = watched(self.snapshot)
            self.held = [(tensor, tensor.inplace_version) for tensor in self.snapshot.tensors]
            if branches_on_tensors(observation):
                self.branching = observation

    def _settle_or_refuse(self, observation: Observation, where: str) -> None:
        """The call has filled or emptied what it found.  A first call may, as a cache is filled;
        one that always does would meet itself in another thread, whatever it leaves behind."""
        self.snapshot = None
        self.tries += 1
        if self.tries >= _CONFIRM_TRIES:
            observation.refuse("changes a container that outlives the call", where)

    def confirm(self) -> Refusal | bool | None:
        """After one more call: True when the state is as it was, False to observe once more, or
        the refusal when it never settles."""
        snapshot = self.snapshot
        if snapshot is None:  # another thread found it changed
            return False
        reason = snapshot.layer_mismatch() or snapshot.mismatch() or self._written_in_place()
        if not reason:
            return True
        self.snapshot = None
        self.tries += 1
        if self.tries < _CONFIRM_TRIES:
            return False
        return Refusal(f"its state changes from call to call: {reason}", permanent=True)

    def _written_in_place(self) -> str | None:
        """Which tensor was written to since the observed call.  A compile runs the user's code
        again: a buffer that each call advances would advance too often."""
        for tensor, version in self.held:
            if tensor.inplace_version != version:
                return f"the tensor '{tensor.name}' is written to in place"
        return None


def watched(snapshot: Snapshot) -> Flag:
    """Watches the layers of a new snapshot; a flag that counts their touches from now on."""
    touches = Flag()
    for layer in snapshot.layers:
        watch(layer, touches)
    snapshot.layers.clear()  # a version must not keep its own layer alive
    return touches


def containers(snapshot: Snapshot) -> Iterator[Any]:
    """Every container of Python's that the walk has met."""
    groups: tuple[list[Any], ...] = (
        snapshot.sequences,
        snapshot.key_sets,
        snapshot.layer_key_sets,
        snapshot.namespaces,
        snapshot.layer_namespaces,
        snapshot.sets,
        snapshot.arrays,
        snapshot.plain,
    )
    for group in groups:
        for container, *_ in group:
            yield container


def _key_after(call: Call) -> Any:
    try:
        return key_of(call.args, call.kwargs)[0]
    except Opaque:
        return None


__all__ = ["Attempt", "Busy"]
