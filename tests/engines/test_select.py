"""Candidates are timed fairly although the worker has a low priority."""

from __future__ import annotations

import time

from paddle_fluid_boost.engines import select


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
