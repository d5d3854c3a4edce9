"""Chains of convolutions and poolings that run band by band instead of one whole after the other.

The largest tensors of a vision network are those of its first layers, and each is read by one op
only.  A *chain* of such ops may run in bands: a few rows of the last result at a time, from the
rows of the source that they need, so that of the tensors in between only one band is ever there.
Rows at which bands meet are computed twice.  A batch runs image by image, and nothing is computed
twice.  The bands' results are written where they belong in the whole (``PlanBuilder::Join``).

Worth it only where it makes the arena smaller: :func:`at_peak` looks for a chain at the plan's
fullest step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import Constant, Graph, Node, Value
from ...ir.ops import is_binary

#: Bytes that the band of the largest tensor should have.
_BAND = 1 << 20
_MOST_BANDS = 16
#: Rows of a band's result, at least: with fewer the rows computed twice weigh too much.
_LEAST_ROWS = 4
_ELEMENT = 4  # bytes of a float32


@dataclass(frozen=True)
class Chain:
    """nodes: convolutions and poolings, each the only reader of the one before."""

    nodes: tuple[Node, ...]

    @property
    def source(self) -> Value:
        """What the first node reads."""
        value = self.nodes[0].inputs[0]
        assert value is not None
        return value

    @property
    def result(self) -> Value:
        """What the last node makes."""
        return self.nodes[-1].output

    def between(self) -> list[Value]:
        """The tensors that are never whole."""
        return [node.output for node in self.nodes[:-1]]

    def bands(self) -> list[Band]:
        """The parts, in order."""
        largest = max(bytes_of(value) for value in (self.source, *self.between()))
        axis = 0 if self.source.shape[0] > 1 else 2
        length = self.result.shape[axis]
        least = 1 if axis == 0 else _LEAST_ROWS
        count = max(1, min(-(-largest // _BAND), _MOST_BANDS, length // least))
        edges = [length * i // count for i in range(count + 1)]
        return [Band(self, axis, *ends) for ends in zip(edges, edges[1:])]


@dataclass(frozen=True)
class Band:
    """Entries ``begin`` to ``end`` of the chain's result along ``axis`` (0: images, 2: rows)."""

    chain: Chain
    axis: int
    begin: int
    end: int

    def stretches(self) -> list[Stretch]:
        """What each node of the chain reads and makes for this band, in order."""
        begin, end = self.begin, self.end
        made: list[Stretch] = []
        for node in reversed(self.chain.nodes):
            if self.axis == 0:
                made.append(Stretch(node, begin, end, begin, end, *node.attrs["paddings"][:2]))
                continue
            source = node.inputs[0]
            assert source is not None
            first = begin * node.attrs["strides"][0] - node.attrs["paddings"][0]
            past = (end - 1) * node.attrs["strides"][0] - node.attrs["paddings"][0] + _reach(node)
            low, high = max(first, 0), min(past, source.shape[2])
            made.append(Stretch(node, begin, end, low, high, low - first, past - high))
            begin, end = low, high
        return made[::-1]


@dataclass(frozen=True)
class Stretch:
    """A node's part in a band: rows (or images) [begin, end) of its result, made from [low, high)
    of its source with so many rows of padding above and below."""

    node: Node
    begin: int
    end: int
    low: int
    high: int
    above: int
    below: int

    def paddings(self) -> list[int]:
        """As the node's own: top, bottom, left, right."""
        return [self.above, self.below, *self.node.attrs["paddings"][2:]]


def with_bands(nodes: Sequence[Node], chain: Chain) -> list[Node]:
    """``nodes`` with those of ``chain`` replaced by one, where the last of them stood."""
    banded = Node("banded", chain.nodes[0].inputs[:1], {"chain": chain}, [chain.result])
    last = chain.nodes[-1]
    inside = set(chain.nodes)
    return [banded if n is last else n for n in nodes if n is last or n not in inside]


