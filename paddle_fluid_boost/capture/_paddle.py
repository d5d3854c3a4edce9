"""The private names of Paddle that capture relies on, and nothing else.

Checked on PaddlePaddle 3.0.0, 3.1.1, 3.2.2 and 3.3.1.  When a name is gone, importing this file
(and so the package) raises UnsupportedPaddleError and leaves Paddle as it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from ..errors import UnsupportedPaddleError

try:
    import paddle
except ImportError as error:  # pragma: no cover - exercised in a child process by the tests
    raise UnsupportedPaddleError(
        "PaddlePaddle is not installed. Install the build for your machine, e.g. "
        "`pip install 'paddle-fluid-boost[cpu]'` or `pip install paddlepaddle`."
    ) from error

try:
    from paddle.base import framework
    from paddle.base.dygraph.base import to_static_mode_guard
    from paddle.jit.dy2static.program_translator import (
        ASTStaticFunction,
        StaticFunction,
        SymbolicStaticFunction,
    )
    from paddle.pir.core import (
        Program,
        _convert_into_value,
        program_guard,
        static_op_arg_cast_guard,
    )
    from paddle.static.nn import control_flow
    from paddle.utils import inplace_utils

    try:
        from paddle.jit.dy2static import parameter_recorder as recorders
    except ImportError:  # its place up to 3.2
        from paddle.jit.pir_dy2static import parameter_recorder as recorders
    _global_parameter_recorder = recorders._global_parameter_recorder
    _global_inplace_map = recorders._global_inplace_map

    #: Thread-local holder of the dygraph tracer: None means this thread is in static mode.
    tracer_holder = framework.global_var
    TracerHolder = type(tracer_holder)
    TracerHolder.__setattr__  # noqa: B018 - where every change of mode passes
    switch_tracer = paddle.base.core._switch_tracer
    Value = paddle.pir.Value
    EagerTensor = paddle.Tensor
    default_dtype = paddle.get_default_dtype
    #: Where functions make new tensors: the same object until somebody sets another.
    current_place = framework._current_expected_place_
    #: Tensor -> how often it was written to.  `Tensor.inplace_version` is a Python function around
    #: this method, which takes three times as long: it is asked for every parameter in each call.
    inplace_version = EagerTensor._inplace_version
    tracer_holder._dygraph_tracer_  # noqa: B018 - the attribute must exist
except (ImportError, AttributeError) as error:
    raise UnsupportedPaddleError(
        f"PaddlePaddle {getattr(paddle, '__version__', 'of unknown version')} lacks a name this "
        f"package needs ({error}). Supported: 3.1 to 3.3."
    ) from error

__all__ = [
    "ASTStaticFunction",
    "EagerTensor",
    "Program",
    "StaticFunction",
    "SymbolicStaticFunction",
    "TracerHolder",
    "Value",
    "control_flow",
    "current_place",
    "default_dtype",
    "framework",
    "inplace_utils",
    "paddle",
    "static_tracing",
    "switch_this_thread",
    "take_recorded_parameters",
    "tracer_holder",
]


def switch_this_thread(tracer: Any) -> None:
    """Sets the tracer of this thread, None for static mode, and of no other.

    Paddle's own way also sets what *new* threads start with: a thread that the user starts while we
    trace would find itself in static mode.
    """
    tracer_holder.__dict__["_dygraph_tracer_"] = tracer
    switch_tracer(tracer)


@contextlib.contextmanager
def _without_tracer() -> Iterator[None]:
    """Static mode in this thread alone."""
    tracer = tracer_holder._dygraph_tracer_
    switch_this_thread(None)
    try:
        yield
    finally:
        switch_this_thread(tracer)


@contextlib.contextmanager
def static_tracing(program: Program, startup: Program) -> Iterator[None]:
    """Static mode in this thread, building ``program``; eager tensors that ops read become its
    parameters."""
    with contextlib.ExitStack() as modes:
        modes.enter_context(_without_tracer())
        modes.enter_context(program_guard(program, startup))
        modes.enter_context(to_static_mode_guard(True))
        modes.enter_context(static_op_arg_cast_guard(_convert_into_value))
        yield


def as_symbol(value: Any) -> Any:
    """Inside :func:`static_tracing`: an eager tensor as a parameter of the program; anything else
    as it is."""
    return _convert_into_value(value)


def expected_place() -> Any:
    """Where ops of this thread put their results in eager mode, as ``Tensor.place`` says it."""
    place = paddle.base.core.Place()
    place.set_place(framework._current_expected_place())
    return place


def modules_that_warn_in_static_mode() -> list[Any]:
    """Modules of Paddle's that warn, through their name ``warnings``, about what static mode does
    otherwise than eager mode."""
    from paddle.pir import math_op_patch

    modules = (math_op_patch, inplace_utils, control_flow)
    return [module for module in modules if hasattr(module, "warnings")]


def flow_codes() -> list[Any]:
    """The code of the functions that run other functions as the value of a tensor says."""
    return [getattr(control_flow, name).__code__ for name in ("cond", "while_loop")]


def take_recorded_parameters(program: Program) -> list[paddle.Tensor]:
    """The eager tensors that ops of ``program`` have read, and forgets them.

    Paddle keeps them in a table keyed by ``id(program)``.  It must be emptied after every trace,
    failed ones too: a later program at the same address would be handed values of a dead one, and
    crash.
    """
    _global_inplace_map.pop(program)
    tensors, _ = _global_parameter_recorder.pop(program)
    return list(tensors)


def forget_failed_captures() -> None:
    """Empties the table of :func:`take_recorded_parameters` after a capture of the user's failed.

    Paddle leaves the entries of a failed capture behind, and the next program at that address
    reads them.  Call it only while no other program is being captured.
    """
    _global_parameter_recorder.params_dict.clear()
    _global_parameter_recorder.tensor2value.clear()
    _global_inplace_map.params_dict.clear()


def static_builders() -> list[tuple[Any, str]]:
    """(class, method) of Paddle's own builders of static programs, which must take our lock."""
    from paddle.jit.dy2static.pir_partial_program import PartialProgramLayer
    from paddle.jit.dy2static.program_translator import ProgramCache

    found: list[tuple[Any, str]] = [
        (ProgramCache, "_build_once"),
        (PartialProgramLayer, "_create_program"),
    ]
    try:
        from paddle.jit.sot.opcode_translator.executor.executor_cache import OpcodeExecutorCache
    except ImportError:  # SOT does not know this Python
        pass
    else:
        found.append((OpcodeExecutorCache, "translate"))
    try:
        from paddle.jit.pir_translated_layer import PirTranslatedLayer
    except ImportError:  # before 3.0 final
        pass
    else:
        found.append((PirTranslatedLayer, "_construct"))
    return [(cls, name) for cls, name in found if name in cls.__dict__]


