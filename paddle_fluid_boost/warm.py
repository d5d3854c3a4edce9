"""Compiling ahead: ``pfb.warmup`` for those who want no surprises, ``pfb.wait`` for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from .capture import _paddle as pd
from .dispatch import hooks, layer_call, static_function
from .dispatch.explanations import explain
from .dispatch.promotion import WORKER
from .dispatch.signature import Opaque
from .dispatch.unit import Unit
from .errors import SpecError
from .plugin import watch
from .report.explain import Report


def warmup(target: Any, specs: Sequence[Any]) -> Report:
    """Compiles ``target`` for the given calls now, in this thread, without gradients.

    Args:
        target: a ``paddle.nn.Layer`` or a function under ``to_static``.
        specs: one call, as a list of its positional arguments, or a list of such calls.  An
            argument is a tensor, a ``paddle.static.InputSpec`` with fixed sizes (filled with
            random numbers, or zeros for integers), or a plain Python value.

    Returns:
        The report of ``pfb.explain(target)``: refusals are in there, they are not raised.

    Raises:
        TypeError: ``target`` is not a layer or boosted function.
        SpecError: a spec leaves a size open, or ``target`` cannot take such arguments.
    """
    watch()
    unit = _unit(target)
    if not isinstance(specs, (list, tuple)) or not specs:
        raise SpecError(f"warmup: argument 'specs' must be a non-empty list, got {specs!r}")
    calls = specs if all(isinstance(spec, (list, tuple)) for spec in specs) else [specs]
    with pd.paddle.no_grad():
        for call in calls:
            args = tuple(_example(spec, index) for index, spec in enumerate(call))
            try:
                unit.compile_now(args, {})
            except Opaque as error:
                raise SpecError(f"warmup: {error} cannot be part of a signature") from None
            except (TypeError, ValueError) as error:
                raise SpecError(f"warmup: {unit.name} cannot be called with {call}: {error}") from (
                    error
                )
    return explain(target)


def wait(timeout: float | None = None) -> bool:
    """Waits until no compile is pending; False when ``timeout`` seconds were not enough."""
    return WORKER.wait_idle(timeout)


def _unit(target: Any) -> Unit:
    if isinstance(target, pd.paddle.nn.Layer):
        forward = getattr(target, "forward", None)
        if isinstance(forward, pd.StaticFunction):
            return _unit(forward)
        hooks.request_layer_calls()
        return layer_call.watch_layer(target)[0]
    if isinstance(target, pd.StaticFunction):
        unit = static_function.ensure_unit(target)
        if unit is not None:
            return unit
        raise SpecError("warmup: this function is compiled by another backend")
    raise TypeError(
        "warmup: argument 'target' must be a paddle.nn.Layer or a function under to_static, got "
        f"{type(target).__name__}"
    )


def _example(spec: Any, index: int) -> Any:
    """A value for one argument of a call."""
    if not isinstance(spec, pd.paddle.static.InputSpec):
        return spec
    shape = list(spec.shape)
    if any(size is None or size < 0 for size in shape):
        raise SpecError(
            f"warmup: specs[{index}] leaves a size open ({shape}); give the sizes that will be "
            "called, one list per call"
        )
    dtype = str(spec.dtype).rpartition(".")[2].lower()
    if dtype in ("float32", "float64", "float16", "bfloat16"):
        values = numpy.random.default_rng(index).standard_normal(shape)
        return pd.paddle.to_tensor(values.astype("float32")).astype(dtype)
    return pd.paddle.zeros(shape, dtype=dtype)
