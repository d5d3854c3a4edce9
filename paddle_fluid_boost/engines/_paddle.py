"""The private names of Paddle that the engines rely on, and nothing else.

Checked on PaddlePaddle 3.1.1, 3.2.2 and 3.3.1.  A missing name raises UnsupportedPaddleError on
import.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedPaddleError

try:
    import paddle
    from paddle.base import core, framework
    from paddle.pir.core import program_guard

    serialize_pir_program = core.serialize_pir_program
    set_math_threads: Callable[[int], None] = core.set_num_threads
    IrMapping = paddle.pir.IrMapping
    _static_mode = framework._dygraph_guard  # of None, in this thread only
    set_insertion_point = paddle.pir.set_insertion_point
    _sum, _scale = paddle._pir_ops.sum, paddle._pir_ops.scale
    _fetch: Callable[..., Any] = getattr(paddle._pir_ops, "fetch")  # noqa: B009 - not in stubs
    _EagerTensor = core.eager.Tensor
    _empty, _CPU = paddle._C_ops.empty, core.CPUPlace()
    _flags = core.globals()
except (ImportError, AttributeError) as error:
    raise UnsupportedPaddleError(f"PaddlePaddle lacks a name the engines need: {error}") from error

__all__ = [
    "adopt_array",
    "clone_with_fetches",
    "config_method",
    "copy_tensor",
    "core",
    "dtype_of",
    "empty_tensor",
    "has_onednn",
    "operants_mode_kept",
    "paddle",
    "serialize_pir_program",
    "set_math_threads",
    "spell_out_means",
]


def clone_with_fetches(program: Any, values: Sequence[Any], names: Sequence[str]) -> Any:
    """A copy of ``program`` that hands out ``values`` (``pir.Value`` of ``program``) by ``names``.

    Touches the process-wide current program: hold ``STATIC_LOCK``.
    """
    mapping = IrMapping()
    clone = program.clone(mapping)
    for op in list(clone.global_block().ops):
        if op.name() == "builtin.parameter":
            op.result(0).persistable = True  # loading skips the others: non-persistable buffers
        elif op.name() in ("builtin.shadow_output", "pd_op.fetch"):  # of a program from a file
            clone.global_block().remove_op(op)
    with program_guard(clone):
        for index, (value, name) in enumerate(zip(values, names)):
            _fetch(mapping.look_up(value), name, index).persistable = True
    return clone


def spell_out_means(program: Any) -> None:
    """Turns ``mean(x)`` into ``sum(x) * (1 / n)`` in place, for float32 of known shape.

    For each ``mean`` the oneDNN path prints a line on the process's standard output.  Touches the
    process-wide insertion point: hold ``STATIC_LOCK``.
    """
    block = program.global_block()
    with _static_mode(None), program_guard(program):
        for op in block.ops:
            if op.name() != "pd_op.mean":
                continue
            x, axis, mean = op.operand_source(0), op.operand_source(1), op.result(0)
            sizes = [*x.shape, *mean.shape]
            axes = axis.get_defining_op().attrs().get("value")
            if x.dtype != core.DataType.FLOAT32 or min(sizes, default=1) < 1 or axes is None:
                continue
            count = math.prod(x.shape) // math.prod(mean.shape)
            set_insertion_point(op)
            total = _sum(x, axes, x.dtype, op.attrs()["keepdim"])
            mean.replace_all_uses_with(_scale(total, 1.0 / count, 0.0, True))
            block.remove_op(op)


def copy_tensor(tensor: Any) -> Any:
    """A new CPU tensor with the content of ``tensor``; no gradient, no AMP cast, 2 µs."""
    return tensor._copy_to(paddle.CPUPlace(), True)


def empty_tensor(shape: Sequence[int], dtype: Any) -> Any:
    """A fresh row-major CPU tensor of undefined content, faster than ``paddle.empty``."""
    return _empty(shape, dtype, _CPU)


def dtype_of(name: str) -> Any:
    """Paddle's dtype for numpy's spelling."""
    return getattr(paddle, name)


def adopt_array(array: np.ndarray) -> Any:
    """A tensor that owns ``array`` from now on; nothing is copied."""
    return _EagerTensor(
        value=array,
        place=paddle.CPUPlace(),
        persistable=False,
        zero_copy=True,
        name="",
        stop_gradient=True,
    )


_OPERANTS = "FLAGS_tensor_operants_mode"


@contextlib.contextmanager
def operants_mode_kept() -> Iterator[None]:
    """Puts back how custom ops in C++ run their tensor operators: each run of a predictor switches
    the whole process from "eager" to "phi", which knows no autograd."""
    mode = _flags[_OPERANTS]
    try:
        yield
    finally:
        if _flags[_OPERANTS] != mode:
            _flags[_OPERANTS] = mode


def has_onednn() -> bool:
    """Whether this build of Paddle contains oneDNN (the aarch64 wheels do not)."""
    compiled: Callable[[], bool] | None = getattr(core, "is_compiled_with_onednn", None)
    return bool((compiled or core.is_compiled_with_mkldnn)())


def config_method(config: Any, name: str) -> Any:
    """Method ``name`` of an inference Config, e.g. ``"enable_onednn"``; 3.1 says ``mkldnn``."""
    return getattr(config, name, None) or getattr(config, name.replace("onednn", "mkldnn"))
