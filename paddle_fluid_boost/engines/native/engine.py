"""The engine: captured program -> graph -> passes -> plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ...capture.program import CapturedProgram
from ...errors import EngineError
from ...hardware.advice import most_threads
from ...ir.flops import flops_by_op
from ...ir.graph import Graph
from ...ir.importer import import_program
from ...options import options
from ...passes.pipeline import optimise
from ...report.records import OpShare
from . import (
    _paddle,
    rules_attention,  # noqa: F401 - enters its rules in the table, as the others do
    rules_convolution,  # noqa: F401
    rules_elementwise,  # noqa: F401
    rules_fused,  # noqa: F401
    rules_logic,  # noqa: F401
    rules_paddle,  # noqa: F401
    rules_recurrent,  # noqa: F401
    rules_resample,  # noqa: F401
    rules_shape,  # noqa: F401
    runtime,
    tiles,
)
from .coverage import op_shares
from .host import CallContext
from .lowering import shape_of
from .planning import BuiltPlan, agree, plan_graph
from .threads import ThreadChoice

_LAYOUTS = ("nhwc", "any")
#: How 3x3 convolutions run in the layout "nhwc"; "auto" measures.
_ALGORITHMS = ("auto", "direct", "winograd2", "winograd4")


class NativeEngine:
    """Builds plans of oneDNN primitives for the CPU."""

    name = "native"

    def unavailable(self) -> str | None:
        """Why this engine cannot be used on this machine, or None when it can."""
        return runtime.missing()

    def candidates(self, captured: CapturedProgram) -> list[dict[str, Any]]:
        """Channels-last and oneDNN's own choice of layout; only one without convolutions."""
        threads = options.threads or most_threads()
        has_convolution = any("conv" in name for name in captured.op_names)
        layouts = _LAYOUTS if has_convolution else ("any",)
        return [{"threads": threads, "layout": layout} for layout in layouts]

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> NativeExecutable:
        """Builds a plan.

        Args:
            settings: ``threads`` (default: the option, else the library's rule); ``layout``:
                ``"nhwc"`` for channels-last convolutions, ``"any"`` for what oneDNN prefers;
                ``algorithm`` of 3x3 convolutions in ``"nhwc"``: ``"direct"``, ``"winograd2"``,
                ``"winograd4"`` or ``"auto"``, the fastest by measurement.

        Raises:
            EngineError: the extension is missing, or a shape is dynamic or empty.
        """
        graph = import_program(captured)
        records = optimise(graph)
        notes = [f"pass {record.name}: fired {record.fired}" for record in records if record.fired]
        return build_plan(graph, settings, notes)


def build_plan(
    graph: Graph, settings: dict[str, Any], notes: Sequence[str] = ()
) -> NativeExecutable:
    """A plan for an already optimised graph; see :meth:`NativeEngine.build`."""
    native = runtime.module()
    threads = int(settings.get("threads") or options.threads or most_threads())
    layout = settings.get("layout", "any")
    if layout not in _LAYOUTS:
        raise EngineError(f"native engine: layout is one of {', '.join(_LAYOUTS)}, got {layout!r}")
    algorithm = settings.get("algorithm", "auto")
    if algorithm not in _ALGORITHMS:
        raise EngineError(
            f"native engine: algorithm is one of {', '.join(_ALGORITHMS)}, got {algorithm!r}"
        )
    tiles.recall(native)
    built = [plan_graph(graph, native, threads, layout, algorithm)]
    made = [*notes, *_notes(built[0], native, threads, layout)]
    if threads > 1 and built[0].is_small():
        alone = plan_graph(graph, native, 1, layout, algorithm)
        if agree(graph, built[0], alone):
            built.append(alone)
            made.append("small: planned for one thread too; calls go to the faster, by timing")
    tiles.keep(native)
    return NativeExecutable(built, graph, made)


def _notes(built: BuiltPlan, native: Any, threads: int, layout: str) -> list[str]:
    lowering, placement = built.lowering, built.placement
    notes = [
        f"oneDNN {'.'.join(map(str, native.onednn_version()))}, {native.openmp_runtime()}, "
        f"{threads} threads, layout {layout}",
        f"{lowering.native_count} ops native, {len(lowering.host_ops())} host steps",
        f"arena {placement.size} bytes, lower bound {placement.lower_bound} "
        f"({placement.ratio:.3f}x, by {placement.strategy})",
    ]
    in_bands = [node for node in lowering.nodes if node.op == "banded"]
    if in_bands:
        ops = sum(len(node.attrs["chain"].nodes) for node in in_bands)
        notes.append(f"{ops} ops run in bands, so that what lies between them is never whole")
    notes += [f"host step {op}: {why}" for op, why in sorted(lowering.host_reasons.items())]
    return notes


