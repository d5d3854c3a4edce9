"""Post-ops, attention, add + layer norm, and the pipeline as a whole."""

import paddle
import paddle.nn.functional as F
import pytest
from graph_testing import (
    after_passes,
    assert_golden,
    calibrated,
    eager,
    fresh_names,
    graph_of,
    random_input,
    relative_error,
)
from paddle import nn

from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.ir import reference
from paddle_fluid_boost.ir.importer import import_program
from paddle_fluid_boost.passes.add_layer_norm import FuseAddLayerNorm
from paddle_fluid_boost.passes.attention import FuseAttention
from paddle_fluid_boost.passes.elementwise import LowerElementwise
from paddle_fluid_boost.passes.pipeline import PASSES, optimise
from paddle_fluid_boost.passes.post_ops import FusePostOps
from paddle_fluid_boost.passes.products import AbsorbTransposes
from paddle_fluid_boost.passes.scalars import UnifyScalarArithmetic

IMAGE = random_input(2, 4, 8, 8)
X = random_input(2, 3, 4)
POINTWISE = [LowerElementwise(), FusePostOps()]


def made(build):
    """A layer with the same names and weights in every run."""
    with fresh_names():
        return calibrated(build())


UNARY = {
    "relu": F.relu,
    "relu6": F.relu6,
    "clip": lambda x: paddle.clip(x, -0.5, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "elu": lambda x: F.elu(x, 0.7),
    "sigmoid": F.sigmoid,
    "tanh": paddle.tanh,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate=True),
    "silu": F.silu,
    "swish": F.swish,
    "hardswish": F.hardswish,
    "hardsigmoid": lambda x: F.hardsigmoid(x, 0.2, 0.4),
    "mish": F.mish,
    "abs": paddle.abs,
    "exp": paddle.exp,
    "square": paddle.square,
    "rsqrt": lambda x: paddle.rsqrt(x.abs() + 0.1),
    "reciprocal": lambda x: paddle.reciprocal(x.abs() + 0.1),
    "pow": lambda x: paddle.pow(x.abs(), 1.7),
    "pow_square": lambda x: paddle.pow(x, 2.0),
    "pow_inverse_root": lambda x: paddle.pow(x.abs() + 0.1, -0.5),
    "log": lambda x: paddle.log(x.abs() + 0.1),
    "softplus": lambda x: F.softplus(x, 2.0),
    "log_sigmoid": F.log_sigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.5),
    "scale": lambda x: paddle.scale(x, 2.0, 1.0),
    "scale_after": lambda x: paddle.scale(x, 2.0, 1.0, bias_after_scale=False),
}


@pytest.mark.parametrize("name", UNARY)
def test_activation_is_a_post_op(name):
    outcome = after_passes(UNARY[name], [X * 2], [LowerElementwise()])
    assert set(outcome.ops) == {"fused_elementwise"} and outcome.error < 1e-6
    assert_golden(outcome, f"lower_elementwise_{name}")


def test_refuses_softplus_that_is_cut_off_early():
    outcome = after_passes(lambda x: F.softplus(x, 1.0, 5.0), [X], [LowerElementwise()])
    assert outcome.ops == ["softplus"]
    assert outcome.record.refused == ["softplus that is cut off at 5.0"]


def test_binary_ops_are_post_ops():
    row = random_input(4, seed=5)

    def call(x, t):
        return (t - x) / (paddle.abs(x) + 1.0), paddle.maximum(t, x), paddle.minimum(x, x * t)

    outcome = after_passes(call, [X, row], [LowerElementwise()])
    assert set(outcome.ops) == {"fused_elementwise"} and outcome.error < 1e-6
    assert_golden(outcome, "lower_elementwise_binary")


def test_pointwise_on_integers_and_outer_products_is_refused():
    outcome = after_passes(lambda x: x + x, [paddle.arange(4)], [LowerElementwise()])
    assert outcome.record.refused == ["add on int64"]
    column = random_input(3, 1)
    row = random_input(1, 4)
    outcome = after_passes(lambda a, b: a * b, [column, row], [LowerElementwise()])
    assert outcome.record.refused == ["no operand of multiply has the shape of its result"]


class Residual(nn.Layer):
    """conv-bn-relu-conv-bn, plus the shortcut, then relu."""

    def __init__(self, projected=False):
        super().__init__()
        self.first, self.second = nn.Conv2D(4, 4, 3, padding=1), nn.Conv2D(4, 4, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2D(4), nn.BatchNorm2D(4)
        self.shortcut = nn.Conv2D(4, 4, 1) if projected else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.shortcut(x))


