"""Every construct through Paddle2ONNX and ONNX Runtime, with the expected outcome written down."""

from __future__ import annotations

import importlib.util

import paddle
import pytest
from export_constructs import AS_THEY_ARE, CONSTRUCTS, REWRITTEN
from export_nets import FixedPool, SmallNet, Unknown

import paddle_fluid_boost as pfb
from paddle_fluid_boost.errors import ExportError

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(n) is None for n in ("paddle2onnx", "onnx", "onnxruntime")),
    reason="needs the extra 'export'",
)


def shapes_of(inputs):
    return [f"in{i}={','.join(map(str, x.shape))}" for i, x in enumerate(inputs)]


def as_positional(call):
    return call if isinstance(call, paddle.nn.Layer) else lambda *inputs: call(*inputs)


@needs_onnx
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(CONSTRUCTS))
def test_onnx_of_a_construct_is_right(tmp_path, name):
    call, inputs = CONSTRUCTS[name]()
    report = pfb.export(
        as_positional(call), str(tmp_path / "out"), to="onnx", shapes=shapes_of(inputs)
    )
    rewritten = any(note.startswith("rewritten") for note in report.artefacts[0].notes)
    assert rewritten == (name in REWRITTEN)
    assert (name in AS_THEY_ARE) != (name in REWRITTEN)


@needs_onnx
def test_open_sizes_and_leaky_relu(tmp_path):
    import onnx

    report = pfb.export(
        SmallNet(), str(tmp_path / "out"), to="onnx", shapes="x=batch,3,h,w",
        ranges=["h=16..24", "w=16..24"],
    )  # fmt: skip
    (made,) = report.artefacts
    assert made.shapes == ["x=batch,3,h,w"]
    model = onnx.load(str(tmp_path / "out" / "model.onnx"))
    dims = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["batch", 3, "h", "w"]
    assert [one.name for one in model.graph.output] == ["logits", "feature"]
    (leaky,) = [node for node in model.graph.node if node.op_type == "LeakyRelu"]
    assert leaky.attribute[0].f == pytest.approx(0.1)


@needs_onnx
def test_what_must_be_fixed_is_fixed_and_said(tmp_path):
    arguments = {"to": "onnx", "shapes": "x=batch,3,h,w", "ranges": ["h=16..24", "w=16..24"]}
    report = pfb.export(FixedPool(), str(tmp_path / "out"), **arguments)
    (made,) = report.artefacts
    assert made.shapes == ["x=batch,3,16,16"]
    assert "h, w had to be fixed" in made.notes[0]
    assert "--shape x=batch,3,16,16" in made.notes[0]
    assert "export_nets.py" in made.notes[0], "the user's line is named"
    with pytest.raises(ExportError, match="had to be fixed"):
        pfb.export(FixedPool(), str(tmp_path / "strict"), strict=True, **arguments)
    assert not (tmp_path / "strict").exists()


@needs_onnx
def test_an_unknown_op_is_named_with_the_line(tmp_path):
    with pytest.raises(ExportError, match=r"does not know kron \(.*export_nets.py:\d+: return"):
        pfb.export(Unknown(), str(tmp_path / "out"), to="onnx", shapes="x=2,3")


def test_paddle_lite_is_refused_in_words(tmp_path):
    with pytest.raises(ExportError, match="Use --to mobile"):
        pfb.export(SmallNet(), str(tmp_path / "out"), to="paddlelite", shapes="x=1,3,16,16")


@needs_onnx
@pytest.mark.parametrize("target", ["mobile", "mnn", "ncnn"])
def test_mobile_formats_run_in_their_own_runtimes(tmp_path, target):
    from paddle_fluid_boost.export.targets import by_name

    if by_name(target).missing():
        with pytest.raises(ExportError, match=r"needs .*pip install"):
            pfb.export(SmallNet(), str(tmp_path / "out"), to=target, shapes="x=1,3,16,16")
        return
    report = pfb.export(SmallNet(), str(tmp_path / "out"), to=target, shapes="x=1,3,16,16")
    (made,) = report.artefacts
    assert made.accuracy.cases >= 2
    assert made.accuracy.max_rel < 1e-4
    assert all((tmp_path / "out" / name).stat().st_size == n for name, n in made.files.items())
