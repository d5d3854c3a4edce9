"""Removes nodes whose results nobody reads.

Nodes without results (``assert``, ``print``) are there for their effect and stay.
"""

from __future__ import annotations

from ..ir.graph import Graph
from .base import PassRecord


class EliminateDeadCode:
    """See the module."""

    name = "eliminate_dead_code"

    def run(self, graph: Graph) -> PassRecord:
        """One sweep from the end: what a dead node reads may be dead too."""
        record = PassRecord(self.name)
        for node in reversed(list(graph.nodes)):
            if node.outputs and not any(graph.use_count(value) for value in node.outputs):
                graph.erase(node)
                record.fired += 1
        return record
