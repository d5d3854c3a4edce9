"""Concats that grow: each is the one before with more behind it, as in a dense block.

Made one by one, every concat copies all that came before.  Instead the largest has its memory, the
*room*, from the beginning: a part is written there once, by whoever makes it where that costs
nothing, and the smaller concats are views of its first channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import Node, Value


@dataclass(frozen=True, eq=False)
class Room:
    """parts: what lies side by side along the channels, in order."""

    parts: tuple[Value, ...]

    def shape(self) -> list[int]:
        """[batch, all channels, height, width]."""
        shape = list(self.parts[0].shape)
        shape[1] = sum(part.shape[1] for part in self.parts)
        return shape

    def channel_of(self, part: Value) -> int:
        """Where ``part`` begins."""
        before = self.parts[: self.parts.index(part)]
        return sum(value.shape[1] for value in before)


@dataclass(frozen=True)
class Rooms:
    """of_concat: the room that a concat is the beginning of.  of_part: the room of a value that
    nobody but such concats reads."""

    of_concat: dict[Node, Room]
    of_part: dict[Value, Room]


def find(nodes: Sequence[Node], outputs: Sequence[Value]) -> Rooms:
    """The rooms that at least two concats share."""
    flat: dict[Node, tuple[Value, ...]] = {}
    for node in nodes:
        if _joins_channels(node):
            flat[node] = _flattened(node, flat)
    sharing: dict[tuple[Value, ...], list[Node]] = {}
    for node in sorted(flat, key=lambda concat: -len(flat[concat])):
        parts = flat[node]
        if len(set(parts)) < len(parts):
            continue
        whole = next((all_ for all_ in sharing if all_[: len(parts)] == parts), parts)
        sharing.setdefault(whole, []).append(node)
    rooms = Rooms({}, {})
    for whole, concats in sharing.items():
        if len(concats) < 2:
            continue
        room = Room(whole)
        rooms.of_concat.update(dict.fromkeys(concats, room))
        inside = set(concats)
        for part in whole:
            wanted = any(part is value for value in outputs)
            if part.producer is not None and not wanted and inside.issuperset(part.users):
                rooms.of_part[part] = room
    return rooms


def _joins_channels(node: Node) -> bool:
    if node.op != "concat" or len(node.output.shape) != 4 or node.output.dtype != "float32":
        return False
    return node.attrs.get("axis") in (1, -3, [1], [-3]) and None not in node.inputs


def _flattened(concat: Node, known: dict[Node, tuple[Value, ...]]) -> tuple[Value, ...]:
    """What the concat consists of, where its first part is a concat what that one consists of."""
    first, *others = (value for value in concat.inputs if value is not None)
    before = known.get(first.producer) if first.producer is not None else None
    return (*(before or (first,)), *others)
