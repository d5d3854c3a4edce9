"""An optimised graph as JSON and raw bytes, and back.  Reading executes nothing of the file.

Values are numbered; constants live in one binary file at offsets of 64 bytes, each content once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from ..engines.native.lowering import RULES
from ..errors import BundleError, ExportError
from ..ir._paddle import formals
from ..ir.graph import Constant, Graph, Node, Value, numpy_dtype
from ..ir.ops import FUSED_OPS
from ..ir.verify import GraphError, verify
from .spec import DTYPES

_ALIGNMENT = 64
_DTYPES = (*DTYPES, "complex64", "complex128")
_CONTROL_FLOW = ("if", "while")
_MOST_SIDES = 32
#: Ops that move a window -> their attributes with so many numbers for each side of it.
_CONVOLUTION = {"strides": 1, "dilations": 1, "paddings": 2}
_POOL = {"kernel": 1, "strides": 1, "paddings": 2}
_WINDOWED = {
    **dict.fromkeys(("fused_conv2d", "fused_conv3d"), _CONVOLUTION),
    **dict.fromkeys(("fused_conv2d_transpose", "fused_conv3d_transpose"), _CONVOLUTION),
    **dict.fromkeys(("fused_pool2d", "fused_pool3d"), _POOL),
}
_WIDEST = 1 << 20


class ConstantWriter:
    """Appends the content of constants to a binary file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0
        self._known: dict[bytes, int] = {}
        #: (offset, bytes) of every content.
        self.spans: list[tuple[int, int]] = []

    def put(self, constant: Constant) -> dict[str, Any]:
        """Where the content of ``constant`` is, with its type."""
        array = np.ascontiguousarray(constant.compute())
        content = array.reshape(-1).view(np.uint8)
        key = hashlib.sha256(content.data).digest()
        if key not in self._known:
            padding = -self._end % _ALIGNMENT
            self._file.write(b"\0" * padding)
            self._known[key] = self._end + padding
            self.spans.append((self._end + padding, content.size))
            self._file.write(content.data)
            self._end += padding + content.size
        return {
            "name": constant.name,
            "dtype": constant.dtype,
            "shape": list(constant.shape),
            "offset": self._known[key],
        }


def graph_to_dict(graph: Graph, constants: ConstantWriter) -> dict[str, Any]:
    """``graph`` as plain values; the contents of its constants go to ``constants``.

    Raises:
        ExportError: an attribute is of a kind that JSON cannot hold.
    """
    return _Writer(constants).graph(graph)


