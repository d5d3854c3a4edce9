"""Takes Paddle's ``rnn`` apart: one ``recurrent`` node per layer, weights laid out for products.

Paddle keeps per layer and direction the matrices [gates * hidden, in] and two bias vectors, all
matrices first.  Here a layer has its directions stacked and its matrices transposed,
[directions, in, gates, hidden], and as many biases as the cell can tell apart:

    LSTM      gates i, f, g, o    x W + h R + (b1 + b2)
    GRU       gates z, r, n       n = tanh(x W_n + b1_n + r * (h R_n + b2_n)): four bias vectors
    tanh, relu                    x W + h R + (b1 + b2)

Lengths per sequence, which only LSTM and GRU take here, go to every layer.  Initial states of
zeros, which Paddle makes for a user who gives none, become no state at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..ir.graph import Constant, Graph, Node, Value
from ..ir.pattern import Match, op, value
from .base import PatternPass, is_static

#: mode -> Paddle's gate that comes first, second, ... here.
_GATES = {"LSTM": [0, 1, 2, 3], "GRU": [1, 0, 2], "RNN_TANH": [0], "RNN_RELU": [0]}


class LowerRecurrent(PatternPass):
    """See the module."""

    name = "lower_recurrent"
    patterns: ClassVar = (op("rnn|rnn_", value("x")),)

    def check(self, graph: Graph, match: Match) -> str | None:
        """Refuses dropout between layers in training, weights that are not constants, odd cells."""
        node, x = match.root, match["x"]
        if node.attrs["mode"] not in _GATES:
            return f"a cell of the kind {node.attrs['mode']}"
        if x.dtype != "float32" or not is_static(x) or 0 in x.shape:
            return f"rnn on {x!r}"
        lengths = node.input("sequence_length")
        if lengths is not None and node.attrs["mode"] not in ("LSTM", "GRU"):
            return "a simple cell, and every sequence has a length of its own"
        if lengths is not None and lengths.dtype not in ("int32", "int64"):
            return f"lengths of sequences as {lengths.dtype}"
        if (
            not node.attrs["is_test"]
            and node.attrs["dropout_prob"]
            and node.attrs["num_layers"] > 1
        ):
            return "dropout between layers, in training"
        weights = _group(node, "weight_list")
        if not all(isinstance(weight, Constant) for weight in weights):
            return "weights are not constants"
        if len(weights) != 4 * node.attrs["num_layers"] * _directions(node):
            return "a cell without its two biases"
        named = dict(zip(_output_names(node), node.outputs))
        if any(graph.use_count(named[name]) for name in ("dropout_state_out", "reserve")):
            return "what training keeps is read"
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """The layers, and the final states joined where something reads them."""
        node = match.root
        layers = node.attrs["num_layers"]
        initial = _group(node, "pre_state")
        if all(_is_zero(state) for state in initial):
            states: list[list[Value | None]] = [[None] * layers for _ in initial]
        else:
            states = [_split(graph, node, state, layers) for state in initial]
        y = match["x"]
        finals: list[list[Value]] = [[] for _ in states]
        for layer in range(layers):
            made = _layer(graph, node, layer, y, [state[layer] for state in states])
            y = made[0]
            for final, value_ in zip(finals, made[1:]):
                final.append(value_)
        names = _output_names(node)
        graph.replace_all_uses(node.output, y)
        old_states = [v for name, v in zip(names, node.outputs) if name == "state"]
        for old, final in zip(old_states, finals):
            if graph.use_count(old):
                graph.replace_all_uses(old, _joined(graph, node, old, final))
        graph.erase(node)


def _group(node: Node, name: str) -> list[Value]:
    """The values passed for the list parameter ``name``."""
    position = 0
    for formal, length in node.input_groups:
        count = 1 if length is None else length
        if formal == name:
            return [v for v in node.inputs[position : position + count] if v is not None]
        position += count
    raise KeyError(f"{node.op} has no input '{name}'")


def _directions(node: Node) -> int:
    return 2 if node.attrs["is_bidirec"] else 1


def _output_names(node: Node) -> list[str]:
    """The formal name of each output."""
    return [name for name, length in node.output_groups for _ in range(length or 1)]


def _is_zero(state: Value) -> bool:
    return isinstance(state, Constant) and state.literal is not None and not state.literal.any()


def _split(graph: Graph, node: Node, state: Value, layers: int) -> list[Value | None]:
    """The initial state of each layer."""
    if layers == 1:
        return [state]
    size = state.shape[0] // layers
    parts = [graph.new_value((size, *state.shape[1:]), state.dtype) for _ in range(layers)]
    attrs = {"sections": [size] * layers, "axis": 0}
    split = Node("split", [state], attrs, parts, [("x", None)], [("out", layers)])
    graph.insert_before(node, split)
    return list(parts)


def _joined(graph: Graph, node: Node, old: Value, parts: Sequence[Value]) -> Value:
    if len(parts) == 1:
        return parts[0]
    joined = Node(
        "concat",
        parts,
        {"axis": 0},
        [graph.new_value(old.shape, old.dtype)],
        [("x", len(parts))],
        [("out", None)],
    )
    return graph.insert_before(node, joined).output


def _layer(
    graph: Graph, node: Node, layer: int, x: Value, states: Sequence[Value | None]
) -> list[Value]:
    """One layer on ``x``; returns what it makes: the sequence, then its final states."""
    mode, hidden = node.attrs["mode"], node.attrs["hidden_size"]
    directions = _directions(node)
    weights = [w for w in _group(node, "weight_list") if isinstance(w, Constant)]
    matrices, biases = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    cells = range(layer * directions, (layer + 1) * directions)
    inputs: list[Value | None] = [
        x,
        _matrix(graph, [matrices[2 * cell] for cell in cells], mode, hidden),
        _matrix(graph, [matrices[2 * cell + 1] for cell in cells], mode, hidden),
        _bias(graph, [biases[2 * cell + i] for cell in cells for i in (0, 1)], mode, hidden),
        *states,
    ]
    steps, batch = x.shape[:2]
    shapes = [(steps, batch, directions * hidden), *[(directions, batch, hidden) for _ in states]]
    made = [graph.new_value(shape, x.dtype) for shape in shapes]
    attrs: dict[str, Any] = {"mode": mode, "directions": directions}
    lengths = node.input("sequence_length")
    if lengths is not None:
        attrs["lengths"] = len(inputs)
        inputs.append(lengths)
    return graph.insert_before(node, Node("recurrent", inputs, attrs, made)).outputs


def _matrix(graph: Graph, parts: list[Constant], mode: str, hidden: int) -> Constant:
    gates = _GATES[mode]

    def stack(*arrays: np.ndarray) -> np.ndarray:
        split = [a.reshape(len(gates), hidden, a.shape[1])[gates] for a in arrays]
        return np.stack([a.transpose(2, 0, 1) for a in split])

    shape = (len(parts), parts[0].shape[1], len(gates), hidden)
    return graph.derived(_name(parts), parts, stack, shape, "float32")


def _bias(graph: Graph, parts: list[Constant], mode: str, hidden: int) -> Constant:
    gates = _GATES[mode]

    def stack(*arrays: np.ndarray) -> np.ndarray:
        split = [a.reshape(len(gates), hidden)[gates] for a in arrays]
        made = []
        for first, second in zip(split[::2], split[1::2]):
            if mode == "GRU":
                made.append(np.stack([*(first[:2] + second[:2]), first[2], second[2]]))
            else:
                made.append(first + second)
        return np.stack(made)

    count = 4 if mode == "GRU" else len(gates)
    shape = (len(parts) // 2, count, hidden)
    return graph.derived(_name(parts), parts, stack, shape, "float32")


def _name(parts: Sequence[Constant]) -> str:
    return "+".join(part.name for part in parts)
