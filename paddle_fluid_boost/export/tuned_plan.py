"""A native plan for a stored graph: with the choice that was measured on this machine, if one was.

A choice that was measured on another processor, or with another number of threads, is worth
nothing here: then the candidates are built and timed again, which takes a second at most.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from ..engines.native.engine import NativeExecutable, build_plan
from ..errors import EngineError
from ..ir.graph import Graph
from .machine import tuning_key

#: What may be chosen.  Any other key of a stored choice is not looked at.
_CHOICES = ("layout", "algorithm")
_RUNS = 5


def tuned_plan(graph: Graph, tuned: Mapping[str, Any]) -> tuple[NativeExecutable, str]:
    """The plan, and how its settings were chosen.

    Args:
        tuned: settings by :func:`~.machine.tuning_key`.

    Raises:
        EngineError: none can be built.
    """
    key = tuning_key()
    if key in tuned:
        stored = tuned[key]
        settings = {name: stored[name] for name in _CHOICES if name in stored}
        return build_plan(graph, settings), f"tuned for {key}"
    candidates = _candidates(graph)
    if len(candidates) == 1:
        return build_plan(graph, candidates[0]), "nothing to tune"
    inputs = example_inputs([(value.shape, value.dtype) for value in graph.inputs])
    built = [(build_plan(graph, settings), settings) for settings in candidates]
    seconds = [fastest_call(plan, inputs) for plan, _ in built]
    best = seconds.index(min(seconds))
    for number, (plan, _) in enumerate(built):
        if number != best:
            plan.close()
    return built[best][0], f"tuned anew for {key}: layout {built[best][1]['layout']}"


def _candidates(graph: Graph) -> list[dict[str, Any]]:
    has_convolution = any("conv" in node.op for node in graph.nodes)
    return [{"layout": layout} for layout in (("nhwc", "any") if has_convolution else ("any",))]


def example_inputs(inputs: Sequence[tuple[Sequence[int], str]]) -> list[Any]:
    """Zeros of the given shapes and dtypes, for calls that only wake and time."""
    return [paddle.zeros(list(shape), dtype) for shape, dtype in inputs]


def fastest_call(executable: Any, inputs: Sequence[Any]) -> float:
    """Seconds of the fastest of some calls.  Raises EngineError where it cannot run on them."""
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        try:
            executable(inputs)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"it cannot run on zeros: {error}") from error
        times.append(time.perf_counter() - started)
    return min(times)
