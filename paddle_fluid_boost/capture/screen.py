"""Refuses captured programs whose replay would not be what eager does.

Tracing proves that no Python looked at a tensor's value; this file looks at the ops themselves:
random numbers, train-mode statistics, writes to inputs or parameters, printing, sub-programs.
"""

from __future__ import annotations

from typing import Any

from ..errors import CaptureRefused
from .program import CapturedProgram

_RANDOM = (
    "gaussian", "uniform", "randint", "randperm", "bernoulli", "multinomial", "poisson",
    "dirichlet", "exponential", "standard_gamma", "binomial", "rrelu", "truncated_",
)  # fmt: skip
_EFFECTS = ("print", "assert", "py_func", "save", "share_data", "barrier", "send", "recv", "c_")
#: Ops that are random or keep statistics in train mode only -> the attribute that says so.
_TEST_MODE = {"dropout": "is_test", "batch_norm_": "is_test", "batch_norm": "is_test"}


def screen(captured: CapturedProgram) -> None:
    """Raises CaptureRefused naming the first op that makes the program unsafe to replay."""
    protected = {value.id for value in captured.input_values}
    for op in captured.program.global_block().ops:
        if op.name() == "builtin.parameter":
            protected.update(result.id for result in op.results())
            continue
        reason = _reason(op, protected)
        if reason:
            raise CaptureRefused(reason)


def _reason(op: Any, protected: set[int]) -> str | None:
    dialect, _, name = op.name().partition(".")
    if dialect not in ("pd_op", "builtin"):
        return f"contains the op {op.name()}, which is not known to be safe"
    if op.num_regions() if hasattr(op, "num_regions") else False:
        return f"contains {name}, whose sub-programs are not compiled yet"
    if any(name.startswith(part) for part in _EFFECTS):
        return f"contains {name}, which has an effect"
    if any(part in name for part in _RANDOM):
        return f"draws random numbers ({name})"
    if name in _TEST_MODE:
        attributes = op.attrs()
        if not (attributes.get(_TEST_MODE[name]) or attributes.get("use_global_stats")):
            return f"is in train mode ({name})"
        return None
    if name in ("rnn", "lstm", "cudnn_lstm"):
        attributes = op.attrs()
        if attributes.get("dropout_prob") and not attributes.get("is_test"):
            return f"is in train mode ({name} with dropout)"
        return None
    if name in ("fused_attention", "fused_feedforward", "fused_dropout_add", "flash_attn"):
        attributes = op.attrs()
        rate = attributes.get("dropout") or attributes.get("p") or 0.0
        if rate and not attributes.get("is_test"):
            return f"is in train mode ({name} with dropout)"
    if name.endswith("_") and name != "batch_norm_":
        written = op.operand_source(0)
        if written.initialized() and written.id in protected:
            return f"writes to one of its inputs or parameters ({name})"
    return None
