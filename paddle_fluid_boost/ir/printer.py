"""A graph as text: stable, readable, like a small Python function.

    def graph(x0: float32[1, 3, 8, 8]):
        conv2d_0.w_0: float32[4, 3, 3, 3]
        bias = derived(conv2d_0.b_0): float32[4]
        v0 = conv2d(x0, conv2d_0.w_0, groups=1, strides=[1, 1])  # float32[1, 4, 6, 6]
        return v0

Constants come first, in order of use; attributes are sorted by name.  The golden tests of the
passes compare this text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import Constant, Graph, Node, Value

_LONG_LITERAL = 8


def print_graph(graph: Graph, name: str = "graph") -> str:
    """The text of ``graph``, ending in a newline."""
    return "\n".join(_lines(graph, name)) + "\n"


def _lines(graph: Graph, name: str) -> list[str]:
    arguments = ", ".join(repr(value) for value in graph.inputs)
    lines = [f"def {name}({arguments}):"]
    lines += [f"    {_constant(constant)}" for constant in graph.constants]
    for node in graph.nodes:
        lines.append(f"    {_node(node)}")
        for position, region in enumerate(node.regions):
            lines += ["    " + line for line in _lines(region, f"{node.op}_{position}")]
    lines.append(f"    return {', '.join(value.name for value in graph.outputs)}".rstrip())
    return lines


def _constant(constant: Constant) -> str:
    if constant.literal is not None:
        return f"{constant.name} = {_literal(constant.literal)}: {_type(constant)}"
    if constant.function is not None:
        parents = ", ".join(parent.name for parent in constant.parents)
        return f"{constant.name} = derived({parents}): {_type(constant)}"
    return f"{constant.name}: {_type(constant)}"


def _literal(array: np.ndarray) -> str:
    flat = array.reshape(-1)
    if flat.size and (flat == flat[0]).all():
        return f"full({flat[0].item()!r})"
    shown = ", ".join(repr(item) for item in flat[:_LONG_LITERAL].tolist())
    return f"[{shown}{', ...' if flat.size > _LONG_LITERAL else ''}]"


def _node(node: Node) -> str:
    parts = []
    position = 0
    for _, length in node.input_groups or [("", None)] * len(node.inputs):
        taken = node.inputs[position : position + (1 if length is None else length)]
        position += len(taken)
        names = [_name(value) for value in taken]
        parts.append(names[0] if length is None else f"[{', '.join(names)}]")
    parts += [f"{key}={_attribute(node.attrs[key])}" for key in sorted(node.attrs)]
    made = ", ".join(value.name for value in node.outputs)
    types = ", ".join(_type(value) for value in node.outputs)
    call = f"{node.op}({', '.join(parts)})"
    return f"{made} = {call}  # {types}" if made else call


def _name(value: Value | None) -> str:
    return "null" if value is None else value.name


def _attribute(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, list):
        return f"[{', '.join(_attribute(item) for item in value)}]"
    if isinstance(value, tuple):
        inner = ", ".join(_attribute(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _type(value: Value) -> str:
    return f"{value.dtype}{list(value.shape)}"
