"""The ops of Paddle that write to their arguments without counting it in ``inplace_version``.

Checked on 3.3.1: the optimizers' ops and others that exist only as ``name_``, batch normalisation,
and compiled training steps.  Names that a version lacks are passed over.
"""

from __future__ import annotations

from typing import Any

from . import _paddle as pd

#: Ops that write to arguments without counting it in ``inplace_version`` -> which arguments.
_UNCOUNTED = {
    **dict.fromkeys(
        (
            "adadelta_", "adagrad_", "adam_", "adamax_", "adamw_", "asgd_", "assign_value_",
            "fused_adam_", "full_", "lamb_", "lars_momentum_", "merged_adam_", "merged_momentum_",
            "momentum_", "nadam_", "radam_", "rmsprop_", "rprop_", "sgd_",
        ),
        slice(1),
    ),
    **dict.fromkeys(
        (
            "batch_norm", "batch_norm_", "sync_batch_norm_", "sparse_batch_norm_",
            "sparse_sync_batch_norm_",
        ),
        slice(1, 3),
    ),
    **dict.fromkeys(
        (
            "average_accumulates_", "block_multihead_attention_", "fused_multi_transformer_",
            "masked_multihead_attention_",
        ),
        slice(None),
    ),
    # A compiled training step: the statistics are among its parameters.
    "run_program": slice(1, 2),
    "pir_run_program": slice(1, 2),
}  # fmt: skip


def uncounted_writers() -> list[tuple[Any, str, slice]]:
    """(module, op, arguments written to) of the ops whose writes ``inplace_version`` misses."""
    modules = (pd.paddle._C_ops, pd.paddle._legacy_C_ops)
    return [
        (module, name, written)
        for module in modules
        for name, written in _UNCOUNTED.items()
        if hasattr(module, name)
    ]
