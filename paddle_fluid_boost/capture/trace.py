"""From a dygraph callable to a PIR program, by running it once in static mode.

No source is transformed: the caller has shown (``observe.py``, ``state.py``) that the Python of
this call is pure and what it reads, so running it again with symbolic inputs yields the very ops
that eager ran.  Python that looks at a *value* of a tensor cannot run on symbols and raises; that
refusal is the proof that the captured program holds for all values.

The trace runs in a worker thread while the user's thread goes on in eager mode.  Paddle's static
mode is thread-local and parameters are turned into program parameters where an op reads them, so
no layer is changed.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import CaptureRefused
from ..hardware.devices import device_of
from . import _paddle as pd
from .call_stacks import no_call_stacks
from .lock import STATIC_LOCK
from .mixing import mixing
from .overwriting import noting_in_place_calls, settle
from .program import CapturedProgram, Slot
from .sources import is_user_file
from .structure import leaves, map_leaves

_UNTRACEABLE = "cannot be traced"


def dtype_name(dtype: Any) -> str:
    """Paddle's dtype as numpy spells it: ``paddle.float32`` -> ``"float32"``."""
    return str(dtype).rsplit(".", 1)[-1].lower()


def trace(
    call: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    dynamic_dims: Mapping[int, Sequence[int]] | None = None,
    names: Sequence[str] | None = None,
    call_stacks: bool = False,
) -> tuple[CapturedProgram, Any]:
    """Runs ``call`` on symbols shaped like ``args`` and returns the program and the result.

    Args:
        call: a callable shown to be pure for these arguments.
        args, kwargs: an example call; every eager tensor in them becomes an input, in order.
        dynamic_dims: for the n-th input, the dimensions left open (-1); default none.
        names: of the inputs, in order; default ``x0``, ``x1``, ...
        call_stacks: every op remembers the Python stack that made it, which takes most of a trace.

    Returns:
        The program, and ``call``'s result with ``pir.Value`` in place of tensors.

    Raises:
        CaptureRefused: the callable cannot run on symbols; the reason names the user's line.
    """
    started = time.perf_counter()
    dynamic_dims = dynamic_dims or {}
    program, startup = pd.Program(), pd.Program()
    slots: list[Slot] = []
    values: list[Any] = []

    def symbol(leaf: Any) -> Any:
        if not isinstance(leaf, pd.EagerTensor):
            return leaf
        index = len(slots)
        shape = [-1 if d in dynamic_dims.get(index, ()) else n for d, n in enumerate(leaf.shape)]
        slot = Slot(names[index] if names else f"x{index}", tuple(shape), dtype_name(leaf.dtype))
        value = pd.paddle.static.data(slot.name, shape, slot.dtype)
        value.stop_gradient = True
        slots.append(slot)
        values.append(value)
        return value

    with STATIC_LOCK:
        pd.take_recorded_parameters(program)  # what a dead program at this address left behind
        try:
            stacks = contextlib.nullcontext() if call_stacks else no_call_stacks()
            notes = mixing(), noting_in_place_calls()
            with stacks, notes[0] as asked, notes[1] as noted, pd.static_tracing(program, startup):
                symbolic_args, symbolic_kwargs = map_leaves((tuple(args), dict(kwargs)), symbol)
                result = call(*symbolic_args, **symbolic_kwargs)
            result = settle(program, noted, result)
            if asked:  # and the user's code caught the error, or had an answer
                raise asked[0]
        except CaptureRefused:
            raise
        except Exception as error:
            raise CaptureRefused(*_explain(error), permanent=False) from error
        finally:
            tensors = pd.take_recorded_parameters(program)
    outputs = [leaf for leaf in leaves(result) if isinstance(leaf, pd.Value)]
    captured = CapturedProgram(
        program=program,
        inputs=slots,
        input_values=values,
        outputs=[
            Slot(f"y{i}", tuple(value.shape), dtype_name(value.dtype))
            for i, value in enumerate(outputs)
        ],
        output_values=outputs,
        parameters={tensor.name: tensor for tensor in tensors},
        seconds=time.perf_counter() - started,
        device=_device([*_tensors((args, kwargs)), *tensors]),
    )
    if len(captured.parameters) != len(tensors):
        raise CaptureRefused("two different tensors share one name", permanent=True)
    return captured, result


def _tensors(arguments: Any) -> list[Any]:
    return [leaf for leaf in leaves(arguments) if isinstance(leaf, pd.EagerTensor)]


def _device(tensors: Sequence[Any]) -> str:
    """Where all of them live; without any, where Paddle computes by default."""
    devices = {str(device_of(tensor)) for tensor in tensors if tensor._is_initialized()}
    if len(devices) > 1:
        raise CaptureRefused(f"its tensors live on several devices: {', '.join(sorted(devices))}")
    return devices.pop() if devices else pd.paddle.device.get_device()


def _explain(error: Exception) -> tuple[str, str]:
    """The reason and the user's source line of an error that a trace met."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if is_user_file(frame.filename):
            where = f"{frame.filename}:{frame.lineno}: {(frame.line or '').strip()}"
    text = str(error).strip().splitlines()
    message = next((line.strip() for line in text if line.strip()), type(error).__name__)
    return f"{_UNTRACEABLE}: {type(error).__name__}: {message[:200]}", where