#: Code and bookkeeping of one step: measured over many plans, 57 KB.
_STEP_BYTES = 64 << 10


class NativeExecutable:
    """A built plan, or two of them.  Safe to call from several threads at once."""

    engine = "native"

    def __init__(self, built: Sequence[BuiltPlan], graph: Graph, notes: list[str]) -> None:
        plans = [one.plan for one in built]
        # Constants the plans read in place; what was copied into the cache may go.
        kept = [held for one in built for held in one.lowering.kept if hasattr(held, "data_ptr")]
        #: (plans, what they read); None when closed.  A call takes hold of both in one step, so
        #: that another thread may close meanwhile.
        self._held: tuple[list[Any], list[Any]] | None = (plans, kept)
        self._choice = ThreadChoice() if len(plans) > 1 else None
        self._inputs = [(list(v.shape), _paddle.dtype_of(v.dtype)) for v in graph.inputs]
        self._outputs = [(shape_of(v), _paddle.dtype_of(v.dtype)) for v in graph.outputs]
        self._shapes = [list(value.shape) for value in graph.outputs]
        self._handles = [plans[0].output_handle(i) for i in range(len(graph.outputs))]
        self._flops = flops_by_op(graph)
        self.placement = built[0].placement
        self.notes = notes
        self.host_ops = built[0].lowering.host_ops()
        # Neither arenas, which all plans share, nor packed weights, which those of a layer share.
        self.nbytes = sum(len(plan.steps) for plan in plans) * _STEP_BYTES

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs on dense, contiguous eager CPU tensors that match the program's input slots.

        Raises EngineError when the executable is closed or an input has another shape or dtype.
        """
        held = self._open()
        context, addresses, outputs = self._prepare(inputs)
        to = [_paddle.address_of(t) for t in outputs]
        choice = self._choice
        if choice is None:
            held[0][0].run(addresses, to, context)
        else:
            taken, started = choice.current, time.perf_counter()
            held[0][taken].run(addresses, to, context)
            choice.record(taken, time.perf_counter() - started)
        return self._collect(context, outputs)

    def profile(self, inputs: Sequence[Any], repeats: int = 10) -> list[tuple[str, str, float]]:
        """(op, implementation, microseconds) of every step, the fastest of ``repeats`` runs.

        Of two plans, that for all threads.
        """
        held = self._open()
        best: list[int] = []
        for _ in range(repeats):
            context, addresses, outputs = self._prepare(inputs)
            to = [_paddle.address_of(t) for t in outputs]
            times = held[0][0].profile(addresses, to, context)
            best = [min(a, b) for a, b in zip(best, times)] if best else list(times)
        return [(op, how, ns / 1e3) for (op, how), ns in zip(held[0][0].steps, best)]

    def coverage(self, repeats: int = 5) -> list[OpShare]:
        """What each op costs, the dearest first; runs on zeros."""
        zeros = [_paddle.zeros(shape, dtype) for shape, dtype in self._inputs]
        return op_shares(self.profile(zeros, repeats), self._flops)

    def close(self) -> None:
        """Frees everything; a later call raises EngineError.  Idempotent."""
        self._held = None

    def _open(self) -> tuple[list[Any], list[Any]]:
        """The plans and what they read, to be held while it runs."""
        held = self._held
        if held is None:
            raise EngineError("native engine: the executable is closed")
        return held

    def _prepare(self, inputs: Sequence[Any]) -> tuple[CallContext, list[int], list[Any]]:
        if len(inputs) != len(self._inputs):
            raise EngineError(f"native engine: needs {len(self._inputs)} inputs, got {len(inputs)}")
        for i, (tensor, (shape, dtype)) in enumerate(zip(inputs, self._inputs)):
            if tensor.shape != shape or tensor.dtype != dtype:
                raise EngineError(
                    f"native engine: input {i} must be {dtype}{shape}, "
                    f"got {tensor.dtype}{list(tensor.shape)}"
                )
        addresses = [_paddle.address_of(tensor) for tensor in inputs]
        outputs = [_paddle.empty(shape, dtype) for shape, dtype in self._outputs]
        return CallContext(inputs, addresses), addresses, outputs

    def _collect(self, context: CallContext, outputs: list[Any]) -> list[Any]:
        results = []
        for shape, handle, written in zip(self._shapes, self._handles, outputs):
            tensor = written if handle < 0 else context.made[handle]
            # A scalar was written as a vector; a host result may have been reshaped on the way.
            results.append(tensor if tensor.shape == shape else tensor.reshape(shape))
        return results