def at_peak(
    graph: Graph, spans: dict[Node, tuple[int, int]], lifetimes: Sequence[tuple[int, int, int]]
) -> Chain | None:
    """The chain whose bands would make the fullest step of a plan smaller, or None.

    Args:
        spans: the steps [first, end) that each node has become.
        lifetimes: (bytes, first step, last step) of what the arena holds.
    """
    load: dict[int, int] = {}
    for size, first, last in lifetimes:
        for step in range(first, last + 1):
            load[step] = load.get(step, 0) + size
    if not load:
        return None
    peak = max(load, key=lambda step: load[step])
    at = next((node for node, (first, end) in spans.items() if first <= peak < end), None)
    if at is None or not _can(at):
        return None
    chain = _best(_longest(graph, at, set(spans)), at)
    if chain is None or len(chain.bands()) < 2:
        return None
    return chain


def bytes_of(value: Value) -> int:
    """Of the whole tensor."""
    return value.size * _ELEMENT


def _can(node: Node | None) -> bool:
    """Whether the node computes rows of its result from a few rows of its first input alone."""
    if node is None or node.op not in ("fused_conv2d", "fused_pool2d"):
        return False
    if any(is_binary(post_op) for post_op in node.attrs.get("post_ops", ())):
        return False
    source = node.inputs[0]
    if source is None or source.dtype != "float32" or min(*source.shape, *node.output.shape) < 1:
        return False
    return all(value is None or isinstance(value, Constant) for value in node.inputs[1:])


def _longest(graph: Graph, node: Node, free: set[Node]) -> list[Node]:
    """All of the nodes ``free`` that could be a chain around ``node``."""
    nodes = [node]
    while True:
        before = nodes[0].inputs[0]
        assert before is not None
        maker = before.producer
        if maker not in free or graph.sole_user(before) is None or not _can(maker):
            break
        nodes.insert(0, maker)
    while True:
        after = graph.sole_user(nodes[-1].output)
        if after not in free or after.inputs[0] is not nodes[-1].output or not _can(after):
            break
        nodes.append(after)
    return nodes


def _best(nodes: list[Node], at: Node) -> Chain | None:
    """The part of ``nodes`` around ``at`` that leaves least; the shortest of equals."""
    position = nodes.index(at)
    best: Chain | None = None
    least = _most(nodes, None)
    for first in range(position + 1):
        for last in range(position, len(nodes)):
            chain = Chain(tuple(nodes[first : last + 1]))
            left = _most(nodes, chain)
            shorter = best is not None and left == least and len(chain.nodes) < len(best.nodes)
            if left < least or shorter:
                best, least = chain, left
    return best


def _most(nodes: list[Node], chain: Chain | None) -> int:
    """About the most bytes that ``nodes`` need at once when ``chain``, a part, runs in bands."""
    inside = set() if chain is None else set(chain.nodes)
    most = 0
    for node in nodes:
        source = node.inputs[0]
        assert source is not None
        if node not in inside:
            # An input of the plan is copied first, from planes to pixels.
            most = max(most, bytes_of(source) + bytes_of(node.output))
    if chain is not None:
        most = max(most, _banded(chain))
    return most


def _banded(chain: Chain) -> int:
    # The plan's inputs lie outside of the arena: only their bands are copied there.
    source = 0 if chain.source.producer is None else bytes_of(chain.source)
    whole = source + bytes_of(chain.result)
    count = len(chain.bands())
    if count < 2:
        return whole + sum(map(bytes_of, chain.between()))
    parts = [bytes_of(value) // count for value in (chain.source, *chain.between())]
    return whole + max(a + b for a, b in zip(parts, [*parts[1:], 0]))


def _reach(node: Node) -> int:
    """Rows of its source that one row of the node's result is made from."""
    if node.op == "fused_pool2d":
        return int(node.attrs["kernel"][0])
    weights = node.inputs[1]
    assert weights is not None
    return int((weights.shape[2] - 1) * node.attrs["dilations"][0] + 1)
