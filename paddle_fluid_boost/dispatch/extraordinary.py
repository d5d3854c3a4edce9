"""Keeps calls with NaN, infinities or huge numbers away from compiled versions.

What was such a number already in the example that a version was verified on is let through: the
-inf of an attention mask belongs to the computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engines.ordinary import is_float, is_ordinary


class Extraordinary(Exception):
    """A tensor holds a number that engines treat differently; this call must run eagerly."""


class NumbersCheck:
    """Which inputs and outputs of a version to look at, learned from its example."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._inputs = _checked_indices(inputs)
        self._outputs = _checked_indices(outputs)

    def inputs(self, tensors: Sequence[Any]) -> None:
        """Raises Extraordinary when one of the inputs holds such a number."""
        _check(tensors, self._inputs)

    def outputs(self, tensors: Sequence[Any]) -> None:
        """Raises Extraordinary when one of the outputs holds such a number."""
        _check(tensors, self._outputs)


def _checked_indices(tensors: Sequence[Any]) -> list[int]:
    return [i for i, tensor in enumerate(tensors) if is_float(tensor) and is_ordinary(tensor)]


def _check(tensors: Sequence[Any], indices: Sequence[int]) -> None:
    for index in indices:
        if not is_ordinary(tensors[index]):
            raise Extraordinary
