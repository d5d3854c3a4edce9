"""The contract of an engine: a captured program in, something that runs out.

Engines know ``ir`` and ``memory``; they never know ``dispatch``.  An engine is stateless; what it
builds owns all resources and frees them in :meth:`Executable.close`.

Settings are plain values that go through JSON: the tuner remembers them.  ``threads`` is the number
of threads, where an engine has any; ``precision`` is left for what computes in less than the
program's own types, and absent elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..capture.program import CapturedProgram
from ..report.records import OpShare


class Executable(Protocol):
    """A built program.  Safe to call from several threads at once.

    engine: the name to show a person, e.g. ``"paddle_inference+onednn"``.
    nbytes: bytes of memory that go with it (weights of its own, workspaces), for eviction.
    notes: facts worth showing in ``explain``: passes that fired, fallbacks, versions.
    """

    engine: str
    nbytes: int
    notes: list[str]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs on dense, contiguous eager CPU tensors that match the program's input slots.

        Returns fresh eager tensors (``stop_gradient=True``) that nobody else will write to.
        """

    def coverage(self) -> list[OpShare]:
        """What each op costs in one run, the dearest first; empty where the engine cannot tell."""

    def close(self) -> None:
        """Frees everything; a later call raises EngineError.  Idempotent."""


class Engine(Protocol):
    """Builds executables."""

    name: str

    def unavailable(self) -> str | None:
        """Why this engine cannot be used on this machine, or None when it can."""

    def candidates(self, captured: CapturedProgram) -> list[dict[str, Any]]:
        """The settings worth trying for this program, most promising first."""

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> Executable:
        """Builds one candidate.  Raises EngineError with the reason when it cannot.

        Called in a background thread; must not change process-wide state (threads, flags, modes)
        beyond the call, and should release the interpreter for the long parts.
        """