def _sot_entry_file() -> str | None:
    try:
        from paddle.jit.sot import translate
    except ImportError:  # SOT does not know this Python
        return None
    return translate.__file__


#: The file from which SOT calls ``set_eval_frame`` when a function under it starts and when it
#: ends; None where there is no SOT.
SOT_ENTRY_FILE = _sot_entry_file()


def keep_sot_out_of(folder: str) -> None:
    """Code in ``folder`` runs as it is where SOT translates what it meets."""
    if SOT_ENTRY_FILE is not None and folder not in _folders_without_sot:
        _folders_without_sot.add(folder)
        paddle.framework.core.eval_frame_skip_file_prefix((os.path.join(folder, ""),))


_folders_without_sot: set[str] = set()


def optimizer_methods() -> list[tuple[Any, str]]:
    """(class, method) through which optimizers write parameters.

    ``Optimizer._apply_optimize`` is the one way of all optimizers but L-BFGS and the wrappers of
    ``paddle.incubate``, which write in their ``step``.
    """
    found: list[tuple[Any, str]] = [(paddle.optimizer.Optimizer, "_apply_optimize")]
    owners = (paddle.optimizer, paddle.incubate, paddle.incubate.optimizer)
    for name in ("LBFGS", "LookAhead", "ModelAverage"):
        for owner in owners:
            cls = getattr(owner, name, None)
            if cls is not None and "step" in cls.__dict__ and (cls, "step") not in found:
                found.append((cls, "step"))
    return [(cls, name) for cls, name in found if name in cls.__dict__]


def methods_that_change_anything() -> list[tuple[Any, str]]:
    """(class, method) that change a tensor or layer which the call does not name."""
    from paddle.nn.layer.layers import HookRemoveHelper

    found = [(HookRemoveHelper, "remove"), (paddle.base.core.DenseTensor, "set")]
    return [(cls, name) for cls, name in found if hasattr(cls, name)]
