"""The table of rewrites, and the walk that applies it to a program.

A rule takes one op and returns what replaces its results, built with Paddle's own functions; it
returns None where Paddle2ONNX does the op right, and raises :class:`Refused` with the reason where
it does not and no exact rewrite is known::

    @rewrites("stanh")
    def stanh(op: Op) -> list[Value]:
        return [paddle.tanh(op.x * op.attrs["scale_a"]) * op.attrs["scale_b"]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

from ...capture.sources import is_user_file
from ...errors import ExportError
from ...ir.rule_table import entering
from .. import _paddle as pd

Value = Any
#: One value per result; None for a result that nothing reads, or altogether: leave the op alone.
Rule = Callable[["Op"], Optional[Sequence[Optional[Value]]]]

RULES: dict[str, Rule] = {}


class Refused(Exception):
    """An op in a form that has no exact rewrite; the message says which form."""


#: Enters a rule for ops, named without dialect prefix; one ending in ``_`` is included.
rewrites = entering(RULES)


def bare_name(op: Any) -> str:
    """The name without dialect prefix and without the mark of an in-place op."""
    bare = str(op.name()).split(".", 1)[1]
    return bare[:-1] if bare.endswith("_") else bare


class Op:
    """One op as a rule sees it."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.attrs: dict[str, Any] = op.attrs()
        self.inputs: dict[str, Any] = dict(zip(op.get_input_names(), op.operands_source()))

    @property
    def name(self) -> str:
        """See :func:`bare_name`."""
        return bare_name(self.op)

    @property
    def x(self) -> Value:
        """The first input."""
        return self.op.operand_source(0)

    def given(self, name: str) -> bool:
        """Whether the optional input ``name`` is there."""
        value = self.inputs.get(name)
        return value is not None and value.initialized()

    def is_read(self, result: int) -> bool:
        """Whether anything reads result number ``result``."""
        value = self.op.result(result)
        return bool(value.initialized() and not value.use_empty())

    def numbers(self, name: str) -> list[int] | None:
        """Input ``name`` where it is a constant list of integers, else None."""
        maker = self.inputs[name].get_defining_op() if self.given(name) else None
        if maker is None or maker.name() not in ("pd_op.full_int_array", "pd_op.full"):
            return None
        value = maker.attrs()["value"]
        return [int(one) for one in value] if isinstance(value, (list, tuple)) else [int(value)]


def rewrite_program(program: Any) -> dict[str, int]:
    """Rewrites ``program`` in place; returns how often each op was rewritten.

    The insertion point is process-wide: hold ``STATIC_LOCK``.

    Raises:
        ExportError: an op has no exact rewrite; the message holds the user's source line.
    """
    done: dict[str, int] = {}
    refused: list[str] = []
    with pd.editing(program):
        pd.read_results_of_in_place_ops(program)
        for raw in pd.all_ops(program.global_block()):
            if not raw.name().startswith("pd_op."):
                continue
            rule = RULES.get(bare_name(raw))
            if rule is None:
                continue
            op = Op(raw)  # not of a branch or loop, which does not name its inputs
            pd.set_insertion_point(raw)
            try:
                made = rule(op)
            except Refused as reason:
                refused.append(f"{op.name}: {reason}{source_line(raw)}")
                continue
            if made is not None:
                _replace(raw, made)
                done[op.name] = done.get(op.name, 0) + 1
    if refused:
        raise ExportError(
            "Paddle2ONNX cannot convert this right: " + "; ".join(sorted(set(refused)))
        )
    return done


def _replace(op: Any, made: Sequence[Value | None]) -> None:
    for result, value in zip(op.results(), made):
        if value is not None:
            result.replace_all_uses_with(value)
    op.get_parent_block().remove_op(op)


def source_line(op: Any) -> str:
    """`` (file:line: code)`` of the user's code that made ``op``; empty when unknown."""
    stack = list(op.callstack or ()) if hasattr(op, "callstack") else []
    found = ""
    for head, code in zip(stack[::2], stack[1::2]):
        parts = head.strip().split('"')
        if len(parts) >= 3 and is_user_file(parts[1]):
            line = parts[2].split("line")[-1].split(",")[0].strip()
            found = f" ({parts[1]}:{line}: {code.strip()})"
    return found
