"""The rule for attention: a mask that is known when the plan is built saves products.

Each block of queries is computed with the keys that some query of it can see.  A key is left out
where the mask is minus infinity, which makes its weight exactly zero; not where it is a large
negative number, which does so only for most scores.
"""

from __future__ import annotations

import numpy as np

from ...ir.graph import Constant, Node, Value
from .lowering import Lowering, NotNative, lowers

#: Where attention is products around a softmax: queries per block, and the part of the products
#: that blocks may leave to be worth it (measured: none at 128 queries, 6% of a small decoder's
#: whole time at 256, 10 to 12% at 512).  Blocks without a mask gain nothing: the scores of a block
#: stay in cache, but the keys are packed again for each.
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
    queries, keys = q.shape[swap[rank - 2]], k.shape[swap[rank - 2]]
    in_one_step = low.builder.can_attend(query, key, value, masks)
    if in_one_step:
        blocks = _blocks(queries, keys, mask, low.builder.attention_rows)
    else:
        blocks = _product_blocks(queries, keys, mask)
    scale = node.attrs["scale"]
    made = low.builder.attention(query, key, value, masks, scale, heads_inside, blocks, in_one_step)
    return int(low.builder.permute(made, swap))


def _product_blocks(queries: int, keys: int, mask: Value | None) -> list[Block]:
    """The blocks for products around a softmax; none where the whole at once is best."""
    blocks = []
    for begin, end, first, last in _blocks(queries, keys, mask, _ROWS):
        if last - first == 1:
            # A product over one element is no matrix product: one hidden key more.
            first, last = (first, last + 1) if last < keys else (max(first - 1, 0), last)
        blocks.append((begin, end, first, last))
    products = sum((end - begin) * (last - first) for begin, end, first, last in blocks)
    return blocks if products <= _LEFT * queries * keys else []


def _blocks(queries: int, keys: int, mask: Value | None, rows: int) -> list[Block]:
    """Blocks of ``rows`` queries with the keys that some of them see: all, where it is not known.

    A block that sees none at all has all keys: its results are not-a-number, as in eager mode.
    """
    hidden = np.zeros([queries, keys], bool)
    if isinstance(mask, Constant) and mask.shape[-2:] == (queries, keys):
        hidden = (mask.compute().reshape(-1, queries, keys) == -np.inf).all(axis=0)
    blocks = []
    for begin in range(0, queries, rows):
        end = min(begin + rows, queries)
        visible = np.flatnonzero(~hidden[begin:end].all(axis=0))
        first, last = (int(visible[0]), int(visible[-1]) + 1) if len(visible) else (0, keys)
        blocks.append((begin, end, first, last))
    return blocks
