"""Versions that serve much are tuned in the background, and the faster one in use stays."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost.dispatch import tuning
from paddle_fluid_boost.engines.select import Choice
from paddle_fluid_boost.errors import CaptureRefused
from paddle_fluid_boost.options import override

#: Any version that has served at all is worth tuning then.
AT_ONCE = {"tune_seconds": 1e-9, "min_gain": 0.0, "hot_calls": 1}


@pytest.fixture
def compiled():
    """A small net, compiled, and its input; afterwards the plugin is out again."""
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    net.eval()
    fast = pfb.to_static(net)
    x = paddle.rand([2, 16])
    with override(**AT_ONCE), paddle.no_grad():
        pfb.warmup(fast, [x])
        yield fast, x
        pfb.wait()


def _call_until(net, x, word):
    """Calls until an event of the net has ``word`` in it; the results of all calls."""
    results = []
    for _ in range(40):
        results += [net(x).numpy() for _ in range(32)]
        pfb.wait()
        if any(word in event.what for event in pfb.explain(net).events):
            return results
    raise AssertionError(f"no event says {word!r}: {pfb.explain(net)}")


def test_a_version_in_use_is_tuned(compiled):
    net, x = compiled
    want = net(x).numpy()
    for got in _call_until(net, x, "tuned: "):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(net(x).numpy(), want, rtol=1e-4, atol=1e-6)


def test_where_the_tuner_finds_nothing_the_version_goes_on(compiled, monkeypatch):
    net, x = compiled

    def refuse(*args, **kwargs):
        raise CaptureRefused("nothing to be had")

    monkeypatch.setattr(tuning, "tune", refuse)
    want = net(x).numpy()
    for got in _call_until(net, x, "not tuned: nothing to be had"):
        np.testing.assert_array_equal(got, want)


def test_a_fault_of_the_tuner_costs_no_call(compiled, monkeypatch):
    net, x = compiled
    monkeypatch.setattr(tuning, "tune", lambda *args, **kwargs: 1 / 0)
    _call_until(net, x, "not tuned: ZeroDivisionError")
    assert pfb.explain(net).signatures


class _Version:
    def __init__(self, median=0.0, served=0.0):
        self.stats = SimpleNamespace(
            compiled_median=lambda: median, compiled_seconds=lambda: served
        )
        self.executable = SimpleNamespace(engine="an engine")
        self.before, self.tuned, self.closed = None, False, False

    def close(self):
        self.closed = True


class _Unit:
    def __init__(self):
        self.replaced = []

    def replace(self, old, new, choice, reason):
        assert isinstance(choice, Choice)
        self.replaced.append((old, new, reason))
        return True


def test_the_tuned_version_stays_where_it_is_faster_in_use():
    unit, old, new = _Unit(), _Version(), _Version(median=0.8)
    new.before = (old, 1.0)
    tuning.confirm(unit, new)
    assert old.closed and not new.closed and not unit.replaced
    assert new.before is None


def test_the_old_version_comes_back_where_it_was_faster():
    unit, old, new = _Unit(), _Version(), _Version(median=2.0)
    new.before = (old, 1.0)
    tuning.confirm(unit, new)
    assert new.closed and not old.closed
    assert unit.replaced == [(new, old, "an engine again: 1e+03 ms in use, the tuner's 2e+03 ms")]


def test_only_what_has_served_is_worth_it():
    with override(tune_seconds=2.0):
        assert not tuning.worth_tuning(_Version(served=19.0))
        assert tuning.worth_tuning(_Version(served=21.0))
        looked_at = _Version(served=100.0)
        looked_at.tuned = True
        assert not tuning.worth_tuning(looked_at)
    with override(tune_seconds=0.0):
        assert not tuning.worth_tuning(_Version(served=100.0))
    with override(tune_seconds=2.0, sync=True):
        assert not tuning.worth_tuning(_Version(served=100.0))
