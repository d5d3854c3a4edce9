"""What ``recurrent`` means, step by step; see ``ops.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from .graph import Node

Tensor = Any


def recurrent(node: Node, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """The sequence, then the final states."""
    x, w, r, b = tensors[:4]
    at = node.attrs.get("lengths")
    lengths = None if at is None else tensors[at]
    states = list(tensors[4:at])
    steps, batch = x.shape[:2]
    sequences, finals = [], []
    for d in range(node.attrs["directions"]):
        zeros = paddle.zeros([batch, r.shape[1]], x.dtype)
        state = [zeros if s is None else s[d] for s in states]
        ys: list[Tensor] = []
        for step in range(steps) if d == 0 else reversed(range(steps)):
            made = _CELLS[node.attrs["mode"]](x[step], w[d], r[d], b[d], *state)
            if lengths is None:
                state = made
                ys.append(state[0])
            else:
                inside = (lengths > step).unsqueeze(1)
                state = [paddle.where(inside, new, old) for new, old in zip(made, state)]
                ys.append(paddle.where(inside, state[0], zeros))
        sequences.append(paddle.stack(ys if d == 0 else ys[::-1]))
        finals.append(state)
    return [paddle.concat(sequences, -1), *(paddle.stack(kind) for kind in zip(*finals))]


def _gates(x: Tensor, w: Tensor) -> list[Tensor]:
    """x [N, K] times w [K, G, H]: one [N, H] per gate."""
    product = paddle.matmul(x, w.reshape([w.shape[0], -1]))
    return list(paddle.split(product, w.shape[1], -1))


def _lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
    i, f, g, o = (p + q + bias for p, q, bias in zip(_gates(x, w), _gates(h, r), b))
    c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
    return [F.sigmoid(o) * paddle.tanh(c), c]


def _gru(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> list[Tensor]:
    update, reset, new = _gates(x, w)
    update_h, reset_h, new_h = _gates(h, r)
    z = F.sigmoid(update + update_h + b[0])
    n = paddle.tanh(new + b[2] + F.sigmoid(reset + reset_h + b[1]) * (new_h + b[3]))
    return [z * h + (1.0 - z) * n]


def _simple(function: Any) -> Any:
    def cell(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> list[Tensor]:
        return [function(_gates(x, w)[0] + _gates(h, r)[0] + b[0])]

    return cell


_CELLS = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": _simple(paddle.tanh),
    "RNN_RELU": _simple(F.relu),
}