@pytest.mark.parametrize("projected", [False, True])
def test_residual_block_is_two_or_three_convolutions(projected):
    outcome = after_passes(made(lambda: Residual(projected)), [IMAGE], PASSES)
    assert outcome.ops == ["fused_conv2d"] * (3 if projected else 2) and outcome.error < 2e-6
    assert_golden(outcome, f"residual_block_{'projected' if projected else 'plain'}")


def test_chain_of_pointwise_ops_is_one_node():
    outcome = after_passes(
        lambda x, t: F.relu(t + F.sigmoid(x) * t), [X, random_input(2, 3, 1)], POINTWISE
    )
    assert outcome.ops == ["fused_elementwise"] and outcome.error < 1e-6
    assert_golden(outcome, "fuse_post_ops_chain")


def test_linear_with_bias_and_gelu_is_one_node():
    layer = made(lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU()))
    outcome = after_passes(layer, [X], PASSES)
    assert outcome.ops == ["linear"] and outcome.error < 1e-6
    assert_golden(outcome, "linear_gelu")


def test_post_ops_are_not_fused_into_a_shared_or_broadcast_result():
    layer = made(lambda: nn.Linear(4, 4))

    def shared(x):
        y = layer(x)
        return F.relu(y), F.sigmoid(y)

    outcome = after_passes(shared, [X], PASSES)
    assert outcome.ops == ["linear", "fused_elementwise", "fused_elementwise"]
    graph = graph_of(shared, [X])
    refused = [reason for record in optimise(graph) for reason in record.refused]
    assert any("is also read by fused_elementwise" in reason for reason in refused)

    outcome = after_passes(lambda x, t: layer(t) + x, [X, random_input(1, 4)], PASSES)
    assert outcome.ops == ["linear", "fused_elementwise"] and outcome.error < 1e-6
    graph = graph_of(lambda x, t: layer(t) + x, [X, random_input(1, 4)])
    refused = [reason for record in optimise(graph) for reason in record.refused]
    assert "the result of linear is broadcast by the pointwise op" in refused


def test_a_product_multiplied_by_itself_is_not_its_own_operand():
    layer = made(lambda: nn.Linear(4, 4))

    def call(x):
        y = layer(x)
        return y * y

    outcome = after_passes(call, [X], PASSES)
    assert outcome.ops == ["linear", "fused_elementwise"] and outcome.error < 1e-6
    refused = [r for record in optimise(graph_of(call, [X])) for r in record.refused]
    assert "the pointwise op reads the result of linear twice" in refused


def test_operand_made_after_the_product_is_ready_in_time():
    layer = made(lambda: nn.Linear(4, 4))
    outcome = after_passes(lambda x: layer(x) * F.softmax(x), [X], PASSES)
    assert outcome.ops == ["softmax", "linear"] and outcome.error < 1e-6


Q, K, V = (random_input(2, 5, 3, 4, seed=s) for s in (11, 12, 13))
MASK = random_input(5, 5, seed=14)


def _heads_first(t):
    return t.transpose([0, 2, 1, 3])


def _attention(q, k, v, mask, where):
    if where == "keys_at_once":
        q, k, v = _heads_first(q), k.transpose([0, 2, 3, 1]), _heads_first(v)
        scores = paddle.matmul(q, k) if mask is None else paddle.matmul(q, k) + mask
        return _heads_first(paddle.matmul(F.softmax(scores), v))
    q, k, v = map(_heads_first, (q, k, v))
    if where == "query":
        q = q * 0.5
    scores = paddle.matmul(q, k.transpose([0, 1, 3, 2])) * (0.5 if where == "scores" else 1.0)
    if where == "divided":
        scores = scores / 2.0
    if mask is not None:
        scores = mask + scores
    return _heads_first(paddle.matmul(F.softmax(scores), v))


ATTENTION = [AbsorbTransposes(), UnifyScalarArithmetic(), FuseAttention()]


@pytest.mark.parametrize("where", ["query", "scores", "divided", "nowhere", "keys_at_once"])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_one_node(where, masked):
    if masked:
        outcome = after_passes(
            lambda q, k, v, m: _attention(q, k, v, m, where), [Q, K, V, MASK], ATTENTION
        )
    else:
        outcome = after_passes(
            lambda q, k, v: _attention(q, k, v, None, where), [Q, K, V], ATTENTION
        )
    assert "softmax" not in outcome.ops and outcome.ops.count("attention") == 1
    assert "transpose" not in outcome.ops and outcome.error < 1e-6
    assert_golden(outcome, f"fuse_attention_{where}{'_masked' if masked else ''}")


def test_attention_without_transposes_keeps_its_layout():
    def call(q, k, v):
        return paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5), v)

    outcome = after_passes(call, [Q, K, V], ATTENTION)
    assert outcome.ops == ["attention"] and outcome.error < 1e-6
    assert outcome.graph.nodes[0].attrs["layout"] == "BHSD"


