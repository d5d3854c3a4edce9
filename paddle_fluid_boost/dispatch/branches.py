"""The branches that an observed call did not take: seen by tracing it, and their state guarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..capture.observe import Observation
from ..capture.rehearsal import Rehearsal
from ..capture.state import Snapshot, take
from ..capture.trace import trace
from ..errors import CaptureRefused
from .attempt import containers, watched
from .version import Flag


class Branches:
    """Sees all branches of one call.

    observed: the call that ran in eager mode.
    roots: returns (label, object) of what the callable is made of.
    """

    def __init__(self, observed: Observation, roots: Callable[[], list[tuple[str, Any]]]) -> None:
        self._observed = observed
        self._roots = roots

    def __call__(
        self, call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Snapshot, Flag]:
        """The state that any branch reads, as it is now, and the touches of its layers.

        The trace is thrown away: state that changed while it ran would not be noticed.  One that
        runs from now on is good as long as the state stays what it is.

        Raises:
            CaptureRefused: a branch has effects, or reads what cannot be guarded.
        """
        with Rehearsal(self._observed) as seen:
            trace(call, args, kwargs)
        snapshot = take(seen, self._roots())
        where = seen.mutation_of(containers(snapshot))
        if where is not None:
            raise CaptureRefused("changes a container that outlives the call", where)
        snapshot.all_branches = True
        return snapshot, watched(snapshot)
