"""One network in all formats: what ``inspect`` and ``compare`` say, and what a bundle holds."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path

import numpy as np
import paddle
import pytest
from export_nets import SmallNet

import paddle_fluid_boost as pfb
from paddle_fluid_boost import cli
from paddle_fluid_boost.engines.native.engine import NativeEngine
from paddle_fluid_boost.errors import BundleError, ExportError
from paddle_fluid_boost.export.bundle_file import MANIFEST, unpack
from paddle_fluid_boost.export.layers import Layer, part
from paddle_fluid_boost.export.machine import tuning_key

NETS = str(Path(__file__).with_name("export_nets.py"))
needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(n) is None for n in ("paddle2onnx", "onnx", "onnxruntime")),
    reason="needs the extra 'export'",
)
needs_native = pytest.mark.skipif(
    NativeEngine().unavailable() is not None, reason="needs the native engine"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    paddle.seed(3)
    net = SmallNet()
    net.eval()
    out = tmp_path_factory.mktemp("artefacts") / "out"
    paddle.save(net.state_dict(), str(out.parent / "net.pdparams"))
    pfb.export(net, str(out), to="bundle", shapes="x=batch,3,16,16", ranges="batch=1,2")
    return out


@pytest.fixture(scope="module")
def unpacked(folder):
    made = folder.parent / "unpacked"
    unpack(str(folder / "model.pfb"), str(made))
    return made


class NamedAsItsInput(paddle.nn.Layer):
    """Gives back, under the name of its input, something else."""

    def forward(self, image):
        return {"image": image * 2, "image_output": image + 1}


@needs_onnx
@needs_native
def test_an_output_may_have_the_name_of_an_input(tmp_path):
    out = tmp_path / "out"
    pfb.export(NamedAsItsInput(), str(out), to="paddle,onnx,bundle", shapes="image=batch,4")
    x = paddle.rand([2, 4])
    result = pfb.load(str(out / "model.pfb"))(x)
    np.testing.assert_allclose(result["image"].numpy(), 2 * x.numpy(), rtol=1e-6)
    np.testing.assert_allclose(result["image_output"].numpy(), x.numpy() + 1, rtol=1e-6)


def with_manifest(bundle, path, change):
    """A copy of ``bundle`` whose manifest ``change`` has changed."""
    with zipfile.ZipFile(bundle) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(entries[MANIFEST])
    change(manifest)
    entries[MANIFEST] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return str(path)


# -- bundles --------------------------------------------------------------------------------------


def test_a_bundle_says_which_sizes_it_was_made_for(folder, tmp_path):
    """TensorRT asks; a bundle of before has none."""
    with zipfile.ZipFile(folder / "model.pfb") as archive:
        assert json.loads(archive.read(MANIFEST))["ranges"] == {"batch": [1, 2]}
    path = folder / "model.pfb"
    without = with_manifest(path, tmp_path / "old.pfb", lambda manifest: manifest.pop("ranges"))
    pfb.load(without)
    for wrong in (3, {"batch": 3}, {"batch": [0]}, {"batch": ["1"]}):
        harmed = with_manifest(
            path,
            tmp_path / "harmed.pfb",
            lambda manifest, wrong=wrong: manifest.update(ranges=wrong),
        )
        with pytest.raises(BundleError, match="the manifest is damaged"):
            pfb.load(harmed)


@needs_native
def test_a_choice_holds_for_the_machine_it_was_measured_on(folder, tmp_path):
    model = pfb.load(str(folder / "model.pfb"))
    assert all(f"tuned for {tuning_key()}" in note for note in model.notes)

    def foreign(manifest):
        for plan in manifest["plans"]:
            plan["tuned"] = {"Another CPU, 64 threads": {"layout": "any"}}

    other = pfb.load(with_manifest(folder / "model.pfb", tmp_path / "foreign.pfb", foreign))
    assert other.plans == model.plans
    assert all(f"tuned anew for {tuning_key()}" in note for note in other.notes)
    x = paddle.randn([2, 3, 16, 16])
    np.testing.assert_allclose(other(x)["logits"], model(x)["logits"], 1e-5, 1e-5)


@needs_onnx
def test_without_native_engine_the_models_in_the_bundle_serve(folder, monkeypatch):
    x = paddle.randn([2, 3, 16, 16])
    want = pfb.load(str(folder / "model.pfb"))(x)
    monkeypatch.setattr(NativeEngine, "unavailable", lambda self: "not on this machine")
    model = pfb.load(str(folder / "model.pfb"))
    assert model.plans == []
    assert model.notes[0] == "no native plan: not on this machine"
    assert "Paddle Inference" in model.notes[1]
    assert "ONNX Runtime" in model.notes[1]
    for _ in range(2):
        np.testing.assert_allclose(model(x)["logits"], want["logits"], 1e-4, 1e-5)
    model.close()


@needs_native
def test_a_plan_that_is_none_is_refused(folder, tmp_path):
    for number, damage in enumerate(
        (
            lambda m: m["plans"][0].update(tuned=7),
            lambda m: m["plans"][0].update(tuned={tuning_key(): {"layout": "no such"}}),
            lambda m: m["plans"][0].update(graph="paddle/model.json"),
            lambda m: m["plans"][0].update(shapes=[[1, 3, 16, 17]]),
            lambda m: m.update(inputs=[{"name": "x"}]),
        )
    ):
        path = with_manifest(folder / "model.pfb", tmp_path / f"{number}.pfb", damage)
        try:
            model = pfb.load(path)
        except BundleError:
            continue
        assert any("no native plan of" in note for note in model.notes), "a fall-back, and said"


# -- inspect --------------------------------------------------------------------------------------


def test_inspect_tells_what_a_bundle_holds(folder, capsys):
    assert cli.main(["inspect", str(folder / "model.pfb"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "bundle"
    assert found["inputs"] == ["x=batch,3,16,16"]
    assert found["card"]["model"] == "SmallNet"
    assert found["files"].keys() >= {"manifest.json", "paddle/model.json"}


def test_inspect_counts_weights_and_operations():
    found = pfb.inspect(f"{NETS}:SmallNet", shapes="x=batch,3,16,16")
    assert found.kind == "python"
    assert found.ops["conv2d"] == 2
    # Two convolutions with biases, a batch norm with its statistics, a linear layer.
    weights = 3 * 8 * 9 + 8 + 4 * 8 + 8 * 16 * 9 + 16 + 16 * 10 + 10
    assert found.parameters == weights
    assert found.parameter_bytes == 4 * weights
    assert found.flops == 2 * (3 * 8 * 9 * 16 * 16 + 8 * 16 * 9 * 7 * 7 + 16 * 10)
    assert "conv2d x2" in str(found)


@needs_onnx
def test_inspect_reads_onnx(unpacked):
    found = pfb.inspect(str(unpacked / "model.onnx"))
    assert found.inputs == ["x=batch,3,16,16"]
    assert found.ops["Conv"] == 2
    assert found.parameters > 0
    broken = unpacked / "broken.onnx"
    broken.write_bytes((unpacked / "model.onnx").read_bytes()[:100])
    with pytest.raises(ExportError, match="no whole ONNX model"):
        pfb.inspect(str(broken))


def test_what_is_not_there_is_said(capsys):
    assert cli.main(["inspect", "absent.onnx"]) == 2
    assert "no such file: absent.onnx" in capsys.readouterr().err
    assert cli.main(["compare", "absent.pfb", "x.onnx", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["ok"] is False


# -- compare --------------------------------------------------------------------------------------


@needs_onnx
def test_all_artefacts_agree_and_another_network_does_not(folder, unpacked, capsys):
    files = [str(unpacked / "model.json"), str(folder / "model.pfb")]
    onnx = str(unpacked / "model.onnx")
    for one in files:
        found = pfb.compare(one, onnx)
        assert found.ok, found.differ
        assert found.rows
        assert found.b_ms > 0
    weights = str(folder.parent / "net.pdparams")
    assert cli.main(["compare", f"{NETS}:SmallNet", onnx, "--weights", weights]) == 0
    said = capsys.readouterr().out
    assert "they agree" in said
    paddle.seed(4)
    assert cli.main(["compare", f"{NETS}:SmallNet", onnx, "--layers"]) == 1
    said = capsys.readouterr().out
    assert "they part after -, at conv2d" in said
    assert "THEY DIFFER: output 'logits' is wrong" in said


def test_models_with_other_inputs_are_not_compared(folder, unpacked):
    with pytest.raises(ExportError, match="takes x=2,3"):
        pfb.compare(f"{NETS}:square", str(folder / "model.pfb"), shapes="x=2,3")
    with pytest.raises(ExportError, match="--shape x=2,3 does not fit"):
        pfb.compare(f"{NETS}:square", str(unpacked / "model.json"), shapes="x=2,3")


def test_where_two_models_part():
    random = np.random.default_rng(0)
    a, b, c, d = (random.standard_normal((2, 3)).astype("float32") for _ in range(4))
    first = [Layer("conv", a), Layer("norm", b), Layer("relu", c), Layer("out", d)]
    merged = [Layer("Conv", b), Layer("Relu", c + 1e-7), Layer("Out", d + 1)]
    found = part(first, merged, agree=False)
    assert [row[2] < 1e-3 for row in found.rows] == [False, True, True, False]
    assert (found.after, found.parts_at) == ("relu", "out")
    assert part(first, merged, agree=True).parts_at is None


# -- completion -----------------------------------------------------------------------------------


def test_completion(capsys):
    status = cli.main(["completion", "bash"])
    said = capsys.readouterr()
    if importlib.util.find_spec("shtab") is None:
        assert status == 1
        assert "pip install" in said.err
    else:
        assert status == 0
        assert "--keep-going" in said.out
