"""What happened to one unit, kept for ``pfb.explain``; every table is bounded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable
from typing import Any

from ..engines.select import Choice
from ..options import options
from ..report.records import Event, Refusal
from .signature import Call, describe


class Journal:
    """refusals: by reason, each with the place in the user's code.
    events: the last ``options.max_events``, the newest last.
    descriptions: signature key -> the call as a person would write it.
    choices: signature key -> what engines were tried and which was taken.
    """

    def __init__(self) -> None:
        self.refusals: dict[str, Refusal] = {}
        self.events: deque[Event] = deque(maxlen=options.max_events)
        self.descriptions: dict[Hashable, str] = {}
        self.choices: dict[Hashable, Choice] = {}

    def tell(self, what: str) -> None:
        """Notes that something happened now."""
        self.events.append(Event(time.time(), what))

    def refuse(self, refusal: Refusal) -> None:
        """Notes why something stays dynamic."""
        _bounded_store(self.refusals, refusal.reason, refusal)

    def stays_dynamic_where_it(self, reason: str) -> None:
        """Notes, once, what single calls do that keeps them dynamic."""
        if reason not in self.refusals:
            self.refuse(Refusal(reason))
            self.tell(f"stays dynamic where it {reason}")

    def describe(self, call: Call) -> None:
        """Notes what the calls of this signature look like."""
        _bounded_store(self.descriptions, call.key, describe(call.args, call.kwargs))

    def chose(self, key: Hashable, choice: Choice) -> None:
        """Notes which engine serves a signature."""
        _bounded_store(self.choices, key, choice)


def _bounded_store(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Stores, and drops the oldest entry of a table that has grown past its bound."""
    table[key] = value
    while len(table) > options.max_signatures:
        table.pop(next(iter(table)), None)
