"""Stacked LSTM and GRU, one op per layer: of several layers, Paddle2ONNX loses final states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from .table import Op, Refused, Value, rewrites


@rewrites("rnn")
def stacked(op: Op) -> Sequence[Value | None] | None:
    """Layer by layer, each with its slice of the initial states."""
    attrs = op.attrs
    if attrs["mode"] not in ("LSTM", "GRU"):
        raise Refused(f"SimpleRNN ({attrs['mode']}); use LSTM or GRU")
    if op.given("sequence_length"):
        raise Refused("sequence_length; leave it out, and set what is past the end to zero after")
    layers, directions = attrs["num_layers"], 2 if attrs["is_bidirec"] else 1
    if layers == 1:
        return None
    states = _list(op.inputs["pre_state"])
    weights = _list(op.inputs["weight_list"])
    per_layer = 2 * directions  # input and hidden weights of each direction; as many biases
    biases = weights[per_layer * layers :]
    x = op.x
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        part = slice(layer * per_layer, (layer + 1) * per_layer)
        start = [layer * directions], [(layer + 1) * directions]
        _, _, out, state, _ = _ordered(
            paddle._C_ops.rnn(
                x,
                [paddle.slice(one, [0], *start) for one in states],
                [*weights[part], *biases[part]],
                None,
                op.inputs["dropout_state_in"],
                attrs["dropout_prob"],
                attrs["is_bidirec"],
                attrs["input_size"] if layer == 0 else attrs["hidden_size"] * directions,
                attrs["hidden_size"],
                1,
                attrs["mode"],
                attrs["seed"],
                attrs["is_test"],
            )
        )
        x = out
        for made, one in zip(finals, state):
            made.append(one)
    joined = [paddle.concat(one, 0) for one in finals]
    _replace_states(op.op.result(2), joined)
    return [x, None, None, None]


def _ordered(returned: Any) -> tuple[None, None, Value, list[Value], None]:
    """out and the list of states of what ``rnn`` returns: (out, dropout state, states, ...)."""
    out, _, states = returned[0], returned[1], returned[2]
    return None, None, out, list(states), None


def _replace_states(vector: Value, joined: list[Value]) -> None:
    """Whoever takes one state out of ``vector`` reads the joined one."""
    for user in vector.all_used_ops():
        if user.name() == "builtin.split":
            for result, value in zip(user.results(), joined):
                result.replace_all_uses_with(value)
        elif user.name() == "builtin.slice":
            user.result(0).replace_all_uses_with(joined[user.attrs()["index"]])
        user.get_parent_block().remove_op(user)


def _list(vector: Value) -> list[Value]:
    """The tensors that a ``builtin.combine`` has put together."""
    return list(vector.get_defining_op().operands_source())
