"""The rule for attention: a causal mask is known when the plan is built, and saves products.

Attention is computed in blocks of queries, each with the keys that some query of it can see, where
that leaves out enough of them.  A key is left out where the mask is minus infinity, which makes its
weight exactly zero; not where it is a large negative number, which does so only for most scores.
Blocks without such a mask gained nothing: the scores of a block stay in cache, but the keys are
packed again for each block.
"""

from __future__ import annotations

import numpy as np

from ...ir.graph import Constant, Node, Value
from .lowering import Lowering, NotNative, lowers

#: Queries per block, and the part of the products that blocks may leave to be worth it (measured:
#: none at 128 queries, 6% of a small decoder's whole time at 256, 10 to 12% at 512).
_ROWS = 128
_LEFT = 0.8
#: (first query, end, first key, end).
Block = tuple[int, int, int, int]


@lowers("attention")
def attention(low: Lowering, node: Node) -> int:
    q, k, v, mask = node.inputs[:4]
    if q is None or k is None:
        raise NotNative("an input is missing")
    rank = len(q.shape)
    heads_inside = node.attrs["layout"] == "BSHD"
    swap = [0, 2, 1, 3] if heads_inside else list(range(rank))
    query, key, value = (low.builder.permute(low.float(t), swap) for t in (q, k, v))
    masks = -1 if mask is None else low.padded(mask, rank)
    sequence = swap[rank - 2]
    blocks = _blocks(q.shape[sequence], k.shape[sequence], mask)
    scale = node.attrs["scale"]
    made = low.builder.attention(query, key, value, masks, scale, heads_inside, blocks)
    return int(low.builder.permute(made, swap))


def _blocks(queries: int, keys: int, mask: Value | None) -> list[Block]:
    """The blocks; none where the whole at once is best."""
    if not isinstance(mask, Constant) or mask.shape[-2:] != (queries, keys):
        return []
    hidden = (mask.compute().reshape(-1, queries, keys) == -np.inf).all(axis=0)
    blocks = []
    for begin in range(0, queries, _ROWS):
        end = min(begin + _ROWS, queries)
        visible = np.flatnonzero(~hidden[begin:end].all(axis=0))
        first, last = (int(visible[0]), int(visible[-1]) + 1) if len(visible) else (0, keys)
        if last - first == 1:
            # A product over one element is no matrix product: one hidden key more.
            first, last = (first, last + 1) if last < keys else (max(first - 1, 0), last)
        blocks.append((begin, end, first, last))
    products = sum((end - begin) * (last - first) for begin, end, first, last in blocks)
    return blocks if products <= _LEFT * queries * keys else []
