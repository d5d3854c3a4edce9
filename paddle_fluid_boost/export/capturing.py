"""A callable and a signature -> a PIR program, by the ways there are.

Two ways, each right where the other may not be:

* *trace*: the function runs on symbols as it is.  Exact for fixed shapes; Python that computes with
  an open size sees -1.
* *ast*: Paddle's AST transformer first turns ``if``, ``while`` and ``x.shape[0]`` into ops.

Whether a way was right is not judged here: every artefact is compared with eager afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..capture.program import CapturedProgram
from ..capture.trace import trace
from ..errors import CaptureRefused
from . import _paddle as pd
from .spec import Signature
from .structure import plain

TRACE, AST = "trace", "ast"
_WHERE = re.compile(r"(.*?):(\d+): ")


def ways(signature: Signature) -> tuple[str, ...]:
    """The ways to capture, the more promising first."""
    return (AST, TRACE) if signature.names else (TRACE, AST)


def apply(call: Callable[..., Any], keywords: Sequence[str] | None, inputs: Sequence[Any]) -> Any:
    """``call`` with ``inputs`` in order, or as the arguments called ``keywords``."""
    return call(*inputs) if keywords is None else call(**dict(zip(keywords, inputs)))


def capture_call(
    call: Callable[..., Any],
    keywords: Sequence[str] | None,
    signature: Signature,
    examples: Sequence[np.ndarray],
    way: str,
) -> tuple[CapturedProgram, Any]:
    """Captures ``apply(call, keywords, inputs)`` with the open sizes of ``signature`` left open.

    Args:
        examples: one array per input, of a shape that fits.
        way: ``"trace"`` or ``"ast"``.

    Returns:
        The program, its inputs called as in ``signature`` and its outputs distinct; and the
        structure of the result (see ``structure.describe``).

    Raises:
        CaptureRefused: the callable cannot run on symbols; the reason names the user's line.
    """
    open_dims = {i: one.open_dims for i, one in enumerate(signature.inputs) if one.open_dims}

    def target(*inputs: Any) -> Any:
        return plain(apply(pd.convert_call(call) if way == AST else call, keywords, inputs))

    with pd.plain_functions(), pd.paddle.no_grad():
        tensors = [pd.paddle.to_tensor(array) for array in examples]
        names = [one.name for one in signature.inputs]
        try:
            captured, result = trace(
                target, tensors, {}, dynamic_dims=open_dims, names=names, call_stacks=True
            )
        except CaptureRefused as error:
            raise CaptureRefused(error.reason, _origin(error.where)) from error
    if way == AST:
        pd.restore_source_lines(captured.program)
    return _distinct(captured), result


def _origin(where: str) -> str:
    """``"file:line: code"`` of the user's where it is of a file that the AST way generated."""
    found = _WHERE.match(where)
    origin = pd.user_line(found[1], int(found[2])) if found else None
    return where if origin is None else "{}:{}: {}".format(*origin)


def _distinct(captured: CapturedProgram) -> CapturedProgram:
    """``captured`` without outputs that are the very value of another: no format can name both."""
    kept = distinct_positions(captured.output_values)
    return replace(
        captured,
        outputs=[captured.outputs[i] for i in kept],
        output_values=[captured.output_values[i] for i in kept],
    )


def distinct_positions(values: Sequence[Any]) -> list[int]:
    """Positions of the values that are not the same ``pir.Value`` as an earlier one."""
    kept: list[int] = []
    for position, value in enumerate(values):
        if not any(values[other].is_same(value) for other in kept):
            kept.append(position)
    return kept
