"""Candidates are timed fairly although the worker has a low priority."""

from __future__ import annotations

import time
from types import SimpleNamespace

import paddle
import pytest

from paddle_fluid_boost.engines import select
from paddle_fluid_boost.engines.remembered import Remembered
from paddle_fluid_boost.errors import EngineError


class Sleeper:
    """A run that takes 50 ms of wall time and hardly any processor time."""

    def __call__(self, inputs):
        time.sleep(0.05)
        return []


def test_a_run_that_lost_its_processor_is_timed_by_what_it_computed(monkeypatch):
    preempted = iter(range(100))
    monkeypatch.setattr(select, "_times_preempted", lambda: next(preempted))
    assert select._time(Sleeper(), [], lambda seconds: None) < 0.04


def test_other_runs_are_timed_by_the_clock(monkeypatch):
    monkeypatch.setattr(select, "_times_preempted", lambda: 3)
    assert select._time(Sleeper(), [], lambda seconds: None) >= 0.05


class Engine:
    """Its one executable runs ``lasts`` times, then fails for good."""

    def __init__(self, name, lasts):
        self.name, self.lasts = name, lasts
        self.closed = False

    def unavailable(self):
        return None

    def candidates(self, captured):
        return [{}]

    def build(self, captured, settings):
        return self

    def __call__(self, inputs):
        self.lasts -= 1
        if self.lasts < 0:
            raise EngineError("out of memory")
        return [paddle.ones([1])]

    def close(self):
        self.closed = True


@pytest.fixture
def choose(monkeypatch):
    def call(*engines, pause=lambda seconds: None):
        table = {engine.name: engine for engine in engines}
        monkeypatch.setattr(select, "make_engine", table.__getitem__)
        monkeypatch.setattr(select, "engine_names", lambda _: list(table))
        monkeypatch.setattr(select, "recall", lambda captured: Remembered())
        captured, one = SimpleNamespace(device="cpu"), paddle.ones([1])
        return select.choose(captured, [one], [one], 1e-9, pause)

    return call


@pytest.mark.parametrize("lasts", [1, 2, 3])
def test_a_candidate_that_fails_while_it_is_timed_gives_way_to_the_next(choose, lasts):
    first, second = Engine("first", lasts), Engine("second", 99)
    choice = choose(first, second)
    assert choice.executable is second and first.closed and not second.closed
    assert dict(choice.tried)["first"] == "failed in a later run: out of memory"


def test_what_is_built_is_closed_when_the_worker_must_stop(choose):
    first, second = Engine("first", 99), Engine("second", 99)
    calls = iter(range(8))

    def pause(seconds):
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose(first, second, pause=pause)
    assert first.closed and second.closed