def test_attention_with_readable_weights_or_another_axis_is_refused():
    def read(q, k, v):
        weights = F.softmax(paddle.matmul(q, k, transpose_y=True))
        return paddle.matmul(weights, v), weights

    outcome = after_passes(read, [Q, K, V], [FuseAttention()])
    assert outcome.record.fired == 0
    assert "is also an output of the graph" in outcome.record.refused[0]

    def other_axis(q, k, v):
        return paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True), axis=-2), v)

    outcome = after_passes(other_axis, [Q, K, V], [FuseAttention()])
    assert outcome.record.refused == ["softmax runs over another axis than the keys"]


def test_sum_and_layer_norm_are_one_node_with_two_results():
    norm = made(lambda: nn.LayerNorm(4))

    def call(x, t):
        total = x + t
        return norm(total), total

    passes = [LowerElementwise(), FuseAddLayerNorm()]
    outcome = after_passes(call, [X, random_input(3, 4)], passes)
    assert outcome.ops == ["add_layer_norm"] and outcome.error < 1e-6
    assert_golden(outcome, "fuse_add_layer_norm")


def test_layer_norm_of_something_else_than_a_sum_stays():
    norm = made(lambda: nn.LayerNorm(4))
    passes = [LowerElementwise(), FuseAddLayerNorm()]
    outcome = after_passes(lambda x: norm(F.relu(x)), [X], passes)
    assert outcome.ops == ["fused_elementwise", "layer_norm"]

    def early_reader(x, t):
        total = x + t
        return F.softmax(total), norm(total)

    outcome = after_passes(early_reader, [X, X], passes)
    assert outcome.record.refused == ["the sum is read before the layer norm"]


def test_encoder_layer_is_nine_nodes():
    layer = made(lambda: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"))
    outcome = after_passes(layer, [random_input(2, 5, 8)], PASSES)
    assert outcome.error < 2e-6
    assert_golden(outcome, "encoder_layer")


def test_records_have_one_entry_per_pass():
    graph = graph_of(lambda x: F.relu(x), [X])
    records = optimise(graph, verifying=True)
    assert [record.name for record in records] == [one.name for one in PASSES]
    assert set(records[0].to_dict()) == {"pass", "fired", "refused"}


def test_optimising_twice_changes_nothing():
    graph = graph_of(made(lambda: Residual(True)), [IMAGE])
    optimise(graph)
    fired = {record.name: record.fired for record in optimise(graph, verifying=True)}
    assert not any(fired.values()), fired


def _two_branches(pooled):
    class Branches(nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2D(4, 2, 1), nn.Conv2D(4, 3, 1)

        def forward(self, x):
            second = F.max_pool2d(x, 1) if pooled else self.two(x)
            return F.relu(paddle.concat([self.one(x), second], 1))

    return Branches


def test_activation_moves_before_a_concat_of_products():
    outcome = after_passes(made(_two_branches(False)), [IMAGE], PASSES)
    assert outcome.ops == ["fused_conv2d", "fused_conv2d", "concat"] and outcome.error < 1e-6
    assert_golden(outcome, "move_before_concat")


def test_activation_stays_behind_a_concat_of_something_else():
    layer = made(_two_branches(True))
    outcome = after_passes(layer, [IMAGE], PASSES)
    assert outcome.ops == ["fused_conv2d", "concat", "fused_elementwise"] and outcome.error < 1e-6
    refused = [r for record in optimise(graph_of(layer, [IMAGE])) for r in record.refused]
    assert "x0 cannot take the activation as a post-op" in refused


def test_half_precision_is_left_as_it_is():
    """Paddle's CPU has no bfloat16 matmul to compare with, so only the graph is looked at."""
    layer = made(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    layer.to(dtype="bfloat16")
    graph = graph_of(layer, [X.astype("bfloat16")])
    optimise(graph, verifying=True)
    assert [node.op for node in graph.nodes] == ["matmul", "add", "relu"]


def test_open_dimensions_are_left_alone_where_shapes_matter():
    layer = made(lambda: nn.Sequential(Residual(True), nn.AdaptiveAvgPool2D(1), nn.Flatten()))
    with paddle.no_grad():
        captured, _ = trace(layer, [IMAGE], {}, dynamic_dims={0: [0], 1: []})
    graph = import_program(captured)
    records = optimise(graph, verifying=True)
    for batch in (1, 3):
        x = random_input(batch, 4, 8, 8)
        assert relative_error(reference.run(graph, [x]), eager(layer, [x])) < 2e-6
    refused = [reason for record in records for reason in record.refused]
    assert any("-1" in reason or "depends on data" in reason for reason in refused)
