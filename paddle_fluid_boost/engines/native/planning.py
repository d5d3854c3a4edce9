"""From an optimised graph to a plan of the extension, and whether two plans are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import EngineError
from ...hardware.advice import cpu_advice
from ...ir.graph import Graph, numpy_dtype
from ...memory import planner
from . import runtime
from .lowering import Lowering, shape_of


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
    with runtime.threads(threads):
        builder = native.PlanBuilder(
            threads=threads, channels_last=layout == "nhwc", algorithm=algorithm
        )
        lowering = Lowering(graph, builder)
        try:
            lowering.run()
            _number_handles(lowering)
            buffers = [planner.Buffer(*lifetime) for lifetime in builder.lifetimes()]
            placement = planner.plan(buffers)
            plan = builder.finish(placement.offsets, placement.size)
        except (RuntimeError, ValueError) as error:
            # What the extension raises: oneDNN's own message, or a type it does not know.
            raise EngineError(f"native engine: {error}") from error
    return BuiltPlan(plan, lowering, placement)


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
