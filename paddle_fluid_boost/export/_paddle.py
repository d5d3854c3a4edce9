"""The private names of Paddle that export relies on, and nothing else.

Checked on PaddlePaddle 3.1.1, 3.2.2 and 3.3.1.  A missing name raises UnsupportedPaddleError on
import.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import UnsupportedPaddleError

try:
    import paddle
    from paddle.base import core, framework
    from paddle.jit.dy2static import origin_info, program_translator
    from paddle.jit.dy2static.convert_call_func import convert_call
    from paddle.pir.core import program_guard

    ops = paddle._C_ops
    set_insertion_point = paddle.pir.set_insertion_point
    set_insertion_point_after = paddle.pir.set_insertion_point_after
    _static_mode = framework._dygraph_guard
    _translate = paddle.pir.translate_to_pir
    _old_ir = paddle.pir_utils.OldIrGuard
    deserialize = core.deserialize_pir_program
    Program = paddle.pir.Program
    Value = paddle.pir.Value
    StaticFunction = program_translator.StaticFunction
    DataType = core.DataType
except (ImportError, AttributeError) as error:
    raise UnsupportedPaddleError(
        f"PaddlePaddle lacks a name that export needs: {error}. Supported: 3.1 to 3.3."
    ) from error

__all__ = [
    "DataType",
    "Program",
    "StaticFunction",
    "Value",
    "convert_call",
    "deserialize",
    "editing",
    "old_program",
    "ops",
    "paddle",
    "plain_functions",
    "set_insertion_point",
    "set_insertion_point_after",
]


@contextlib.contextmanager
def editing(program: Any) -> Iterator[None]:
    """Inside, calls of ``ops`` on values of ``program`` add ops to it at the insertion point.

    The insertion point is process-wide: hold ``STATIC_LOCK``.
    """
    with _static_mode(None), program_guard(program):
        yield


@contextlib.contextmanager
def plain_functions() -> Iterator[None]:
    """Inside, what the user decorated with ``to_static`` runs as the plain Python function."""
    translator = program_translator.ProgramTranslator.get_instance()
    before = translator.enable_to_static
    translator.enable_to_static = False
    try:
        yield
    finally:
        translator.enable_to_static = before


def old_program(model: bytes, params: bytes) -> tuple[Any, dict[str, Any]]:
    """The PIR program in the content of an old ``.pdmodel``, and its parameters by name."""
    with _static_mode(None):
        executor = paddle.static.Executor(paddle.CPUPlace())
        scope = core.Scope()
        with paddle.static.scope_guard(scope), _old_ir():
            # Without a path prefix the two "file names" are the content itself.
            program, _, _ = paddle.static.load_inference_model(
                None, executor, model_filename=model, params_filename=params
            )
            arrays = {
                v.name: np.array(scope.find_var(v.name).get_tensor())
                for v in program.list_vars()
                if v.persistable and v.name not in ("feed", "fetch")
            }
        return _translate(program.desc), arrays


def all_ops(block: Any) -> Iterator[Any]:
    """Every op of ``block`` and of the bodies of its control flow, as it was when asked."""
    for op in list(block.ops):
        yield op
        if op.name() in ("pd_op.if", "pd_op.while"):
            for body in op.blocks():
                yield from all_ops(body)


def remove_dead_ops(program: Any) -> None:
    """Removes ops whose results nothing reads."""
    passes = paddle.pir.PassManager()
    passes.add_pass("dead_code_elimination_pass", {})
    passes.run(program)


def lift_parameters(program: Any) -> None:
    """Moves parameters that a branch or loop alone reads out of it.

    Paddle before 3.3 declares them inside, where its loader does not look for them.
    """
    block = program.global_block()
    own = {op.id() for op in block.ops}
    for op in all_ops(block):
        if op.name() == "builtin.parameter" and op.id() not in own:
            op.move_before(block.ops[0])


def forget_source_lines(program: Any) -> None:
    """Removes the Python stacks of the ops: they hold paths of this machine."""
    for op in all_ops(program.global_block()):
        if op.has_attr("op_callstack"):
            op.erase_attr("op_callstack")


#: In-place ops whose first operand is not what they write to.
_WRITE_ELSEWHERE = ("pd_op.batch_norm_", "pd_op.assign_out_", "pd_op.assign_value_")


def read_results_of_in_place_ops(program: Any) -> None:
    """Whoever reads what an in-place op has overwritten reads the op's result instead.

    Converters take every op for functional, and would hand out the value from before.
    """
    block = program.global_block()
    position = {op.id(): number for number, op in enumerate(block.ops)}
    for op in list(block.ops):
        name = op.name()
        if not name.startswith("pd_op.") or not name.endswith("_") or name in _WRITE_ELSEWHERE:
            continue
        if not op.num_operands() or not op.num_results():
            continue
        written, result = op.operand_source(0), op.result(0)
        if not written.initialized() or list(written.shape) != list(result.shape):
            continue
        for user in written.all_used_ops():
            if position.get(user.id(), -1) > position[op.id()]:
                for operand in user.operands():
                    if operand.source().is_same(written):
                        operand.set_source(result)


def restore_source_lines(program: Any) -> None:
    """After a capture of transformed code: ops name the user's lines and not the generated ones."""
    origin_info.update_op_callstack_with_origin_info(program)


def user_line(file: str, line: int) -> tuple[str, int, str] | None:
    """File, line and code that line ``line`` of a generated ``file`` was made from."""
    found = origin_info.global_origin_info_map.get(origin_info.Location(file, line).line_location)
    if found is None:
        return None
    path, number, _, code = found.as_frame()
    return path, number, code.strip()


def inputs_as_data(program: Any) -> None:
    """``feed`` ops, as old programs have them, as ``data`` ops."""
    block = program.global_block()
    with editing(program):
        for op in list(block.ops):
            if op.name() == "pd_op.feed":
                value, attrs = op.result(0), op.attrs()
                set_insertion_point(op)
                made = paddle._pir_ops.data(
                    attrs["name"], list(value.shape), value.dtype, core.Place()
                )
                value.replace_all_uses_with(made)
                block.remove_op(op)
