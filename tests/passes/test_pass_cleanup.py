"""Identity removal, constant folding, common subexpressions, dead code."""

import numpy as np
import paddle
import paddle.nn.functional as F
from graph_testing import after_passes, assert_golden, fresh_names, graph_of, random_input
from paddle import nn

from paddle_fluid_boost.ir import reference
from paddle_fluid_boost.passes.common_subexpressions import MergeCommonSubexpressions
from paddle_fluid_boost.passes.constant_folding import FoldConstants
from paddle_fluid_boost.passes.dead_code import EliminateDeadCode
from paddle_fluid_boost.passes.identities import RemoveIdentities

X = random_input(2, 3, 4)


def test_identities_go():
    def call(x):
        y = F.dropout(x, 0.5, training=False)
        y = paddle.assign(y) * 1.0
        return F.relu(y.astype("float32").transpose([0, 1, 2]))

    outcome = after_passes(call, [X], [RemoveIdentities()])
    assert outcome.ops == ["relu"] and outcome.record.fired >= 3 and outcome.error == 0
    assert_golden(outcome, "remove_identities")


def test_dropout_that_scales_in_inference_becomes_scale():
    def call(x):
        return F.dropout(x, 0.25, training=False, mode="downscale_in_infer")

    outcome = after_passes(call, [X], [RemoveIdentities()])
    assert outcome.ops == ["scale"] and outcome.error < 1e-7
    assert outcome.graph.nodes[0].attrs["scale"] == 0.75


def test_active_dropout_stays():
    graph = graph_of(lambda x: F.dropout(x, 0.5, training=True), [X])
    record = RemoveIdentities().run(graph)
    assert record.fired == 0 and record.refused == ["dropout is in training mode"]
    assert [node.op for node in graph.nodes] == ["dropout"]


def test_cast_to_another_dtype_stays():
    outcome = after_passes(lambda x: x.astype("float64"), [X], [RemoveIdentities()])
    assert outcome.ops == ["cast"] and outcome.record.fired == 0


def test_constant_folding_computes_what_depends_on_weights():
    with fresh_names():
        layer = nn.Linear(4, 5)

    def call(x):
        return paddle.matmul(x, paddle.tanh(layer.weight) * 2.0)

    outcome = after_passes(call, [X], [FoldConstants()])
    assert outcome.ops == ["matmul"] and outcome.error == 0
    assert_golden(outcome, "fold_constants")


def test_folded_constants_follow_the_weights():
    layer = nn.Linear(4, 5)

    def call(x):
        return paddle.matmul(x, paddle.tanh(layer.weight))

    outcome = after_passes(call, [X], [FoldConstants()])
    (constant,) = outcome.graph.constants
    assert [source is layer.weight for source in constant.sources] == [True]
    layer.weight.set_value(np.full([4, 5], 0.25, "float32"))
    np.testing.assert_allclose(constant.compute(), np.tanh(0.25), rtol=1e-6)
    got = reference.run(outcome.graph, [X])[0]
    np.testing.assert_allclose(got.numpy(), call(X).numpy(), rtol=1e-6)


def test_constant_folding_leaves_random_and_huge_results():
    graph = graph_of(lambda x: x + paddle.rand([3, 4]), [X])
    record = FoldConstants().run(graph)
    assert [node.op for node in graph.nodes] == ["uniform", "add"]
    assert record.refused == ["uniform is random or has an effect"]

    weight = nn.Linear(4, 1).weight
    graph = graph_of(lambda x: x.sum() + weight.expand([1 << 19, 4, 1]), [X])
    record = FoldConstants().run(graph)
    assert "expand" in [node.op for node in graph.nodes]
    assert record.refused == ["expand would grow 16 bytes of constants to 8388608"]


def test_constants_that_take_only_a_shape_are_folded():
    table = nn.Embedding(3, 4).weight

    def call(x):
        kinds = paddle.zeros_like(x[..., 0]).astype("int64")
        return x + F.embedding(kinds, table) + paddle.full_like(x, 0.5)

    outcome = after_passes(call, [X], [FoldConstants(), EliminateDeadCode()])
    assert set(outcome.ops) == {"add"} and outcome.error == 0

    graph = graph_of(paddle.zeros_like, [paddle.zeros([1 << 21])])
    assert FoldConstants().run(graph).fired == 0


def test_common_subexpressions_merge():
    def call(x):
        return F.relu(x) + F.relu(x) * F.sigmoid(x)

    outcome = after_passes(call, [X], [MergeCommonSubexpressions()])
    assert outcome.ops.count("relu") == 1 and outcome.error == 0
    assert_golden(outcome, "merge_common_subexpressions")


def test_different_attributes_and_random_ops_do_not_merge():
    def call(x):
        return F.leaky_relu(x, 0.1) + F.leaky_relu(x, 0.2) + paddle.rand([4]) + paddle.rand([4])

    graph = graph_of(call, [X])
    assert MergeCommonSubexpressions().run(graph).fired == 0
    assert [node.op for node in graph.nodes].count("uniform") == 2


def test_dead_code_goes_and_live_code_stays():
    def call(x):
        F.sigmoid(x) * 3.0
        return F.relu(x)

    outcome = after_passes(call, [X], [EliminateDeadCode()])
    assert outcome.ops == ["relu"] and outcome.record.fired == 2 and outcome.error == 0
    assert EliminateDeadCode().run(outcome.graph).fired == 0
    assert_golden(outcome, "eliminate_dead_code")


def test_dropout_whose_mask_is_read_stays():
    graph = graph_of(lambda x: F.dropout(x, 0.5, training=False), [X])
    graph.outputs.append(graph.nodes[0].outputs[1])
    assert RemoveIdentities().run(graph).refused == ["the mask of the dropout is read"]


def test_equal_literals_make_equal_nodes():
    def call(x):
        return paddle.maximum(x, paddle.full([4], 2.0)), paddle.maximum(x, paddle.full([4], 2.0))

    outcome = after_passes(call, [random_input(3, 4)], [MergeCommonSubexpressions()])
    assert outcome.ops == ["maximum"] and outcome.error == 0


def test_a_cast_to_another_type_stays():
    outcome = after_passes(lambda x: x.astype("int64"), [X], [RemoveIdentities()])
    assert outcome.ops == ["cast"] and outcome.error == 0


def test_ops_that_are_random_in_training_only_are_merged_in_test_mode():
    def call(x):
        return F.rrelu(x, training=False), F.rrelu(x, training=False)

    outcome = after_passes(call, [X], [MergeCommonSubexpressions()])
    assert outcome.ops.count("rrelu") == 1 and outcome.error == 0
