"""What a pass is.

A pass takes a graph, changes it, and returns a :class:`PassRecord`: how often it fired and why it
refused where it nearly did.  Most passes are a :class:`PatternPass`: some patterns, a ``check``
that returns the reason to refuse, a ``rewrite``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from ..ir.graph import Constant, Graph, Node, Value
from ..ir.pattern import Match, OpPattern

PostOp = tuple[Any, ...]

#: A pass that still changes the graph after so many sweeps is wrong.
_MAX_SWEEPS = 50


@dataclass
class PassRecord:
    """name: of the pass.  fired: number of rewrites.  refused: one reason per near miss."""

    name: str
    fired: int = 0
    refused: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """``{"pass", "fired", "refused"}`` for reports."""
        return {"pass": self.name, "fired": self.fired, "refused": list(self.refused)}


class Pass(Protocol):
    """Anything the pipeline can run."""

    @property
    def name(self) -> str:
        """What records call it."""

    def run(self, graph: Graph) -> PassRecord:
        """Changes ``graph`` in place."""


class PatternPass:
    """Rewrites every match of ``patterns``, until nothing matches any more.

    Subclasses set ``name`` and ``patterns`` (and ``latest_first`` where one pattern may be the
    beginning of a larger one), and define :meth:`rewrite` and, where a match is
    not enough, :meth:`check`.
    """

    name: ClassVar[str]
    patterns: ClassVar[Sequence[OpPattern]]
    latest_first: ClassVar[bool] = False

    def check(self, graph: Graph, match: Match) -> str | None:
        """Why this match must not be rewritten, or None."""
        return None

    def rewrite(self, graph: Graph, match: Match) -> None:
        """Replaces the matched nodes; called only after ``check`` returned None."""
        raise NotImplementedError

    def run(self, graph: Graph) -> PassRecord:
        """Sweeps over the graph until a sweep changes nothing."""
        record = PassRecord(self.name)
        for _ in range(_MAX_SWEEPS):
            record.refused = []
            nodes = graph.nodes[::-1] if self.latest_first else list(graph.nodes)
            fired = sum(self._visit(graph, node, record) for node in nodes)
            record.fired += fired
            if not fired:
                return record
        raise RuntimeError(f"pass {self.name} does not come to an end")

    def _visit(self, graph: Graph, node: Node, record: PassRecord) -> bool:
        if node.outputs and node.output.producer is not node:
            return False  # erased earlier in this sweep
        reasons: list[str] = []
        for pattern in self.patterns:
            for match in pattern.match_all(node):
                reason = match.escape(graph) or self.check(graph, match)
                if reason is None:
                    self.rewrite(graph, match)
                    return True
                if reason not in reasons:
                    reasons.append(reason)
        record.refused.extend(reasons)
        return False


def replace(graph: Graph, match: Match, new: Value) -> None:
    """``new`` takes the place of the match's first output; matched nodes nobody reads go."""
    graph.replace_all_uses(match.root.output, new)
    for node in reversed(match.matched):
        if not any(graph.use_count(value) for value in node.outputs):
            graph.erase(node)


def erase_unread(graph: Graph, value: Value) -> None:
    """Removes the producer of ``value`` if nobody reads it, then what only that node read."""
    node = value.producer
    if node is None or any(graph.use_count(made) for made in node.outputs):
        return
    graph.erase(node)
    for read in node.inputs:
        if read is not None:
            erase_unread(graph, read)


def add_elementwise(
    graph: Graph,
    before: Node,
    x: Value,
    post_ops: Sequence[PostOp],
    operands: Sequence[Value] = (),
) -> Value:
    """A ``fused_elementwise`` node on ``x``; operand k is ``node.inputs[1 + k]``."""
    attrs = {"post_ops": list(post_ops)}
    inputs = [x, *operands]
    return graph.add(
        "fused_elementwise", inputs, attrs, shape=x.shape, dtype=x.dtype, before=before
    )


def scalar(value: Value | None) -> float | None:
    """The number in a one-element literal, or None when ``value`` is not such a constant."""
    if isinstance(value, Constant) and value.literal is not None and value.literal.size == 1:
        return float(value.literal.reshape(-1)[0])
    return None


def is_float(value: Value) -> bool:
    """True for the dtypes that fused arithmetic is defined on.

    Half precision is not among them: numpy has no bfloat16 to fold constants in, and a fused op
    would round less often than Paddle's separate ones.
    """
    return value.dtype in ("float32", "float64")


def is_static(value: Value) -> bool:
    """True when no dimension depends on data."""
    return -1 not in value.shape


def over_last(node: Node) -> bool:
    """True when a reduction is over the last dimension alone and keeps it."""
    source = node.inputs[0]
    assert source is not None
    return bool(node.attrs.get("keepdim")) and node.attrs.get("axis") in ([-1], [source.rank - 1])


def per_channel(value: Value, channels: int, axis: int, rank: int) -> bool:
    """True when ``value`` broadcasts against rank ``rank`` as one number per index of ``axis``.

    axis counts from the front, e.g. 1 for NCHW.
    """
    if value.rank > rank or value.size != channels:
        return False
    padded = (1,) * (rank - value.rank) + value.shape
    return padded[axis] == channels


def broadcasts_to(value: Value, shape: Sequence[int]) -> bool:
    """True when ``value`` broadcasts (numpy rules) to exactly ``shape``."""
    if value.rank > len(shape) or not is_static(value) or -1 in shape:
        return False
    tail = shape[len(shape) - value.rank :]
    return all(mine in (1, theirs) for mine, theirs in zip(value.shape, tail))
