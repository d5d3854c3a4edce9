"""``pfb.load(path, device="gpu")`` on a played GPU; TensorRT gets the sizes of real calls."""

from __future__ import annotations

import os

import paddle
import pytest
from test_gpu_engine import error, played, small_net  # noqa: F401 - a fixture
from test_tensorrt import export  # noqa: F401 - a fixture

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.dispatch import signature
from paddle_fluid_boost.engines.device_memory import held_bytes
from paddle_fluid_boost.engines.paddle_inference_export import write_model
from paddle_fluid_boost.errors import BundleError, EngineError
from paddle_fluid_boost.export.bundle_file import write_bundle
from paddle_fluid_boost.export.learned import learned_signature
from paddle_fluid_boost.export.on_device import seen_shapes
from paddle_fluid_boost.export.other_runtimes import MODEL, PARAMS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """(path of a bundle, its network), with the sizes that were seen in calls, as an export writes
    it: without its other formats and without the processes that verify them."""
    net = small_net()
    plain = small_net()
    plain.set_state_dict(net.state_dict())
    with paddle.no_grad():
        boosted = pfb.to_static(net)
        for batch in (4, 4, 2, 8, 4):
            boosted(paddle.rand([batch, 6]))
    learned = learned_signature(boosted)
    (one,) = learned.inputs
    folder = tmp_path_factory.mktemp("bundle")
    files = {name: str(folder / os.path.basename(name)) for name in (MODEL, PARAMS)}
    STATIC_LOCK.open()
    with paddle.no_grad():
        example = paddle.rand([4, 6])
        captured, _ = trace(plain, (example,), {}, dynamic_dims={0: [0]}, names=[one.name])
    write_model(captured, files[MODEL], files[PARAMS], ["y"])
    manifest = {
        "card": {},
        "inputs": [{"name": one.name, "dtype": one.dtype, "dims": list(one.dims)}],
        "outputs": ["y"],
        "template": {"tensor": 0},
        "plans": [],
        "example": [[4, 6]],
        "ranges": {name: list(learned.sizes(name)) for name in learned.names},
    }
    write_bundle(str(folder / "model.pfb"), manifest, files)
    return folder / "model.pfb", plain


def test_a_model_runs_on_the_gpu(bundle, played):  # noqa: F811
    path, net = bundle
    model = pfb.load(path, device="gpu:1")
    assert model.plans == [] and model.notes[0] == "runs in paddle_inference on gpu:1"
    for batch in (1, 4, 9):
        x = paddle.rand([batch, 6])
        with paddle.no_grad():
            assert error(model(x), net(x)) < 1e-5
    assert ("enable_use_gpu", 100, 1, paddle.inference.PrecisionType.Float32) in (
        played.configs[0].calls
    )
    played.fault = MemoryError("ResourceExhaustedError: Out of memory error on GPU 1")
    with pytest.raises(EngineError, match="Out of memory"):
        model(x)
    assert held_bytes("gpu:1") == 0
    assert error(model(x), net(x)) < 1e-5
    model.close()
    for _ in range(2):
        with pytest.raises(EngineError, match=r"called after close\(\)"):
            model(x)
    assert held_bytes("gpu:1") == 0


def test_tensorrt_gets_the_sizes_of_the_calls_that_were_seen(bundle, export):  # noqa: F811
    path, net = bundle
    model = pfb.load(path, device="gpu", tensorrt=True)
    (config,) = export.configs
    (given,) = [one.given for one in config.inputs]
    assert given[1:] == ("float32", (2, 6), (4, 6), (8, 6))  # smallest, most frequent, largest
    assert model.notes[0] == "runs in tensorrt on gpu:0"
    x = paddle.rand([3, 6])
    with paddle.no_grad():
        assert error(model(x), net(x)) < 1e-5
    model.close()
    pfb.load(path, device="gpu", tensorrt=True).close()
    assert len(export.configs) == 1  # the second time from the disk


def test_what_cannot_be_done_is_said(bundle, played, tmp_path):  # noqa: F811
    path, _ = bundle
    with pytest.raises(ValueError, match=r"tensorrt needs device='gpu', got 'cpu'"):
        pfb.load(path, tensorrt=True)
    with pytest.raises(ValueError, match="is no device"):
        pfb.load(path, device="gpu:x")
    with pytest.raises(EngineError, match=r"'gpu:5': there is no such device; Paddle has: gpu:0"):
        pfb.load(path, device="gpu:5")
    with pytest.raises(EngineError, match="no engine serves device 'xpu:0'"):
        pfb.load(path, device="xpu")
    with pytest.raises(EngineError, match="this build of Paddle has no TensorRT"):
        pfb.load(path, device="gpu", tensorrt=True)
    with pytest.raises(BundleError):
        pfb.load(tmp_path / "missing.pfb", device="gpu")


def test_shapes_that_show_every_size():
    inputs = [{"name": "x", "dims": ["batch", 3, "side"]}, {"name": "n", "dims": ["batch"]}]
    assert seen_shapes(inputs, {"batch": [2, 1, 8], "side": [64]}) == [
        ((2, 3, 64), (2,)),
        ((1, 3, 64), (1,)),
        ((8, 3, 64), (8,)),
    ]
    assert seen_shapes([{"name": "x", "dims": [5]}], {}) == [((5,),)]
    with pytest.raises(EngineError, match="does not say which sizes 'batch' may have"):
        seen_shapes(inputs, {"side": [64]})


def test_sizes_are_learned_where_tensors_may_be_in_several_places(monkeypatch):
    monkeypatch.setattr(signature, "MANY_PLACES", True)
    net = small_net()
    with paddle.no_grad():
        boosted = pfb.to_static(net)
        for batch in (4, 4, 2):
            boosted(paddle.rand([batch, 6]))
    learned = learned_signature(boosted)
    assert learned is not None and list(learned.ranges.values()) == [[4, 2]]
    one, _ = signature.key_of((paddle.rand([2]),), {})
    paddle.set_device(paddle.device.get_device())  # another object for the same place
    assert signature.key_of((paddle.rand([2]),), {})[0] == one
