"""Graph, verifier, printer and pattern matcher on graphs made by hand."""

import numpy as np
import paddle
import pytest

from paddle_fluid_boost.ir.graph import Constant, Graph, Node
from paddle_fluid_boost.ir.pattern import constant, op, optional, value
from paddle_fluid_boost.ir.printer import print_graph
from paddle_fluid_boost.ir.verify import GraphError, verify


def small_graph():
    """relu(x + c) * relu(x + c), the relu computed once."""
    graph = Graph()
    x = graph.add_input("x", [2, 3], "float32")
    c = graph.literal(np.ones([3], "float32"), "one")
    total = graph.add("add", [x, c], shape=[2, 3], dtype="float32")
    y = graph.add("relu", [total], shape=[2, 3], dtype="float32")
    graph.outputs = [graph.add("multiply", [y, y], shape=[2, 3], dtype="float32")]
    return graph


def test_text():
    assert print_graph(small_graph()) == (
        "def graph(x: float32[2, 3]):\n"
        "    one = full(1.0): float32[3]\n"
        "    v0 = add(x, one)  # float32[2, 3]\n"
        "    v1 = relu(v0)  # float32[2, 3]\n"
        "    v2 = multiply(v1, v1)  # float32[2, 3]\n"
        "    return v2\n"
    )


def test_uses_are_counted_per_read():
    graph = small_graph()
    total, y = graph.nodes[0].output, graph.nodes[1].output
    assert graph.use_count(y) == 2 and graph.sole_user(y) is None
    assert graph.sole_user(total) is graph.nodes[1]
    assert graph.use_count(graph.outputs[0]) == 1 and graph.sole_user(graph.outputs[0]) is None


def test_rewriting_keeps_users_right():
    graph = small_graph()
    add, relu, _ = graph.nodes
    new = graph.add("tanh", [add.output], shape=[2, 3], dtype="float32", before=relu)
    graph.replace_all_uses(relu.output, new)
    graph.erase(relu)
    verify(graph)
    assert [node.op for node in graph.nodes] == ["add", "tanh", "multiply"]
    assert graph.use_count(new) == 2


def test_a_used_node_cannot_be_erased():
    graph = small_graph()
    with pytest.raises(ValueError, match="v1 is used"):
        graph.erase(graph.nodes[1])
    with pytest.raises(ValueError, match="v2 is used"):
        graph.erase(graph.nodes[2])


def test_names_are_unique():
    graph = Graph()
    names = [graph.literal(np.zeros(1), "c").name for _ in range(3)]
    names.append(graph.add_input("c_1", [1], "float32").name)
    assert len(set(names)) == 4


def test_constants_are_computed_from_live_tensors():
    graph = Graph()
    tensor = paddle.ones([2])
    leaf = graph.parameter("w", tensor, [2], "float32")
    doubled = graph.derived("w2", [leaf, leaf], lambda a, b: a + b, [2], "float32")
    np.testing.assert_array_equal(doubled.compute(), [2, 2])
    tensor.set_value(np.array([3, 4], "float32"))
    np.testing.assert_array_equal(doubled.compute(), [6, 8])
    assert doubled.sources == (tensor,) or doubled.sources[0] is tensor


def test_a_constant_of_another_shape_than_declared_is_an_error():
    graph = Graph()
    leaf = graph.literal(np.zeros([2]))
    wrong = graph.derived("wrong", [leaf], lambda a: a[:1], [2], "float64")
    with pytest.raises(ValueError, match=r"computed shape \(1,\), declared \(2,\)"):
        wrong.compute()
    with pytest.raises(ValueError, match="give one of"):
        Constant("none", [1], "float32")


def _disorder(graph):
    graph.nodes.reverse()


def _foreign_output(graph):
    graph.outputs = [Graph().new_value([1], "float32")]


def _forgotten_user(graph):
    graph.nodes[0].output.users.clear()


def _twice_made(graph):
    graph.nodes[1].outputs.append(graph.nodes[0].output)


def _bad_post_op(graph):
    graph.nodes[1].attrs["post_ops"] = [("add", 7)]


def _bad_groups(graph):
    graph.nodes[1].input_groups = (("x", None), ("y", None))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_disorder, "before it is made"),
        (_foreign_output, "made by nothing"),
        (_forgotten_user, "users of some value"),
        (_twice_made, "does not know its producer|is made by"),
        (_bad_post_op, "points at no input"),
        (_bad_groups, "groups cover 2 of 1"),
    ],
)
def test_the_verifier_finds_damage(damage, message):
    graph = small_graph()
    verify(graph)
    damage(graph)
    with pytest.raises(GraphError, match=message):
        verify(graph)


def test_pattern_binds_names_and_refuses_different_values_for_one_name():
    graph = small_graph()
    multiply = graph.nodes[2]
    square = op("multiply", value("y"), value("y"))
    match = square.match(multiply)
    assert match is not None and match["y"] is graph.nodes[1].output
    mixed = graph.add("multiply", [graph.inputs[0], multiply.output], shape=[2, 3], dtype="float32")
    assert square.match(mixed.producer) is None


def test_commutative_pattern_meets_both_orders():
    graph = Graph()
    x = graph.add_input("x", [2], "float32")
    c = graph.literal(np.ones([2], "float32"))
    pattern = op("add", value("x"), constant("c"), name="sum", commutative=True)
    for inputs in ([x, c], [c, x]):
        total = graph.add("add", inputs, shape=[2], dtype="float32")
        match = pattern.match(total.producer)
        assert match is not None and match.constant("c") is c and match["x"] is x
        assert match.node("sum") is total.producer
    assert op("add", value("x"), constant("c")).match(graph.nodes[1]) is None


def test_pattern_attributes_and_optional_inputs():
    graph = Graph()
    x = graph.add_input("x", [2], "float32")
    node = Node("norm", [x, None], {"eps": 1e-5}, [graph.new_value([2], "float32")])
    graph.append(node)
    assert op("norm", value("x"), optional("w"), eps=1e-5).match(node) is not None
    assert op("norm", value("x"), value("w")).match(node) is None
    assert op("norm", value("x"), eps=1e-4).match(node) is None
    assert op("norm", value("x"), where=lambda n: len(n.inputs) == 3).match(node) is None


def test_escape_names_the_outside_reader():
    graph = small_graph()
    pattern = op("relu", op("add", value("x"), value("c")))
    relu = graph.nodes[1]
    match = pattern.match(relu)
    assert match.escape(graph) is None
    graph.add("abs", [graph.nodes[0].output], shape=[2, 3], dtype="float32")
    assert match.escape(graph) == "v0 (add) is also read by abs"
