"""The rewrites mean what they replace: each rewritten program is run op by op and compared.

That Paddle2ONNX then converts them right is what ``test_export_constructs.py`` shows.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from export_constructs import CONSTRUCTS, REWRITTEN

from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.structure import leaves
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.engines._paddle import clone_with_fetches
from paddle_fluid_boost.errors import ExportError
from paddle_fluid_boost.export.rewrites import rewrite_program
from paddle_fluid_boost.export.saved_model import captured_from
from paddle_fluid_boost.ir.importer import import_program
from paddle_fluid_boost.ir.reference import run


def rewritten(call, inputs):
    """The rewritten program of ``call``, imported, and what was rewritten."""
    STATIC_LOCK.open()
    captured, _ = trace(call, inputs, {}, call_stacks=True)
    names = [f"y{i}" for i in range(len(captured.output_values))]
    with STATIC_LOCK:
        program = clone_with_fetches(captured.program, captured.output_values, names)
        done = rewrite_program(program)
    return import_program(captured_from(program, captured.parameters, "test")), done


@pytest.mark.parametrize("name", sorted(REWRITTEN))
def test_a_rewritten_program_gives_the_same(name):
    call, inputs = CONSTRUCTS[name]()
    with paddle.no_grad():
        want = leaves(call(*inputs))
    graph, done = rewritten(call, inputs)
    assert done, "nothing was rewritten"
    for got, expected in zip(run(graph, inputs), want):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.numpy(), expected.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"), "use size="),
        (lambda x: paddle.nn.SimpleRNN(8, 4)(x[0])[0], "SimpleRNN"),
    ],
)
def test_what_has_no_exact_rewrite_is_refused_with_the_line(call, says):
    with pytest.raises(ExportError, match=says) as refused:
        rewritten(call, [paddle.rand([1, 4, 8, 8])])
    assert "test_export_rewrites.py" in str(refused.value)


def test_readers_of_an_overwritten_tensor_read_the_result():
    def call(x):
        y = x * 1.0
        before = y + 1.0
        y[:, 0] = 7.0
        return before, y, y + 1.0

    x = paddle.to_tensor([[-1.0, 2.0]])
    graph, _ = rewritten(call, [x])
    got = [one.numpy().tolist() for one in run(graph, [x])]
    assert got == [[[0.0, 3.0]], [[7.0, 2.0]], [[8.0, 3.0]]]
