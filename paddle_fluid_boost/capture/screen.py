"""Refuses captured programs whose replay would not be what eager does.

Tracing proves that no Python looked at a tensor's value; this file looks at the ops themselves:
random numbers, train-mode statistics, writes to inputs or parameters, printing.  Branches and
loops may hold such ops too; what is particular to them is in ``control_flow.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import CaptureRefused
from .aliases import BRANCH, LOOP, YIELD, Aliases
from .control_flow import screen_flow
from .overwriting import screen_overwriting
from .program import CapturedProgram

_RANDOM = (
    "gaussian", "uniform", "randint", "randperm", "bernoulli", "multinomial", "poisson",
    "dirichlet", "exponential", "standard_gamma", "binomial", "rrelu", "truncated_",
    "gumbel_softmax", "fractional_max_pool", "top_p_sampling", "class_center_sample", "seed",
    "shuffle_batch", "sampler", "sample_neighbors", "random", "dpsgd", "pyramid_hash",
)  # fmt: skip
_EFFECTS = ("print", "assert", "py_func", "save", "share_data", "barrier", "send", "recv", "c_")
#: A random op whose name is too short to look for inside others.
_RANDOM_NAMES = frozenset({"nce"})
#: Ops that are random or keep statistics in train mode only: their attribute ``is_test`` says so.
_TEST_MODE = frozenset(
    {"dropout", "dropout_", "batch_norm", "batch_norm_", "sync_batch_norm", "sync_batch_norm_"}
)
#: Parts of the names of ops that drop out as one of several things they do.
_WITH_DROPOUT = ("rnn", "lstm", "attn", "attention", "feedforward", "dropout")


def screen(captured: CapturedProgram, *, branches_seen: bool = False) -> None:
    """Raises CaptureRefused naming the first op that makes the program unsafe to replay.

    branches_seen: the Python of all branches and bodies was shown to be free of effects, and what
        it reads is guarded (``rehearsal.py``); otherwise programs with any are refused.
    """
    flows = False
    for op in _all_ops(captured.program.global_block()):
        if op.name() in (BRANCH, LOOP):
            if not branches_seen:
                raise CaptureRefused(f"contains {op.name()[6:]}, whose Python was not seen")
            flows = True
            continue
        reason = _reason(op)
        if reason:
            raise CaptureRefused(reason)
    if flows or any(op.name().endswith("_") for op in captured.program.global_block().ops):
        aliases = Aliases.of(captured.program)
        screen_overwriting(captured, aliases)
        if flows:
            screen_flow(captured, aliases)


def _all_ops(block: Any) -> Iterator[Any]:
    """The ops of a block, and those of the blocks inside it."""
    for op in block.ops:
        if op.name() == YIELD:
            continue
        yield op
        if op.name() in (BRANCH, LOOP):
            for body in op.blocks():
                yield from _all_ops(body)


def _reason(op: Any) -> str | None:
    dialect, _, name = op.name().partition(".")
    if dialect not in ("pd_op", "builtin"):
        return f"contains the op {op.name()}, which is not known to be safe"
    if op.num_regions() if hasattr(op, "num_regions") else False:
        return f"contains {name}, whose sub-programs are not compiled"
    if any(name.startswith(part) for part in _EFFECTS):
        return f"contains {name}, which has an effect"
    if name in _RANDOM_NAMES or any(part in name for part in _RANDOM):
        return f"draws random numbers ({name})"
    if name in _TEST_MODE:
        attributes = op.attrs()
        if not (attributes.get("is_test") or attributes.get("use_global_stats")):
            return f"is in train mode ({name})"
        return None
    if any(part in name for part in _WITH_DROPOUT) and _drops_out(op.attrs()):
        return f"is in train mode ({name} with dropout)"
    return None


def _drops_out(attributes: dict[str, Any]) -> bool:
    rates = [rate for key, rate in attributes.items() if "dropout" in key or key == "p"]
    return not attributes.get("is_test") and any(isinstance(r, float) and r > 0 for r in rates)
