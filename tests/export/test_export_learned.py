"""A layer that ran under the plugin is exported without being told its shapes."""

from __future__ import annotations

import paddle
from export_nets import SmallNet

import paddle_fluid_boost as pfb
from paddle_fluid_boost.export.learned import learned_signature


def test_what_differed_between_calls_stays_open():
    net = SmallNet()
    net.eval()
    assert learned_signature(net) is None
    boosted = pfb.to_static(net)
    with paddle.no_grad():
        for _ in range(3):
            boosted(paddle.rand([4, 3, 16, 16]))
        boosted(paddle.rand([2, 3, 16, 24]))
        boosted(x=paddle.rand([2, 3, 16, 16]))
    signature = learned_signature(boosted)
    assert str(signature.inputs[0]) == "x=batch,3,16,x_d3"
    assert list(signature.sizes("batch")) == [4, 2]
    assert list(signature.sizes("x_d3")) == [16, 24]


def test_it_is_exported_as_it_was_called(tmp_path):
    net = SmallNet()
    net.eval()
    boosted = pfb.to_static(net)
    with paddle.no_grad():
        for size in (16, 20):
            boosted(paddle.rand([2, 3, size, 16]))
    report = pfb.export(boosted, str(tmp_path / "out"))
    assert report.artefacts[0].shapes == ["x=2,3,x_d2,16"]
