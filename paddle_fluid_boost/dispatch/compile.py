"""The job of the worker: capture, check, build, compare, time, publish.

Whatever goes wrong is a refusal record; the user's call never waits for any of this.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Hashable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from ..capture import _paddle as pd
from ..capture.program import CapturedProgram
from ..capture.screen import screen
from ..capture.state import Snapshot
from ..capture.structure import map_leaves
from ..capture.trace import trace
from ..capture.yielding import Stopped, Yielding
from ..engines import openmp
from ..engines.select import Choice, choose
from ..errors import CaptureRefused
from ..hotspot.signature_stats import SignatureStats
from ..hotspot.worker import exiting
from ..options import options
from ..report.records import Refusal
from . import hooks
from .branches import Branches
from .extraordinary import NumbersCheck
from .plainly import run_plainly
from .results import Layout, layout
from .signature import Call
from .version import Flag, Version, Weights

if TYPE_CHECKING:
    from .unit import Unit

#: Eager calls whose median says what a call costs.
_ENOUGH_CALLS = 3

log = logging.getLogger("paddle_fluid_boost.compiles")


class CompileJob:
    """Compiles one signature of one unit.

    call: one call of it, its tensors by reference; the job gives up when they are written to before
        it has copied them.
    eager: the original callable, bound.
    background: keep out of the way of other threads.
    rehearse: for a call that branches on tensors, what sees the branches that it did not take.
    """

    def __init__(
        self,
        unit: Unit,
        call: Call,
        stats: SignatureStats,
        eager: Callable[..., Any],
        snapshot: Snapshot,
        layers_touched: Flag,
        *,
        background: bool,
        rehearse: Branches | None = None,
    ) -> None:
        self.key: Hashable = (id(unit), call.key)
        self._unit = unit
        self._signature = call.key
        self._stats = stats
        self._eager = eager
        self._call: Call | None = call
        self._versions = [tensor.inplace_version for tensor in call.tensors]
        self._strided = [i for i, t in enumerate(call.tensors) if not t.is_contiguous()]
        self._snapshot = snapshot
        self._layers_touched = layers_touched
        self._grad_enabled = pd.paddle.is_grad_enabled()
        self._captured = False
        self._background = background
        self._rehearse = rehearse
        self._threads = openmp.math_threads()  # of the user's thread, which makes the job

    @property
    def priority(self) -> float:
        """Expected saving per second; asked again as long as the job waits."""
        return self._unit.policy.priority(self._unit.stats, self._stats)

    def abandoned(self) -> None:
        """The worker dropped the job: the policy may ask again."""
        self._unit.policy.deferred(self._stats)

    def run(self) -> None:
        """Compiles and publishes, or records why not."""
        started = time.perf_counter()
        self._stats.start_compile()
        try:
            with run_plainly(), self._out_of_the_way(), pd.paddle.no_grad():
                version, choice = self._compile()
        except Stopped:
            self.abandoned()
            return
        except CaptureRefused as error:
            refusal = Refusal(error.reason, error.where, error.permanent)
            cost = time.perf_counter() - started
            self._unit.refused(self._stats, refusal, cost, split=not self._captured)
            return
        except Exception as error:  # a fault of ours or of Paddle must not cost the user a call
            log.warning("compile of %s failed", self._unit.name, exc_info=True)
            refusal = Refusal(f"the compile failed: {type(error).__name__}: {error}")
            self._unit.refused(self._stats, refusal, time.perf_counter() - started)
            return
        self._unit.publish(version, choice, time.perf_counter() - started)

    @contextlib.contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        if not self._background:
            yield
            return
        with openmp.sleeping_team(), Yielding(_stopped):
            yield

    def _compile(self) -> tuple[Version, Choice]:
        inputs, args, kwargs = self._own_inputs()
        if self._rehearse is not None:
            self._snapshot, self._layers_touched = self._rehearse(self._eager, args, kwargs)
        captured, traced = trace(self._eager, args, kwargs)
        screen(captured, branches_seen=self._snapshot.all_branches)
        weights = Weights(list(captured.parameters.values()))
        if self._grad_enabled and not weights.all_stop_gradient():
            raise CaptureRefused("its parameters take part in gradients: use paddle.no_grad()")
        with openmp.threads(1 if self._background else self._threads):
            weights.remember()
            eager_result = self._eager(*args, **kwargs)
        live = [*weights.tensors, *self._snapshot.tensors]
        arguments = (args, kwargs)
        result = layout(eager_result, traced, inputs, captured.input_values, live, arguments)
        if not result.fresh:
            raise CaptureRefused("computes no new tensor")
        self._captured = True
        _keep_outputs(captured, result)
        eager_seconds = self._eager_seconds(args, kwargs, captured.device)
        choice = self._choose(captured, inputs, result.fresh, eager_seconds)
        self._check_choice(choice)
        version = Version(
            self._signature,
            self._stats,
            choice.executable,  # type: ignore[arg-type]
            result.rebuild,
            self._snapshot,
            weights,
            self._layers_touched,
            NumbersCheck(inputs, result.fresh),
            strided=self._strided,
            grad_enabled=self._grad_enabled,
        )
        reason = "" if version.ready() else version.revalidate()
        if reason == "weights":  # reading them for the engine may count as a touch: compare
            reason = "" if weights.unchanged() else "weights changed"
        if reason:
            version.close()
            raise CaptureRefused(f"{reason} while it was being compiled")
        return version, choice

    def _choose(
        self, captured: CapturedProgram, inputs: list[Any], want: list[Any], eager_seconds: float
    ) -> Choice:
        """The executable that is to serve."""
        return choose(captured, inputs, want, eager_seconds, self._pause)

    def _own_inputs(self) -> tuple[list[Any], tuple[Any, ...], dict[str, Any]]:
        """Copies of the call's tensors, and its arguments with them in place."""
        call = self._call
        if call is None:
            raise RuntimeError("a compile job runs once")
        inputs = [tensor.detach().clone() for tensor in call.tensors]
        if [tensor.inplace_version for tensor in call.tensors] != self._versions:
            raise CaptureRefused("its input was overwritten before it could be captured")
        own = iter(inputs)

        def replace(leaf: Any) -> Any:
            return next(own) if isinstance(leaf, pd.EagerTensor) else leaf

        args, kwargs = map_leaves((call.args, call.kwargs), replace)
        self._call = None  # the user's tensors are theirs again
        return inputs, args, kwargs

    def _eager_seconds(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> float:
        """What an eager call costs: as the user met it, or measured where there is too little.

        An accelerator only takes orders while the user's clock runs; there it is measured to the
        end of the work.
        """
        calls, total, seconds = self._stats.eager_before_compile
        if calls >= _ENOUGH_CALLS and device == "cpu":
            return seconds
        times = []
        with openmp.threads(self._threads):
            for _ in range(_ENOUGH_CALLS):
                started = time.perf_counter()
                self._eager(*args, **kwargs)
                if device != "cpu":
                    pd.paddle.device.synchronize(device)
                times.append(time.perf_counter() - started)
        if device != "cpu":
            self._stats.eager_before_compile = (calls, total, median(times))
        return median(times)

    def _pause(self, seconds: float) -> None:
        """Lets the user's thread finish the call that a run of ours may have held up."""
        if self._background:
            time.sleep(max(seconds, self._stats.eager_median()))
            if exiting():
                raise Stopped

    def _check_choice(self, choice: Choice) -> None:
        if choice.executable is None:
            tried = "; ".join(f"{label}: {outcome}" for label, outcome in choice.tried)
            raise CaptureRefused(f"no engine gives eager's result ({tried})")
        if choice.eager < options.min_gain * choice.compiled:
            engine = choice.executable.engine
            choice.executable.close()
            raise CaptureRefused(
                f"not faster: {choice.compiled * 1e6:.0f} us with {engine} against "
                f"{choice.eager * 1e6:.0f} us eager"
            )


def _keep_outputs(captured: Any, result: Layout) -> None:
    """Drops the outputs that are inputs or live tensors handed back as they are."""
    captured.outputs = [captured.outputs[i] for i in result.used]
    captured.output_values = [captured.output_values[i] for i in result.used]


def _stopped() -> bool:
    """A background compile must end: at the exit of the interpreter, or when nobody watches any
    more for what it depends on."""
    return exiting() or not hooks.watching
