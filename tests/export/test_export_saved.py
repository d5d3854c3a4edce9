"""Models on disk as the source: written by Paddle, and by us."""

from __future__ import annotations

import os

import numpy as np
import paddle
import pytest
from export_nets import SmallNet

import paddle_fluid_boost as pfb
from paddle_fluid_boost.errors import ExportError
from paddle_fluid_boost.export.saved_model import model_files


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a model saved by paddle.jit.save, and the network."""
    paddle.seed(5)
    net = SmallNet()
    net.eval()
    folder = tmp_path_factory.mktemp("saved")
    spec = paddle.static.InputSpec([None, 3, 16, 16], "float32", "image")
    paddle.jit.save(net, str(folder / "net"), input_spec=[spec])
    return folder, net


def test_a_saved_model_becomes_a_bundle_with_the_same_results(saved, tmp_path):
    folder, net = saved
    net.eval()
    report = pfb.export(str(folder), str(tmp_path / "out"), to="bundle")
    assert report.artefacts[0].shapes == ["image=batch,3,16,16"]
    x = paddle.rand([3, 3, 16, 16])
    with paddle.no_grad():
        want = net(x)
    got = pfb.load(str(tmp_path / "out" / "model.pfb"))(x)
    # paddle.jit.save has put the dictionary in the order of its keys.
    for one, other in zip(got, (want["feature"], want["logits"])):
        np.testing.assert_allclose(one.numpy(), other.numpy(), 1e-4, 1e-5)


def test_shapes_must_fit_the_model(saved, tmp_path):
    folder, _ = saved
    for shape, says in (("x=batch,3,16,16", "no input 'x'"), ("image=2,3,16", "does not fit")):
        with pytest.raises(ExportError, match=says):
            pfb.export(str(folder / "net"), str(tmp_path / "out"), shapes=shape)


def test_samples_of_the_users_are_compared_too(saved, tmp_path):
    folder, _ = saved
    samples = tmp_path / "samples"
    samples.mkdir()
    np.savez(samples / "cat.npz", image=np.random.rand(2, 3, 16, 16).astype("float32"))
    report = pfb.export(str(folder), str(tmp_path / "out"), samples=str(samples))
    without = pfb.export(str(folder), str(tmp_path / "out2"))
    assert report.artefacts[0].accuracy.cases == without.artefacts[0].accuracy.cases + 1
    np.savez(samples / "dog.npz", image=np.zeros([2, 3, 8, 16], "float32"))
    with pytest.raises(ExportError, match=r"'image' in dog.npz is float32\[2, 3, 8, 16\]"):
        pfb.export(str(folder), str(tmp_path / "out3"), samples=str(samples))


def test_what_is_no_model_is_said(tmp_path):
    assert model_files("module:attr") is None
    with pytest.raises(ExportError, match="no such file"):
        model_files(str(tmp_path / "absent.json"))
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(ExportError, match="found none"):
        model_files(str(tmp_path))
    (tmp_path / "net.pdmodel").write_text("{}")
    with pytest.raises(ExportError, match="parameters are missing"):
        model_files(str(tmp_path / "net.pdmodel"))
    (tmp_path / "net.pdmodel").unlink()
    (tmp_path / "net.json").write_text("{}")
    assert model_files(str(tmp_path)) == (str(tmp_path / "net.json"), "")
    (tmp_path / "net.pdiparams").write_bytes(b"")
    assert model_files(str(tmp_path)) == tuple(
        os.path.join(str(tmp_path), f"net.{end}") for end in ("json", "pdiparams")
    )


class Masked(paddle.nn.Layer):
    """Two inputs whose lengths must be equal, which a saved model does not say."""

    def forward(self, sequence, mask):
        return (sequence * mask.unsqueeze(-1)).sum(1)


def test_sizes_that_must_be_equal_get_one_name(tmp_path):
    spec = paddle.static.InputSpec
    inputs = [spec([None, None, 4], "float32", "sequence"), spec([None, None], "float32", "mask")]
    paddle.jit.save(Masked(), str(tmp_path / "masked"), input_spec=inputs)
    report = pfb.export(str(tmp_path / "masked"), str(tmp_path / "out"))
    assert report.artefacts[0].shapes == ["sequence=batch,d1,4", "mask=batch,d1"]


def test_damaged_files_are_an_error_of_ours(tmp_path):
    spec = paddle.static.InputSpec([None, 4], "float32", "x")
    for place in ("whole", "json", "params"):
        paddle.jit.save(paddle.nn.Linear(4, 3), str(tmp_path / place), input_spec=[spec])
    (tmp_path / "json.json").write_text("hello")
    params = tmp_path / "params.pdiparams"
    params.write_bytes(params.read_bytes()[:20])
    (tmp_path / "whole.pdiparams").unlink()
    with pytest.raises(ExportError, match="parameters are missing, there is no"):
        pfb.export(str(tmp_path / "whole"), str(tmp_path / "out"))
    for place in ("json", "params"):
        with pytest.raises(ExportError, match=f"cannot read .*{place}.json with .*damaged"):
            pfb.export(str(tmp_path / place), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
