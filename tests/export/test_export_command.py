"""The command line, as a person meets it; one whole export to ``paddle`` and to a bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

import paddle_fluid_boost as pfb
from paddle_fluid_boost import cli
from paddle_fluid_boost.errors import BundleError, ExportError

ROOT = Path(__file__).resolve().parents[2]
NETS = str(Path(__file__).with_name("export_nets.py"))


def export(*arguments):
    return cli.main(["export", *map(str, arguments)])


def test_a_class_becomes_a_paddle_model(tmp_path, capsys):
    out = tmp_path / "out"
    status = export(
        f"{NETS}:SmallNet", "--args", '{"classes": 5}', "--shape", "x=batch,3,16,16",
        "--out", out, "--json", "--quiet",
    )  # fmt: skip
    report = json.loads(capsys.readouterr().out)
    assert status == 0
    assert report["ok"]
    (made,) = report["artefacts"]
    assert made["outputs"] == ["logits", "feature"]
    assert made["shapes"] == ["x=batch,3,16,16"]
    assert made["accuracy"]["cases"] >= 4
    assert sorted(os.listdir(out)) == ["export.json", "model.json", "model.pdiparams"]
    assert str(ROOT) not in (out / "model.json").read_text()


def test_a_bundle_gives_the_models_results_at_every_size(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(NETS).parent))
    from export_nets import SmallNet

    paddle.seed(1)
    net = SmallNet()
    net.train()
    out = tmp_path / "out"
    report = pfb.export(
        net, str(out), to="bundle", shapes="x=batch,3,h,w", ranges=["h=16..24", "w=16..24"]
    )
    assert report.ok
    assert net.training, "the caller's network is in its mode again"
    model = pfb.load(str(out / "model.pfb"))
    net.eval()
    for shape in ([1, 3, 16, 16], [2, 3, 18, 17]):
        x = paddle.randn(shape)
        with paddle.no_grad():
            want = net(x)
        got = model(x)
        assert list(got) == list(want)
        for name in want:
            np.testing.assert_allclose(got[name].numpy(), want[name].numpy(), 1e-4, 1e-5)
            assert got[name].stop_gradient
    assert model(x=x.numpy()).keys() == want.keys()
    with pytest.raises(BundleError, match="'x' must be float32"):
        model(paddle.randn([1, 4, 16, 16]))
    with pytest.raises(BundleError, match="'x' is missing"):
        model()
    model.close()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["nowhere.py:Net", "--shape", "x=1"], 2, "no such file"),
        (["no_such_module:Net", "--shape", "x=1"], 1, "cannot import"),
        ([f"{NETS}:Smallnet", "--shape", "x=1"], 1, "SmallNet"),
        ([f"{NETS}:SmallNet"], 2, "--shape is missing"),
        ([f"{NETS}:SmallNet", "--shape", "image=1,3,16,16", "--shape", "y=1"], 1, "takes (x)"),
        ([f"{NETS}:SmallNet", "--shape", "x=1,3,16,16", "--to", "tflite"], 2, "paddle, onnx"),
        ([f"{NETS}:SmallNet", "--shape", "x=1,4,16,16"], 1, "the model itself fails on x="),
        ([f"{NETS}:SmallNet", "--shape", "x=1,3,16,16", "--args", "5"], 2, "--args"),
        ([f"{NETS}:SmallNet", "--shape", "x=1,3,16,16", "--args", '{"k": 1}'], 1, "'k'"),
        ([f"{NETS}:Broken", "--shape", "x=1"], 1, "raised RuntimeError: no configuration ("),
        ([f"{NETS}:square", "--shape", "x:bfloat16=1"], 1, "cannot be bfloat16"),
        ([f"{NETS}:SmallNet", "--shape", "x:bool=1,3,16,16"], 1, "or its dtype"),
        (["SYNTAX:Net", "--shape", "x=1"], 1, "SyntaxError"),
        ([f"{NETS}:SmallNet", "--shape", "x=1,3,16,16", "--rtol", "-1"], 2, "positive"),
        ([f"{NETS}:Random", "--shape", "x=2,3"], 1, "random numbers"),
        ([f"{NETS}:SmallNet", "--shape", "x=1,3,16,16", "--samples", "nowhere"], 1, "--samples"),
        ([f"{NETS}:SmallNet", "--shape", "x=1,3,16,16", "--weights", "no.pdparams"], 1, "--weigh"),
    ],
)
def test_errors_say_what_to_change_and_leave_nothing(tmp_path, capsys, arguments, status, says):
    if arguments[0] == "SYNTAX:Net":
        (tmp_path / "bad.py").write_text("def f(:")
        arguments = [f"{tmp_path / 'bad.py'}:Net", *arguments[1:]]
    out = tmp_path / "place" / "out"
    assert export(*arguments, "--out", out, "--quiet") == status
    said = capsys.readouterr().err
    assert says in said
    assert "nothing was written" in said
    assert not out.parent.exists()


def test_weights_that_do_not_fit_are_refused(tmp_path, capsys):
    paddle.save({"head.weight": paddle.zeros([16, 10])}, str(tmp_path / "w.pdparams"))
    arguments = [f"{NETS}:SmallNet", "--shape", "x=1,3,16,16", "--out", tmp_path / "out"]
    assert export(*arguments, "--weights", tmp_path / "w.pdparams", "--quiet") == 1
    assert "missing" in capsys.readouterr().err


def test_a_result_that_differs_fails_the_export(tmp_path, monkeypatch):
    from paddle_fluid_boost.export import paddle_target

    real = paddle_target.run_in_child

    def shifted(*arguments, **options):
        result = real(*arguments, **options)
        result.outputs[-1][0] = result.outputs[-1][0] + 0.01
        return result

    monkeypatch.setattr(paddle_target, "run_in_child", shifted)
    with pytest.raises(ExportError, match="output 'output_0' is wrong for"):
        pfb.export(f"{NETS}:square", str(tmp_path / "out"), shapes="x=2,3")
    assert os.listdir(tmp_path) == []


def test_branches_on_values_are_exported(tmp_path):
    report = pfb.export(f"{NETS}:make_branch", str(tmp_path / "out"), shapes="x=batch,4")
    assert report.artefacts[0].shapes == ["x=batch,4"]
    assert report.artefacts[0].notes == ["our passes are not baked in: it has branches or loops"]


def test_chinese_by_locale(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert export("nowhere.py:Net", "--shape", "x=1", "--out", tmp_path / "out", "--quiet") == 2
    assert "错误: model: no such file" in capsys.readouterr().err


def test_doctor_lists_the_targets(capsys):
    cli.main(["doctor"])
    said = capsys.readouterr().out
    assert "Export targets" in said
    assert "\n  bundle            available" in said


def test_help_has_examples():
    done = subprocess.run(
        [sys.executable, "-m", "paddle_fluid_boost", "export", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "examples:" in done.stdout
    assert "exit status:" in done.stdout
