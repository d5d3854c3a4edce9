"""Embeddings, their sum and its layer norm as one node."""

import paddle
import paddle.nn.functional as F
import pytest
from graph_testing import after_passes, assert_golden, calibrated, fresh_names, random_input
from paddle import nn

from paddle_fluid_boost.passes.elementwise import LowerElementwise
from paddle_fluid_boost.passes.embedding_layer_norm import FuseEmbeddingLayerNorm
from paddle_fluid_boost.passes.post_ops import FusePostOps

IDS, KINDS = paddle.to_tensor([[1, 5, 2], [0, 3, 3]]), paddle.to_tensor([[0, 1, 1], [1, 0, 1]])
PASSES = [LowerElementwise(), FusePostOps(), FuseEmbeddingLayerNorm()]


class Start(nn.Layer):
    """Words, places and kinds, as BERT adds them up."""

    def __init__(self, **settings):
        super().__init__()
        self.words, self.kinds = nn.Embedding(6, 4, **settings), nn.Embedding(2, 4)
        self.places = self.create_parameter([3, 4])
        self.norm = nn.LayerNorm(4)

    def total(self, ids, kinds):
        return self.words(ids) + self.places + self.kinds(kinds)

    def forward(self, ids, kinds):
        return self.norm(self.total(ids, kinds))


def made(build):
    """A layer with the same names and weights in every run."""
    with fresh_names():
        return calibrated(build())


def test_one_node():
    outcome = after_passes(made(Start), [IDS, KINDS], PASSES)
    assert outcome.ops == ["embedding_layer_norm"] and outcome.error < 1e-6
    assert_golden(outcome, "fuse_embedding_layer_norm")


def test_the_sum_stays_readable():
    start = made(Start)

    def call(ids, kinds):
        total = start.total(ids, kinds)
        return start.norm(total) * 2.0, F.relu(total)

    outcome = after_passes(call, [IDS, KINDS], PASSES)
    assert outcome.ops.count("embedding_layer_norm") == 1 and "embedding" not in outcome.ops
    assert outcome.error < 1e-6


def test_one_table_and_a_live_addend():
    start = made(Start)
    outcome = after_passes(
        lambda ids, x: start.norm(start.words(ids) + x), [IDS, random_input(2, 3, 4)], PASSES
    )
    assert outcome.ops == ["embedding_layer_norm"] and outcome.error < 1e-6


def early(start, ids, kinds):
    total = start.total(ids, kinds)
    return F.softmax(total), start.norm(total)


@pytest.mark.parametrize(
    "call, reason",
    [
        (
            lambda start, ids, kinds: start.norm(start.words(ids) + start.kinds(kinds)[:, :1]),
            "float32[2, 1, 4] is added to parts of a row, or to some rows several times",
        ),
        (early, "the sum is read before the layer norm"),
        (
            lambda start, ids, kinds: F.layer_norm(start.total(ids, kinds), [3, 4]),
            "layer norm of float32 from dimension 1 on",
        ),
    ],
)
def test_refuses(call, reason):
    start = made(Start)
    outcome = after_passes(lambda ids, kinds: call(start, ids, kinds), [IDS, KINDS], PASSES)
    assert "embedding_layer_norm" not in outcome.ops
    assert len(outcome.record.refused) == 1 and reason in outcome.record.refused[0]


def test_refuses_a_padding_index():
    outcome = after_passes(made(lambda: Start(padding_idx=0)), [IDS, KINDS], PASSES)
    assert outcome.record.refused == ["an embedding with a padding index"]