class _Writer:
    """Numbers the values of a graph and of the bodies of its control flow."""

    def __init__(self, constants: ConstantWriter) -> None:
        self._constants = constants
        self._numbers: dict[Value, int] = {}

    def graph(self, graph: Graph) -> dict[str, Any]:
        inputs = [self._declare(value) for value in graph.inputs]
        stored = [
            {"id": self._number(constant), **self._constants.put(constant)}
            for constant in graph.constants
            if constant not in self._numbers
        ]
        nodes = [self._node(node) for node in graph.nodes]
        return {
            "inputs": inputs,
            "constants": stored,
            "nodes": nodes,
            "outputs": [self._numbers[value] for value in graph.outputs],
        }

    def _number(self, value: Value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _declare(self, value: Value) -> dict[str, Any]:
        return {
            "id": self._number(value),
            "name": value.name,
            "dtype": value.dtype,
            "shape": list(value.shape),
        }

    def _node(self, node: Node) -> dict[str, Any]:
        made: dict[str, Any] = {
            "op": node.op,
            "inputs": [None if value is None else self._numbers[value] for value in node.inputs],
            "attrs": {name: _encode(value, node, name) for name, value in node.attrs.items()},
            "outputs": [self._declare(value) for value in node.outputs],
        }
        for name, groups in (("in", node.input_groups), ("out", node.output_groups)):
            if groups:
                made[name] = [list(group) for group in groups]
        if node.regions:
            made["regions"] = [self.graph(region) for region in node.regions]
        return made


def _encode(value: Any, node: Node, name: str) -> Any:
    """Tuples as ``{"tuple": [...]}``, numpy's numbers as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_encode(item, node, name) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, node, name) for item in value]}
    raise ExportError(
        f"op '{node.op}' has an attribute '{name}' of type {type(value).__name__}, which a bundle "
        "cannot hold"
    )


def graph_from_dict(stored: Any, content: np.ndarray) -> Graph:
    """The graph that ``graph_to_dict`` stored; its constants are views of ``content`` (uint8).

    Raises:
        BundleError: it is not a well-formed graph, names an unknown op, or points outside of
            ``content``.
    """
    try:
        graph = _Reader(content).graph(stored)
        verify(graph)
    except (KeyError, TypeError, ValueError, AttributeError, GraphError, IndexError) as error:
        raise BundleError(f"the stored graph is damaged: {error}") from error
    return graph


class _Reader:
    def __init__(self, content: np.ndarray) -> None:
        self._content = content
        self._values: dict[int, Value] = {}

    def graph(self, stored: Mapping[str, Any]) -> Graph:
        graph = Graph()
        for one in stored["inputs"]:
            name, shape, dtype = _declared(one)
            self._enter(one["id"], graph.add_input(name, shape, dtype), name)
        for one in stored["constants"]:
            self._enter(one["id"], self._constant(one), one["name"])
        for one in stored["nodes"]:
            graph.append(self._node(one))
        graph.outputs = [self._values[number] for number in stored["outputs"]]
        return graph

    def _enter(self, number: int, value: Value, name: str) -> None:
        if number in self._values or value.name != name:
            raise ValueError(f"value '{name}' is declared twice")
        self._values[number] = value

    def _constant(self, one: Mapping[str, Any]) -> Constant:
        name, shape, dtype = _declared(one)
        of_numpy = numpy_dtype(dtype)
        size = math.prod(shape) * of_numpy.itemsize
        start = one["offset"]
        if min(shape, default=0) < 0:
            raise ValueError(f"constant '{name}' has an open shape {shape}")
        if type(start) is not int or start < 0 or start + size > self._content.size:
            raise ValueError(f"constant '{name}' lies outside of the stored contents")
        array = self._content[start : start + size].view(of_numpy).reshape(shape)
        return Constant(name, shape, dtype, literal=array)

    def _node(self, one: Mapping[str, Any]) -> Node:
        op = one["op"]
        known = op in FUSED_OPS or op in RULES or op in _CONTROL_FLOW or formals(op) is not None
        if not isinstance(op, str) or not known:
            raise ValueError(f"op {op!r} is unknown")
        inputs = [None if number is None else self._values[number] for number in one["inputs"]]
        regions = [self.graph(region) for region in one.get("regions", ())]
        outputs = []
        for declared in one["outputs"]:
            name, shape, dtype = _declared(declared)
            value = Value(name, shape, dtype)
            self._enter(declared["id"], value, name)
            outputs.append(value)
        attrs = {str(name): _decode(value) for name, value in one["attrs"].items()}
        if op in _WINDOWED:
            _check_window(op, attrs, len(outputs[0].shape) - 2)
        return Node(
            op, inputs, attrs, outputs, _groups(one.get("in")), _groups(one.get("out")), regions
        )


def _check_window(op: str, attrs: Mapping[str, Any], sides: int) -> None:
    """The native engine takes the geometry of a window as it is given: one number for each side."""
    for name, count in _WINDOWED[op].items():
        numbers = attrs[name]
        whole = all(type(n) is int and abs(n) < _WIDEST for n in numbers)
        if len(numbers) != count * sides or not whole:
            raise ValueError(f"'{name}' of op '{op}' is no geometry of {sides} sides: {numbers!r}")


def _declared(one: Mapping[str, Any]) -> tuple[str, tuple[int, ...], str]:
    name, shape, dtype = one["name"], one["shape"], one["dtype"]
    sides = all(type(side) is int and side >= -1 for side in shape)
    if not isinstance(name, str) or len(shape) > _MOST_SIDES or not sides:
        raise ValueError(f"value {name!r} has a shape that is none: {shape!r}")
    if dtype not in _DTYPES:
        raise ValueError(f"value '{name}' has an unknown dtype {dtype!r}")
    return name, tuple(shape), dtype


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        return tuple(_decode(item) for item in value["tuple"])
    return value


def _groups(stored: Sequence[Sequence[Any]] | None) -> tuple[tuple[str, int | None], ...]:
    return tuple((str(name), length) for name, length in stored or ())
