"""The records that every room writes and ``explain`` reads: plain data, no behaviour.

All of them turn into JSON-ready dictionaries with ``dataclasses.asdict``; their fields are stable.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why something stays dynamic.

    reason: one sentence without a full stop, e.g. ``"writes the attribute 'calls'"``.
    where: ``"file:line: source"`` of the user's code, or "" when no single line is to blame.
    permanent: True when only a change of the user's code can lift it.
    """

    reason: str
    where: str = ""
    permanent: bool = False

    def __str__(self) -> str:
        return f"{self.reason} ({self.where})" if self.where else self.reason


@dataclass(frozen=True)
class PassRecord:
    """What one pass did to one graph: how often it fired, and why it refused where it did not."""

    name: str
    fired: int
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpShare:
    """What all steps of one op cost in one run of a compiled version.

    native: False where a kernel of Paddle's runs it.  microseconds: of all its steps together.
    share: of the whole run.  gflops: billions of operations a second, 0.0 for what is no product.
    """

    op: str
    native: bool
    steps: int
    microseconds: float
    share: float
    gflops: float = 0.0


@dataclass(frozen=True)
class Event:
    """Something that happened to a function, for the story ``explain`` tells."""

    seconds: float
    what: str
