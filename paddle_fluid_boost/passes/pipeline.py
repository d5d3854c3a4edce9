"""The passes in the order in which they run: one list, read from top to bottom.

The order is: clean up; bring what can be spelled in several ways into one form; fuse what needs
that form; then lower to the fused ops of ``ir/ops.py`` and fuse by the rule of ``post_ops``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Graph
from ..ir.verify import verify
from .activations import RecogniseActivations
from .add_layer_norm import FuseAddLayerNorm
from .attention import FuseAttention
from .base import Pass, PassRecord
from .batch_norm import LowerBatchNorm
from .before_concat import MoveBeforeConcat
from .common_subexpressions import MergeCommonSubexpressions
from .constant_folding import FoldConstants
from .convolution import LowerConvolution
from .dead_code import EliminateDeadCode
from .elementwise import LowerElementwise
from .embedding_layer_norm import FuseEmbeddingLayerNorm
from .fold_batch_norm import FoldBatchNorm
from .fold_batch_norm_forward import FoldBatchNormForward
from .fold_bias import FoldBias, FoldScale
from .identities import RemoveIdentities
from .layer_norm import RecogniseLayerNorm
from .pooling import LowerPooling
from .post_ops import FusePostOps
from .products import AbsorbTransposes, LowerProducts
from .qkv import MergeProjections
from .recurrent import LowerRecurrent
from .rms_norm import RecogniseRmsNorm
from .scalars import UnifyScalarArithmetic
from .slices import MoveSlices, SplitUnbind
from .squeeze_excitation import FuseSqueezeExcitation
from .transposes import SimplifyTransposes
from .views import SimplifyViews

PASSES: tuple[Pass, ...] = (
    # clean up
    RemoveIdentities(),
    FoldConstants(),
    MergeCommonSubexpressions(),
    EliminateDeadCode(),
    # one spelling
    SimplifyViews(),
    SplitUnbind(),
    MoveSlices(),
    AbsorbTransposes(),
    SimplifyTransposes(),
    AbsorbTransposes(),
    UnifyScalarArithmetic(),
    RemoveIdentities(),
    RecogniseActivations(),
    RecogniseLayerNorm(),
    RecogniseRmsNorm(),
    # fusions on Paddle's ops
    FuseAttention(),
    # lowering and fusion into products
    LowerConvolution(),
    LowerPooling(),
    LowerProducts(),
    LowerRecurrent(),
    FoldBias(),
    FoldScale(),
    FoldBatchNorm(),
    FoldBatchNormForward(),
    FoldBias(),
    FoldScale(),
    MergeProjections(),
    # the general rule
    LowerBatchNorm(),
    LowerElementwise(),
    MoveBeforeConcat(),
    FusePostOps(),
    FuseEmbeddingLayerNorm(),
    FuseAddLayerNorm(),
    FuseSqueezeExcitation(),
    # what the above left behind
    SimplifyViews(),
    MergeCommonSubexpressions(),
    EliminateDeadCode(),
)


def optimise(
    graph: Graph, passes: Sequence[Pass] = PASSES, *, verifying: bool = False
) -> list[PassRecord]:
    """Runs ``passes`` over ``graph`` in place; bodies of control flow first.

    Args:
        verifying: check the graph after every pass (tests do).

    Returns:
        One record per pass, in order; the records of bodies come first.
    """
    records: list[PassRecord] = []
    for node in graph.nodes:
        for region in node.regions:
            records += optimise(region, passes, verifying=verifying)
    for one in passes:
        records.append(one.run(graph))
        if verifying:
            verify(graph)
    return records
