"""From an optimised graph to a plan of the extension, and whether two plans are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from ...errors import EngineError
from ...hardware.advice import cpu_advice
from ...ir.graph import Graph, Node, numpy_dtype
from ...memory import planner
from . import bands, runtime
from .control import BodyPlan
from .lowering import Lowering, shape_of

#: Bytes of an arena above which tensors are kept from ever being whole, and what is left of it at
#: most where that pays.
_LARGE = 4 << 20
_WORTH = 0.9
#: What rooms that concats share (``rooms.py``) may add to such an arena.  They are there from their
#: first part on, and save time only.
_ROOMS_MAY_ADD = 1.06


@dataclass(frozen=True)
class BuiltPlan:
    """plan: the extension's; lowering: what it was made from; placement: where its tensors lie."""

    plan: Any
    lowering: Lowering
    placement: planner.Placement

    def is_small(self) -> bool:
        """Whether it is a question how many threads it should run on, and can be settled."""
        small = cpu_advice().threads.get("small_operations", 0)
        return self.plan.operations < small and not self.lowering.host_steps


def plan_graph(graph: Graph, native: Any, threads: int, layout: str, algorithm: str) -> BuiltPlan:
    """Builds a plan.  Raises EngineError with the extension's message where there is none."""

    def plan_body(body: Graph) -> BodyPlan:
        return BodyPlan(body, plan_graph(body, native, threads, layout, algorithm))

    def draw(nodes: Sequence[Node], with_rooms: bool) -> _Draft:
        builder = native.PlanBuilder(
            threads=threads, channels_last=layout == "nhwc", algorithm=algorithm
        )
        return _draft(Lowering(graph, builder, plan_body, nodes, with_rooms))

    with runtime.threads(threads):
        try:
            draft = _with_rooms(graph, draw)
            plan = draft.lowering.builder.finish(draft.placement.offsets, draft.placement.size)
        except (RuntimeError, ValueError) as error:
            # What the extension raises: oneDNN's own message, or a type it does not know.
            raise EngineError(f"native engine: {error}") from error
    return BuiltPlan(plan, draft.lowering, draft.placement)


@dataclass(frozen=True)
class _Draft:
    """A lowered graph and where its tensors would lie."""

    lowering: Lowering
    lifetimes: list[tuple[int, int, int]]
    placement: planner.Placement


def _draft(lowering: Lowering) -> _Draft:
    lowering.run()
    _number_handles(lowering)
    lifetimes = lowering.builder.lifetimes()
    placement = planner.plan([planner.Buffer(*lifetime) for lifetime in lifetimes])
    return _Draft(lowering, lifetimes, placement)


def _with_rooms(graph: Graph, draw: Callable[[Sequence[Node], bool], _Draft]) -> _Draft:
    """The plan with rooms for concats that grow, unless they make a large arena much larger."""
    draft = _with_bands(graph, lambda nodes: draw(nodes, True))
    if draft.placement.size > _LARGE and draft.lowering.has_rooms():
        other = _with_bands(graph, lambda nodes: draw(nodes, False))
        if draft.placement.size > _ROOMS_MAY_ADD * other.placement.size:
            return other
    return draft


def _with_bands(graph: Graph, draw: Callable[[Sequence[Node]], _Draft]) -> _Draft:
    """The plan of all nodes whole, then with bands at its fullest step, as long as that pays."""
    nodes: Sequence[Node] = graph.nodes
    draft = draw(nodes)
    while draft.placement.size > _LARGE:
        chain = bands.at_peak(graph, draft.lowering.spans, draft.lifetimes)
        if chain is None:
            break
        nodes = bands.with_bands(nodes, chain)
        tried = draw(nodes)
        refused = "banded" in tried.lowering.host_reasons
        if refused or tried.placement.size > _WORTH * draft.placement.size:
            break
        draft = tried
    return draft


def agree(graph: Graph, *built: BuiltPlan) -> bool:
    """Whether plans without host steps give the same bits: then calls may change between them."""
    random = np.random.RandomState(0)
    inputs = []
    for value in graph.inputs:
        made = np.zeros(shape_of(value), numpy_dtype(value.dtype))
        if value.dtype == "float32":
            made[...] = random.standard_normal(made.shape)
        inputs.append(made)
    results = []
    for one in built:
        outputs = [np.empty(shape_of(v), numpy_dtype(v.dtype)) for v in graph.outputs]
        one.plan.run([a.ctypes.data for a in inputs], [a.ctypes.data for a in outputs], None)
        results.append([output.tobytes() for output in outputs])
    return all(result == results[0] for result in results)


def _number_handles(lowering: Lowering) -> None:
    """Host outputs are numbered in the order of their making, here as in the builder."""
    made = 0
    for step in lowering.host_steps:
        step.handles = list(range(made, made + len(step.outputs)))
        made += len(step.outputs)
