"""The Python state that a captured call has read, as facts that can be checked again.

Starting from the callable and the globals of every function that ran, ``walk.py`` visits what
those functions can have reached through the attribute names in their bytecode.  Each step becomes
a fact: "this dictionary holds this very object under this name".  A compiled version is valid only
while all facts hold.  What no fact can describe is refused.

Not seen: attributes of Paddle's own layers written into their ``__dict__`` without changing how
many there are; methods of ``Tensor`` and of Paddle's classes other than a layer's ``forward`` that
are replaced; functions of Paddle that only functions of Paddle call, below a layer's ``forward``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from ..errors import CaptureRefused
from .facts import Snapshot
from .observe import Observation
from .scan import scan
from .values import MISSING, is_simple, same_value
from .walk import Walk

#: More comparisons than this at every call would cost more than guards are worth.
MAX_CALL_FACTS = 1500
#: Functions that run when somebody reads the environment.
_ENVIRONMENT_READERS = frozenset(
    id(function.__code__)
    for function in vars(type(os.environ)).values()
    if isinstance(function, FunctionType)
)


def take(observation: Observation, roots: Iterable[tuple[str, Any]]) -> Snapshot:
    """Walks the state that the observed call can have read.

    Args:
        observation: of the call.
        roots: (label, object) where the call started: the callable, its bound instance.

    Raises:
        CaptureRefused: something it read cannot be guarded.
    """
    walk = Walk(observation)
    for code, scope in observation.user_codes:
        walk.scope(scan(code), scope)
    for label, value in roots:
        walk.visit(value, label)
    walk.refuse_hidden_closures(code for code, _ in observation.user_codes)
    snapshot = walk.snapshot
    if not _ENVIRONMENT_READERS.isdisjoint(observation.codes):
        variables = os.environ._data  # type: ignore[attr-defined]
        snapshot.plain.append((variables, dict(variables), "the environment"))
    if snapshot.call_facts > MAX_CALL_FACTS:
        raise CaptureRefused(
            f"reads more mutable Python state ({snapshot.call_facts} values) than can be "
            "checked at each call",
            permanent=True,
        )
    snapshot.seal()
    return snapshot


__all__ = ["MAX_CALL_FACTS", "MISSING", "Snapshot", "is_simple", "same_value", "take"]
