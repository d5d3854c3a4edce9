"""One unit at a time: when it compiles, what bounds it, and how it gets out of the way."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import paddle
import pytest

import paddle_fluid_boost as pfb
from paddle_fluid_boost.dispatch import layer_call
from paddle_fluid_boost.dispatch import unit as unit_module
from paddle_fluid_boost.dispatch.explanations import find_unit
from paddle_fluid_boost.engines.native import NativeEngine
from paddle_fluid_boost.errors import EngineError

nn = paddle.nn
NATIVE = NativeEngine().unavailable() is None


@pytest.fixture(autouse=True)
def forced() -> Iterator[None]:
    """Everything that can be compiled is, at once, in this thread."""
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        yield
    pfb.uninstall()


def small_net() -> nn.Layer:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    net.eval()
    return net


def warm(function, *args, times: int = 5):
    for _ in range(times):
        result = function(*args)
    return result


def test_hot_call_is_compiled_and_right() -> None:
    net, twin = small_net(), small_net()
    twin.set_state_dict(net.state_dict())
    boosted = pfb.to_static(net)
    x = paddle.randn([3, 8])
    result = warm(boosted, x)
    report = pfb.explain(boosted)
    assert report.state == "compiled"
    assert report.signatures[0].engine
    assert find_unit(boosted).stats.totals().compiled_calls >= 2
    assert float((result - twin(x)).abs().max()) < 1e-5


def test_versions_are_bounded_per_function() -> None:
    boosted = pfb.to_static(small_net())
    with pfb.override(max_versions=2):
        for batch in range(1, 6):
            warm(boosted, paddle.randn([batch, 8]))
    unit = find_unit(boosted)
    assert len(unit.cache) == 2
    assert any("evicted" in event.what for event in unit.journal.events)
    x = paddle.randn([1, 8])  # evicted, and still right
    assert float((boosted(x) - unit.cold(x)).abs().max()) < 1e-5


def test_versions_are_bounded_for_the_process() -> None:
    nets = [pfb.to_static(small_net()) for _ in range(4)]
    with pfb.override(max_total_versions=3):
        for net in nets:
            warm(net, paddle.randn([2, 8]))
        assert pfb.stats()["versions"] <= 3
    assert len(find_unit(nets[-1]).cache) == 1, "the newest one must not be the victim"


@pytest.mark.skipif(not NATIVE, reason="no native engine")
def test_memory_of_versions_is_bounded_for_the_process() -> None:
    nets = []
    for _ in range(3):
        net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))
        net.eval()
        nets.append(pfb.to_static(net))
    # One engine: how much a version holds depends on it, and on a busy machine another may win.
    with pfb.override(max_version_mb=1, engines="native"):
        for net in nets:
            warm(net, paddle.randn([2, 8]))
    held = [len(find_unit(net).cache) for net in nets]
    assert held == [0, 0, 1], "only the newest, though it alone holds more"


def test_slower_version_is_not_used() -> None:
    with pfb.override(min_gain=1e9):
        boosted = pfb.to_static(small_net())
        warm(boosted, paddle.randn([2, 8]))
    report = pfb.explain(boosted)
    assert report.state == "dynamic"
    assert "not faster" in report.refusals[0].reason


def test_engine_that_fails_in_use_costs_no_call() -> None:
    boosted = pfb.to_static(small_net())
    x = paddle.randn([2, 8])
    want = warm(boosted, x)
    unit = find_unit(boosted)
    (version,) = unit.cache.all()

    class Broken:
        engine, notes, nbytes = "broken", [], 0

        def __call__(self, inputs):
            raise EngineError("out of luck")

        def close(self):
            pass

    version.executable.close()
    version.executable = Broken()
    assert float((boosted(x) - want).abs().max()) < 1e-6
    assert len(unit.cache) == 0
    assert any("out of luck" in reason for reason in unit.journal.refusals)


def test_refused_function_is_passed_through_and_looked_at_again(monkeypatch) -> None:
    monkeypatch.setattr(unit_module, "_FIRST_LOOK_AGAIN", 5)
    calls = []

    def impure(x):
        if loud:
            print("effect")
        calls.append(None)
        return x * 2

    loud = True
    boosted = pfb.to_static(impure)
    warm(boosted, paddle.ones([2]), times=3)
    unit = find_unit(boosted)
    assert unit.skip > 0
    assert any("print" in reason for reason in unit.journal.refusals)
    before = unit.stats.lookups
    boosted(paddle.ones([2]))
    assert unit.stats.lookups == before, "a refused function is not even counted"
    warm(boosted, paddle.ones([2]), times=20)
    assert unit.stats.lookups > before, "and still looked at again later"
    assert len(calls) == 24


def test_every_effect_happens_once_per_call() -> None:
    seen = []

    def function(x):
        seen.append(x.shape[0])
        return x + 1

    boosted = pfb.to_static(function)
    warm(boosted, paddle.ones([3]), times=12)
    assert seen == [3] * 12
    assert pfb.explain(boosted).state != "compiled"


def test_another_profiler_is_left_alone() -> None:
    boosted = pfb.to_static(small_net())

    def profiler(frame: object, event: str, argument: object) -> None:
        """Of the kind that ``cProfile`` is too, up to Python 3.11."""

    sys.setprofile(profiler)
    try:
        warm(boosted, paddle.randn([2, 8]))
        assert pfb.explain(boosted).state != "compiled"
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    warm(boosted, paddle.randn([2, 8]))
    assert pfb.explain(boosted).state == "compiled"


def test_auto_cast_stays_eager(monkeypatch) -> None:
    """``paddle.amp.auto_cast`` does nothing on a CPU, so what "off" looks like is changed."""
    boosted = pfb.to_static(small_net())
    x = paddle.randn([2, 8])
    warm(boosted, x)
    unit = find_unit(boosted)
    compiled = unit.stats.totals().compiled_calls
    monkeypatch.setattr(unit_module, "_NO_AMP", "off")
    boosted(x)
    assert unit.stats.totals().compiled_calls == compiled
    assert any("auto_cast" in reason for reason in unit.journal.refusals)


@pytest.mark.parametrize("engine", ["native", "paddle_inference"])
def test_strided_inputs_are_read_as_they_are(engine: str) -> None:
    """Engines read memory as if it were contiguous; the tensor handed back is the user's own."""

    def function(x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        return x, x * 2.0 + 1.0

    base = paddle.arange(48, dtype="float32").reshape([6, 8])
    with pfb.override(engines=engine):
        for x in (base[:, :4], base[::2, 1:5], base.t(), base[:1, 2:3].t()):
            boosted = pfb.to_static(function)
            for _ in range(5):
                same, doubled = boosted(x)
                assert same is x
                assert not x.is_contiguous()
                assert (doubled == function(x)[1]).all()
            if engine == "native" and NATIVE:
                assert pfb.explain(boosted).state == "compiled"


def test_a_strided_input_stays_a_view_of_its_base() -> None:
    boosted = pfb.to_static(lambda x: x * 2.0)
    for engine in ("native", "paddle_inference"):
        base = paddle.zeros([6, 8])
        view = base[:, :4]
        with pfb.override(engines=engine):
            warm(boosted, view)
        base.fill_(1.0)
        assert (view == 1.0).all()


def test_a_wrong_call_raises_as_in_eager_mode_and_costs_no_version(caplog) -> None:
    def function(x: paddle.Tensor, index: paddle.Tensor) -> paddle.Tensor:
        return paddle.gather(x, index) * 2.0

    boosted, x = pfb.to_static(function), paddle.randn([2, 4])
    warm(boosted, x, paddle.to_tensor([0, 1]))
    with pytest.raises(IndexError, match="received index element which is 7"):
        boosted(x, paddle.to_tensor([0, 7]))
    assert pfb.explain(boosted).state == "compiled"
    assert not caplog.records


def test_report_is_json_and_reads_well() -> None:
    boosted = pfb.to_static(small_net())
    warm(boosted, paddle.randn([2, 8]))
    report = pfb.explain(boosted)
    told = json.loads(json.dumps(report.to_dict()))
    assert set(told) == {
        "name", "state", "calls", "signatures", "refusals", "events", "parts",
    }  # fmt: skip
    assert "float32[2,8]" in str(report)
    assert "compiled" in str(report)
    json.dumps(pfb.stats())


def test_layers_inside_a_watched_layer_are_not_watched_too() -> None:
    """The compile runs the layer in another thread, where nothing else says that it is inside."""
    pfb.install(auto=True)
    net, x = small_net(), paddle.randn([2, 8])
    with pfb.override(sync=False):
        net(x)
        net(x)
        assert pfb.wait(60)
    assert pfb.explain(net).state == "compiled"
    assert [layer_call.unit_of(part) for part in net] == [None, None, None]
