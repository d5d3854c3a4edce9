"""Our passes in Paddle programs: the results stay, and what should go is gone."""

from __future__ import annotations

import collections

import numpy as np
import paddle
import pytest
from export_nets import Branch, SmallNet
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.errors import CaptureRefused
from paddle_fluid_boost.export import baked as baking
from paddle_fluid_boost.export.source import PythonSource
from paddle_fluid_boost.export.spec import parse_signature
from paddle_fluid_boost.ir.importer import import_program
from paddle_fluid_boost.ir.reference import run


def bake(net, shape, example):
    """Op counts before and after, and the largest difference of the results."""
    STATIC_LOCK.open()
    net.eval()
    signature = parse_signature([shape], [])
    source = PythonSource("net", net, signature)
    inputs = [np.random.default_rng(0).standard_normal(example).astype("float32")]
    captured = source.capture(signature, inputs, source.ways(signature)[0])
    program, _ = baking.baked(captured.program, inputs)
    counts = [
        collections.Counter(node.op for node in import_program(one).nodes)
        for one in (captured.program, program)
    ]
    got = run(import_program(program), [paddle.to_tensor(array) for array in inputs])
    error = max(
        float(np.abs(one.numpy() - want).max()) for one, want in zip(got, source.run(inputs))
    )
    return *counts, error


@pytest.mark.parametrize("shape", ["x=2,3,16,16", "x=batch,3,h,w"])
def test_batch_norm_is_folded_at_fixed_and_open_sizes(shape):
    before, after, error = bake(SmallNet(), shape, (2, 3, 16, 16))
    assert before["batch_norm"] == 1
    assert after["batch_norm"] == 0
    assert sum(after.values()) <= sum(before.values())
    assert error < 1e-5


def test_projections_are_merged_and_dropout_goes():
    before, after, error = bake(nn.TransformerEncoderLayer(32, 4, 64), "src=2,8,32", (2, 8, 32))
    assert before["dropout"] > 0
    assert after["dropout"] == 0
    assert after["matmul"] == before["matmul"] - 2
    assert error < 1e-5


def test_a_branch_is_left_as_it_is():
    with pytest.raises(CaptureRefused, match="branches or loops"):
        bake_branch()


def bake_branch():
    STATIC_LOCK.open()
    net = Branch()
    net.eval()
    signature = parse_signature(["x=2,4"], [])
    inputs = [np.ones((2, 4), "float32")]
    captured = PythonSource("net", net, signature).capture(signature, inputs, "ast")
    baking.baked(captured.program, inputs)


def test_a_wrong_pass_does_not_reach_the_file(tmp_path, monkeypatch):
    """What the passes left is verified; where it is wrong the program goes out as it was."""
    real = baking._Rerun.__call__

    def wrong(self, *symbols):
        return [value + 0.1 for value in real(self, *symbols)]

    monkeypatch.setattr(baking._Rerun, "__call__", wrong)
    net = nn.Sequential(nn.Dropout(), nn.Linear(4, 3), nn.Dropout())
    report = pfb.export(net, str(tmp_path / "out"), shapes="x=2,4")
    (made,) = report.artefacts
    assert "our passes are not baked in: output 'output_0' is wrong" in made.notes[0]
    assert made.accuracy.max_rel < 1e-6
