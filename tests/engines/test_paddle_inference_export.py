"""Programs and parameters on disk: complete, exact, and gone afterwards."""

from __future__ import annotations

import os

import numpy as np
import paddle
import paddle_inference_cases as cases
import pytest
from paddle import nn
from paddle.base import core

from paddle_fluid_boost.engines.paddle_inference_export import exported, write_parameters
from paddle_fluid_boost.errors import EngineError


def test_parameter_file_equals_paddles_own(tmp_path):
    tensors = {
        "weight": paddle.randn([300, 7]),
        "a scalar": paddle.to_tensor(2.5),
        "steps": paddle.arange(5),
        "mask": paddle.to_tensor([True, False]),
        "half": paddle.randn([3, 3]).astype("float16"),
        "brain": paddle.randn([3, 3]).astype("bfloat16"),
        "double": paddle.randn([2]).astype("float64"),
        "bytes": paddle.to_tensor([1, 2], dtype="uint8"),
        "seen sideways": paddle.randn([4, 5]).t(),
    }
    with open(tmp_path / "ours", "wb", buffering=0) as file:
        write_parameters(tensors, file)
    names = sorted(tensors)
    dense = [tensors[name].contiguous().get_tensor() for name in names]
    core.save_combine_func(dense, names, str(tmp_path / "theirs"), True, False, False)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize("in_memory", [True, False])
def test_files_are_gone_also_after_a_failure(in_memory, monkeypatch):
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    net, x = nn.Linear(3, 4), paddle.randn([2, 3])
    captured = cases.capture(net, x)
    with pytest.raises(ZeroDivisionError), exported(captured, onednn=True) as model:
        assert os.path.getsize(model.params) > 16 * 4
        assert os.stat(os.path.dirname(model.model)).st_mode & 0o077 == 0
        raise ZeroDivisionError
    assert not os.path.exists(os.path.dirname(model.model))
    assert not os.path.exists(model.params)
    cases.assert_same(cases.ENGINE.build(captured, cases.PLAIN)([x]), cases.eager(net, x))


def test_the_captured_program_stays_as_it_was():
    captured = cases.capture(nn.Linear(3, 4), paddle.randn([2, 3]))
    before = str(captured.program)
    default = paddle.static.default_main_program()
    with exported(captured, onednn=True):
        pass
    assert str(captured.program) == before
    assert paddle.static.default_main_program() is default


def test_equal_outputs_are_fetched_once():
    def call(x):
        y = x * 2
        return y, x, y

    captured = cases.capture(call, paddle.randn([3]))
    with exported(captured, onednn=True) as model:
        assert model.output_order == (0, 1, 0)
        assert model.params == ""


def test_a_parameter_without_tensor_is_an_error():
    captured = cases.capture(nn.Linear(3, 4), paddle.randn([2, 3]))
    captured.parameters.clear()
    with pytest.raises(EngineError, match="has no tensor"), exported(captured, onednn=True):
        pass


def test_parameters_are_read_at_export():
    net = nn.Linear(3, 4)
    x = paddle.randn([2, 3])
    captured = cases.capture(net, x)
    net.weight.set_value(np.ones([3, 4], "float32"))
    executable = cases.ENGINE.build(captured, cases.PLAIN)
    cases.assert_same(executable([x]), cases.eager(net, x))
