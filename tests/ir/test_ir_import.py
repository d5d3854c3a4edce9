"""Import of captured programs, and the reference interpreter against eager."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from graph_testing import eager, fresh_names, graph_of, random_input, relative_error
from paddle import nn

from paddle_fluid_boost.capture.program import CapturedProgram, Slot
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.ir import reference
from paddle_fluid_boost.ir.importer import import_program
from paddle_fluid_boost.ir.printer import print_graph
from paddle_fluid_boost.ir.verify import verify

X = random_input(2, 4, 6)
IMAGE = random_input(2, 4, 8, 8)


def check(call, *inputs, ops=None):
    """The imported graph computes what eager computes; returns it."""
    graph = graph_of(call, inputs)
    wanted = eager(call, inputs)
    assert relative_error(reference.run(graph, inputs), wanted) < 1e-6
    if ops is not None:
        assert [node.op for node in graph.nodes] == ops
    return graph


def test_text_of_an_imported_layer():
    with fresh_names():
        layer = nn.Sequential(nn.Linear(6, 3), nn.Softmax())
    assert print_graph(graph_of(layer, [X])) == (
        "def graph(x0: float32[2, 4, 6]):\n"
        "    linear_0.w_0: float32[6, 3]\n"
        "    linear_0.b_0: float32[3]\n"
        "    v0 = matmul(x0, linear_0.w_0, transpose_x=False, transpose_y=False)"
        "  # float32[2, 4, 3]\n"
        "    v1 = add(v0, linear_0.b_0)  # float32[2, 4, 3]\n"
        "    v2 = softmax(v1, axis=-1)  # float32[2, 4, 3]\n"
        "    return v2\n"
    )


def test_parameters_are_the_live_tensors():
    layer = nn.Linear(6, 3)
    graph = graph_of(layer, [X])
    assert [c.tensor is p for c, p in zip(graph.constants, layer.parameters())] == [True, True]
    before = reference.run(graph, [X])[0].numpy()
    layer.weight.set_value(layer.weight * 2.0)
    layer.bias.set_value(layer.bias + 1.0)
    np.testing.assert_allclose(reference.run(graph, [X])[0].numpy(), layer(X).numpy(), rtol=1e-5)
    assert not np.allclose(before, layer(X).numpy())


CALLS = {
    "reshape": lambda x: x.reshape([2, -1]),
    "slice": lambda x: x[:, 1:3],
    "slice_drop": lambda x: x[:, -1],
    "strided_slice": lambda x: x[:, ::2],
    "split": lambda x: paddle.split(x, [1, 3], axis=1),
    "split_even": lambda x: paddle.split(x, 3, axis=2),
    "chunk_concat": lambda x: paddle.concat(paddle.chunk(x, 2, axis=1)[::-1], axis=1),
    "stack_unbind": lambda x: paddle.stack(paddle.unbind(x, 1), 0),
    "transpose": lambda x: x.transpose([2, 0, 1]),
    "mean_sum": lambda x: (x.mean([1, 2]), x.sum(), x.max(-1), x.argmax(-1)),
    "cumsum_cast": lambda x: x.cumsum(1).astype("int64"),
    "topk": lambda x: paddle.topk(x, 2),
    "where": lambda x: paddle.where(x > 0, x, paddle.zeros_like(x)),
    "clip_scale": lambda x: paddle.clip(x * 2.0 + 1.0, -1.0, 2.0),
    "arange_gather": lambda x: paddle.gather(x, paddle.arange(2), axis=1),
    "meshgrid": lambda x: paddle.meshgrid(x[0, :, 0], x[0, 0]),
    "constant": lambda x: x + paddle.to_tensor(np.arange(6, dtype="float32")),
    "expand_tile": lambda x: (x[:, :1].expand([2, 3, 6]), paddle.tile(x, [1, 2, 1])),
    "norm": lambda x: F.normalize(x, axis=-1),
    "einsum": lambda x: paddle.einsum("bij,bkj->bik", x, x),
    "nonzero": lambda x: paddle.nonzero(x > 0),
    "one_hot": lambda x: F.one_hot(x.argmax(-1), 6),
    "pad": lambda x: F.pad(x, [1, 2], data_format="NCL"),
    "layer_norm": lambda x: F.layer_norm(x, [6]),
    "flip_roll": lambda x: paddle.roll(paddle.flip(x, [1]), 1, 2),
    "activations": lambda x: (F.softplus(x), F.mish(x), F.prelu(x, paddle.full([1], 0.2))),
}


@pytest.mark.parametrize("name", CALLS)
def test_ops_import_and_run_as_in_eager(name):
    check(CALLS[name], X)


IMAGE_CALLS = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x, size=[5, 7], mode="nearest"),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x),
    "grid_sample": lambda x: F.grid_sample(x, paddle.tanh(x.transpose([0, 2, 3, 1])[..., :2])),
    "unfold": lambda x: F.unfold(x, 3),
    "pad": lambda x: F.pad(x, [1, 1, 2, 0], mode="reflect"),
}


@pytest.mark.parametrize("name", IMAGE_CALLS)
def test_image_ops_import_and_run_as_in_eager(name):
    check(IMAGE_CALLS[name], IMAGE)


LAYERS = {
    "LSTM": (lambda: nn.LSTM(6, 5, 2, direction="bidirect"), X),
    "GRU": (lambda: nn.GRU(6, 5), X),
    "SimpleRNN": (lambda: nn.SimpleRNN(6, 5), X),
    "Conv1D": (lambda: nn.Conv1D(4, 3, 3, padding=1), X),
    "Conv3D": (lambda: nn.Conv3D(2, 3, 2), random_input(1, 2, 4, 4, 4)),
    "Depthwise": (lambda: nn.Conv2D(4, 4, 3, groups=4), IMAGE),
    "Conv2DTranspose": (lambda: nn.Conv2DTranspose(4, 3, 2, 2), IMAGE),
    "BatchNorm": (lambda: nn.BatchNorm2D(4), IMAGE),
    "Attention": (lambda: nn.MultiHeadAttention(6, 2), X),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_import_and_run_as_in_eager(name):
    build, x = LAYERS[name]
    layer = build()
    layer.eval()
    check(layer, x)


def test_numbers_become_attributes():
    graph = check(lambda x: F.relu(x[:, 1:3].reshape([2, 12]) * 3.0), X)
    assert not graph.constants
    by_op = {node.op: node.attrs for node in graph.nodes}
    assert by_op["slice"]["starts"] == [1] and by_op["slice"]["ends"] == [3]
    assert by_op["reshape"]["shape"] == [2, 12] and by_op["scale"]["scale"] == 3.0


def test_outputs_may_be_inputs_constants_or_the_same_twice():
    def call(x):
        y = F.relu(x)
        return y, y, x

    graph = check(call, X, ops=["relu"])
    assert graph.outputs[0] is graph.outputs[1] and graph.outputs[2] is graph.inputs[0]


def test_zero_size_and_zero_rank():
    check(lambda x: F.relu(x) + 1.0, paddle.zeros([0, 3]))
    check(lambda x: x * 2.0, paddle.to_tensor(1.5))


def _static_program(build):
    """(program, inputs, outputs) of ``build``, run in static mode with one input x [2, 3]."""
    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program):
            x = paddle.static.data("x", [2, 3], "float32")
            return program, [x], build(x)
    finally:
        paddle.disable_static()


def _captured(build):
    program, inputs, outputs = _static_program(build)
    return CapturedProgram(
        program=program,
        inputs=[Slot("x", (2, 3), "float32")],
        input_values=inputs,
        outputs=[Slot(f"out{i}", tuple(v.shape), "float32") for i, v in enumerate(outputs)],
        output_values=outputs,
        parameters={},
    )


def test_branch_has_bodies_as_graphs():
    def build(x):
        return [paddle.static.nn.cond(x.sum() > 0, lambda: x * 2.0, lambda: x - 1.0)]

    graph = import_program(_captured(build))
    verify(graph)
    (branch,) = [node for node in graph.nodes if node.op == "if"]
    assert [len(region.nodes) for region in branch.regions] == [1, 1]
    up = paddle.ones([2, 3])
    np.testing.assert_allclose(reference.run(graph, [up])[0].numpy(), 2.0)
    np.testing.assert_allclose(reference.run(graph, [-up])[0].numpy(), -2.0)


def test_loop_has_its_body_as_a_graph():
    def build(x):
        i = paddle.zeros([1], "int64")
        return paddle.static.nn.while_loop(lambda i, y: i < 3, lambda i, y: [i + 1, y + x], [i, x])[
            1:
        ]

    graph = import_program(_captured(build))
    verify(graph)
    assert [node.op for node in graph.nodes if node.regions] == ["while"]
    got = reference.run(graph, [paddle.ones([2, 3])])[0]
    np.testing.assert_allclose(got.numpy(), 4.0)
    assert "def while_0(" in print_graph(graph)


def test_inplace_op_is_seen_by_later_readers():
    def build(x):
        y = paddle.scale(x, 1.0)
        paddle._C_ops.relu_(y)
        return [y + 1.0]

    graph = import_program(_captured(build))
    assert [node.op for node in graph.nodes] == ["scale", "relu", "scale"]
    got = reference.run(graph, [paddle.full([2, 3], -5.0)])[0]
    np.testing.assert_allclose(got.numpy(), 1.0)


def test_missing_parameter_and_wrong_inputs_are_named():
    layer = nn.Linear(6, 3)
    from paddle_fluid_boost.capture.trace import trace

    captured, _ = trace(layer, [X], {})
    captured.parameters.pop(layer.weight.name)
    with pytest.raises(EngineError, match=f"parameter '{layer.weight.name}'"):
        import_program(captured)

    graph = graph_of(layer, [X])
    with pytest.raises(EngineError, match="needs 1 inputs, got 2"):
        reference.run(graph, [X, X])
    with pytest.raises(ValueError, match=r"needs \(2, 4, 6\), got \(4, 6\)"):
        reference.run(graph, [X[0]])
