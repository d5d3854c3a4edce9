"""The rule for recurrent layers.

Our own loop for few sequences and for those of lengths of their own, oneDNN's primitive for many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.graph import Constant, Node, Value
from .lowering import Lowering, NotNative, lowers

#: Up to so many sequences at a time our loop is faster than oneDNN's primitive (measured at hidden
#: sizes from 48 to 512).
_FEW = {"LSTM": 8, "GRU": 16}


@lowers("recurrent")
def recurrent(low: Lowering, node: Node) -> list[int | None]:
    """Final states are made only where something reads them."""
    at = node.attrs.get("lengths")
    x, w, r, b, *states = node.inputs[:at]
    lengths = None if at is None else node.inputs[at]
    weights = [weight for weight in (w, r, b) if isinstance(weight, Constant)]
    if x is None or len(weights) != 3:
        raise NotNative("weights that are not constants")
    mode = node.attrs["mode"]
    initial = [low.optional(state) for state in states] + [-1] * (2 - len(states))
    wanted = any(low.is_used(value) for value in node.outputs[1:])
    made: list[int | None]
    few = lengths is not None or x.shape[1] <= _FEW.get(mode, 0)
    if few and low.builder.unit_block():
        measured = -1 if lengths is None else low.id(lengths)
        made = list(_by_our_loop(low, mode, x, weights, initial, measured, wanted))
    elif lengths is not None:
        raise NotNative("lengths of sequences, on a processor without AVX2")
    else:
        ids = [low.float(value) for value in (x, w, r, b)]
        made = list(low.builder.recurrent(mode, *ids, *initial, wanted))
    return made + [None] * (len(node.outputs) - len(made))


def _by_our_loop(
    low: Lowering,
    mode: str,
    x: Value,
    weights: Sequence[Constant],
    initial: list[int],
    lengths: int,
    wanted: bool,
) -> list[int]:
    """x W + b for all steps is one product; the loop adds h R, step by step.

    Hidden units are padded to whole blocks, so that the loop reads nothing but whole vectors.
    """
    w, r, b = (weight.compute() for weight in weights)
    directions, _, gates, hidden = w.shape
    block = low.builder.unit_block()
    blocks = -(-hidden // block)

    def padded(array: np.ndarray) -> np.ndarray:
        missing = blocks * block - hidden
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])

    matrix = padded(w).transpose(1, 0, 2, 3).reshape(w.shape[1], -1)
    bias = padded(b[:, :gates]).reshape(-1)
    recurrence = padded(r).reshape(directions, hidden, gates, blocks, block)
    separate = low.array(padded(b[:, gates])) if mode == "GRU" else -1
    product = low.builder.matmul(low.float(x), low.array(matrix), low.array(bias), [])
    return list(
        low.builder.recurrence(
            mode,
            product,
            low.array(recurrence.transpose(0, 3, 1, 2, 4)),
            separate,
            *initial,
            directions,
            hidden,
            lengths,
            wanted,
        )
    )
