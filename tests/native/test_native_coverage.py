"""What explain says of the ops of a compiled version, and how operations are counted."""

from __future__ import annotations

import paddle
import pytest
from native_models import build

import paddle_fluid_boost as pfb
from paddle_fluid_boost.engines.native.coverage import op_shares
from paddle_fluid_boost.ir.flops import flops
from paddle_fluid_boost.ir.graph import Node, Value
from paddle_fluid_boost.options import override


def _node(op, shapes, out, **attrs):
    inputs = [Value(f"v{i}", shape, "float32") for i, shape in enumerate(shapes)]
    return Node(op, inputs, attrs, [Value("y", out, "float32")])


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (_node("linear", [(4, 8), (8, 16)], (4, 16)), 2 * 4 * 8 * 16),
        (_node("fused_matmul", [(3, 4, 8), (3, 8, 5)], (3, 4, 5)), 2 * 3 * 4 * 8 * 5),
        (
            _node("fused_matmul", [(8, 4), (8, 5)], (4, 5), transpose_x=True),
            2 * 4 * 8 * 5,
        ),
        (_node("fused_conv2d", [(1, 8, 9, 9), (6, 4, 3, 3)], (1, 6, 9, 9)), 2 * 486 * 36),
        (
            _node("fused_conv2d_transpose", [(1, 8, 5, 5), (8, 6, 2, 2)], (1, 6, 10, 10)),
            2 * 200 * 24,
        ),
        (
            _node("attention", [(2, 7, 3, 4), (2, 9, 3, 4), (2, 9, 3, 4)], (2, 7, 3, 4),
                  layout="BSHD"),
            2 * 2 * (2 * 3 * 7 * 9 * 4),
        ),
        (
            _node("recurrent", [(5, 2, 6), (1, 6, 4, 8), (1, 8, 4, 8)], (5, 2, 8)),
            2 * 5 * 2 * 4 * 8 * (6 + 8),
        ),
        (_node("softmax", [(4, 8)], (4, 8)), 0),
    ],
)  # fmt: skip
def test_flops(node, expected):
    assert flops(node) == expected


def test_shares_add_up_and_keep_paddles_kernels_apart():
    profile = [("linear", "brg", 30.0), ("sort", "host", 10.0), ("linear", "brg", 60.0)]
    shares = op_shares(profile, {"linear": 9000})
    assert [(s.op, s.native, s.steps) for s in shares] == [("linear", True, 2), ("sort", False, 1)]
    assert [s.share for s in shares] == [0.9, 0.1]
    assert shares[0].gflops == pytest.approx(0.1)


def test_executable_tells_native_from_host():
    layer = paddle.nn.Linear(8, 8)

    def call(x):
        return paddle.cummax(layer(x), axis=1)[0]  # which has no rule

    shares = {s.op: s for s in build(call, [paddle.randn([4, 8])]).coverage()}
    assert shares["linear"].native
    assert not shares["cummax"].native
    assert sum(s.share for s in shares.values()) == pytest.approx(1.0)


def test_explain_with_coverage():
    layer = paddle.nn.Sequential(paddle.nn.Linear(16, 64), paddle.nn.ReLU())
    layer.eval()
    fast = pfb.to_static(layer)
    with override(min_gain=0, engines="native"), paddle.no_grad():
        pfb.warmup(fast, [paddle.randn([2, 16])])
    assert not pfb.explain(fast).signatures[0].coverage
    report = pfb.explain(fast, coverage=True)
    assert report.signatures[0].coverage[0].op == "linear"
    assert "100.0% of the time is native" in str(report)
    assert report.to_dict()["signatures"][0]["coverage"][0]["native"] is True
