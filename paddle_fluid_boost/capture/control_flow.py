"""Refuses branches and loops that a compiled program would not run as eager mode does.

``paddle.static.nn.cond``, ``case`` and ``switch_case`` run the one branch that is wanted in eager
mode; a program holds both.  ``while_loop`` in eager mode *writes the state of every turn into
the tensors that it started from*, one after the other, and hands those back.  A program has values
instead.  Both come to the same where

* either branch yields tensors of the same type and shape;
* no result is an input, a parameter or one of two results in one branch and new in the other;
* a loop starts from tensors that the call has made and nobody reads afterwards;
* a turn makes every part of the state anew, or leaves it as it is: eager mode's ``[b, a]`` for the
  state ``[a, b]`` does not swap;
* what is overwritten in place was made in the same block (``overwriting.py``).

All of it is read off the program, so that it holds for every input: a compile is compared with
eager on one input only, which takes one branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import CaptureRefused
from .aliases import Aliases, Branches, Loop, Placed, Root
from .program import CapturedProgram

#: How the names of ops begin that make or read lists of tensors, which are Python's in eager mode.
_TENSOR_LISTS = ("array_", "create_array", "slice_array")
_COPY = "give while_loop a copy, such as paddle.assign(x)"


def screen_flow(captured: CapturedProgram, aliases: Aliases) -> None:
    """Raises CaptureRefused with the first reason why the program may differ from eager mode."""
    for branches in aliases.branches:
        _check_branches(branches)
    for loop in aliases.loops:
        _check_starts(loop, aliases, captured.output_values)
        _check_turn(loop, aliases)
    for placed in aliases.placed:
        if _bare(placed).startswith(_TENSOR_LISTS):
            raise CaptureRefused(f"contains {_bare(placed)}, a list of tensors, beside a branch")
    _check_outputs(captured.output_values, aliases)


def _check_branches(branches: Branches) -> None:
    for some, other in zip(branches.then, branches.otherwise):
        if not _alike(some, other):
            raise CaptureRefused(
                f"its branches return {_describe(some)} and {_describe(other)}: they must agree"
            )


def _check_starts(loop: Loop, aliases: Aliases, outputs: Sequence[Any]) -> None:
    returned = {value.id for value in outputs}
    seen: set[Root] = set()
    for start in loop.starts:
        roots = {alias.root for alias in aliases[start]}
        (root,) = roots if len(roots) == 1 else (None,)
        if root is None or root.outside or root.state:
            what = "one of its inputs or parameters" if root and root.outside else "other state"
            raise CaptureRefused(
                f"a while_loop starts from {what}, which eager mode overwrites: {_COPY}"
            )
        if root.block != loop.placed.block or root in seen:
            raise CaptureRefused(f"a while_loop overwrites a tensor from outside of it: {_COPY}")
        seen.add(root)
        named = {key for key, _ in aliases.of_root(root)}
        later = any(
            key in named and place > loop.placed.place for key, place in aliases.uses
        ) or not named.isdisjoint(returned)
        if later:
            raise CaptureRefused(
                "reads a tensor that a while_loop started from, which eager mode overwrites: "
                + _COPY
            )


def _check_turn(loop: Loop, aliases: Aliases) -> None:
    mine = {value.id for value in loop.state}
    for start, state, made in zip(loop.starts, loop.state, loop.made):
        if not (_alike(start, state) and _alike(state, made)):
            raise CaptureRefused(
                f"a while_loop turns {_describe(start)} into {_describe(made)}: they must agree"
            )
        for alias in aliases[made]:
            if alias.root.key in mine and (alias.root.key != state.id or alias.viewed):
                raise CaptureRefused(
                    "a turn of a while_loop hands one part of the state on as another, which eager "
                    "mode overwrites in between"
                )


def _check_outputs(outputs: Sequence[Any], aliases: Aliases) -> None:
    unique = list({value.id: value for value in outputs}.values())
    roots = [{alias.root for alias in aliases[value]} for value in unique]
    for position, value in enumerate(unique):
        if value.id not in aliases.mixed:
            continue
        if any(root.outside for root in roots[position]):
            raise CaptureRefused("returns, in one branch, a tensor that it was given")
        others = (other for i, other in enumerate(roots) if i != position)
        if not roots[position].isdisjoint(set().union(*others)):
            raise CaptureRefused("returns, in one branch, one tensor in two places")


def _alike(some: Any, other: Any) -> bool:
    shape = list(some.shape)
    return some.dtype == other.dtype and shape == list(other.shape) and -1 not in shape


def _describe(value: Any) -> str:
    return f"{str(value.dtype).rsplit('.', 1)[-1].lower()}{list(value.shape)}"


def _bare(placed: Placed) -> str:
    return placed.name.partition(".")[2]
