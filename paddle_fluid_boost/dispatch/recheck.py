"""The job that compares the content of touched weights with what a version was built from."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from .version import Version

if TYPE_CHECKING:
    from .unit import Unit


class WeightsJob:
    """Clears a false alarm, or withdraws a version whose weights have changed."""

    def __init__(self, unit: Unit, version: Version) -> None:
        self.key: Hashable = ("weights", id(version))
        self.priority = float("inf")  # quick, and its version stands idle until it is done
        self._unit = unit
        self._version = version

    def run(self) -> None:
        if not self._version.weights.unchanged():
            self._unit.withdraw(self._version, "weights changed")

    def abandoned(self) -> None:
        """Nothing to undo: the next call asks again."""
