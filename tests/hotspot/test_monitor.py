"""Counters, medians, bounded memory, totals."""

from __future__ import annotations

import gc
import random
import statistics
import sys
import threading
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_fluid_boost.hotspot.monitor import FunctionStats
from paddle_fluid_boost.hotspot.signature_stats import (
    COLD,
    COMPILED,
    COMPILING,
    NEVER,
    QUEUED,
    REJECTED,
    SAMPLE,
    STATES,
    TIMED_FIRST,
    SignatureStats,
)
from paddle_fluid_boost.hotspot.totals import process_totals
from paddle_fluid_boost.options import override

times = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=50)


def _function(name="f"):
    return FunctionStats(name)


@given(times)
def test_median_is_that_of_the_last_calls(seconds):
    stats = SignatureStats("k")
    for value in seconds:
        stats.record_eager(value, now=0.0)
        assert stats.sample_due() or stats.compiled_calls > TIMED_FIRST
        stats.record_compiled(value / 2, now=0.0)
    assert stats.eager_median() == statistics.median_low(seconds[-SAMPLE:])
    assert stats.compiled_median() == statistics.median_low(seconds[-SAMPLE:]) / 2
    assert stats.eager_seconds == pytest.approx(sum(seconds))
    assert stats.calls == 2 * len(seconds)


def test_no_calls_no_figures():
    stats = SignatureStats("k")
    assert stats.eager_median() == stats.compiled_median() == stats.saved_seconds() == 0.0


def test_one_slow_first_call_does_not_set_the_median():
    stats = SignatureStats("k")
    stats.record_eager(5.0)
    stats.record_eager(0.1)
    assert stats.eager_median() == 0.1


def test_asks_at_next_check_only():
    stats = SignatureStats("k")
    assert stats.record_eager(0.1)
    stats.next_check = 4
    assert [stats.record_eager(0.1) for _ in range(4)] == [False, False, True, True]
    stats.next_check = NEVER
    assert not any(stats.record_eager(0.1) for _ in range(100))


def test_times_of_first_and_last_call():
    stats = SignatureStats("k")
    stats.record_eager(0.5, now=10.0)
    stats.record_eager(0.5, now=12.0)
    assert (stats.first_call, stats.last_call) == (9.5, 12.0)
    stats.record_compiled(0.1, now=13.0)
    assert stats.last_call == 13.0


def test_compiled_calls_are_all_counted_and_few_are_timed():
    stats = SignatureStats("k")
    due = [stats.sample_due() for _ in range(10 * TIMED_FIRST)]
    assert all(due[:TIMED_FIRST])
    assert sum(due) == TIMED_FIRST + 9
    for _ in range(sum(due)):
        stats.record_compiled(2.0)
    assert stats.compiled_calls == 10 * TIMED_FIRST
    assert stats.compiled_seconds() == pytest.approx(2.0 * 10 * TIMED_FIRST)


def test_saved_seconds_is_eager_minus_compiled():
    stats = SignatureStats("k")
    stats.record_eager(3.0)
    for _ in range(4):
        stats.sample_due()
        stats.record_compiled(1.0)
    assert stats.saved_seconds() == pytest.approx(8.0)


def test_states_are_checked():
    stats = SignatureStats("k")
    for state in STATES:
        stats.enter(state, "why")
        assert stats.in_flight == (state in (QUEUED, COMPILING))
    with pytest.raises(ValueError, match=r"state must be one of cold, .* got 'hot'"):
        stats.enter("hot")


def test_abandoned_makes_only_jobs_in_flight_cold():
    stats = SignatureStats("k")
    stats.record_eager(0.1)
    for state, after in ((QUEUED, COLD), (COMPILING, COLD), (COMPILED, COMPILED)):
        stats.enter(state)
        stats.abandoned()
        assert stats.state == after
    assert stats.next_check == 2


def test_signature_has_no_dict_and_rejects_new_attributes():
    with pytest.raises(AttributeError):
        SignatureStats("k").nonsense = 1


def test_to_dict_is_stable_and_says_never_as_none():
    stats = SignatureStats(("k", 1))
    stats.record_eager(0.25, now=1.0)
    stats.permanent = True
    fields = stats.to_dict()
    assert fields["key"] == ("k", 1) and fields["eager_median"] == 0.25
    assert fields["retry_at"] is None and fields["state"] == COLD
    assert _function().to_dict()["signatures"] == []


# -- functions ---------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), max_size=200), st.integers(1, 8))
def test_lru_never_exceeds_its_limit_and_keeps_the_recent(keys, limit):
    function = _function()
    with override(max_signatures=limit):
        for key in keys:
            function.signature(key).record_eager(0.1, now=0.0)
            assert len(function.signatures) <= limit
            assert next(reversed(function.signatures)) == key
    recent = list(dict.fromkeys(reversed(keys)))[:limit]
    assert list(reversed(function.signatures)) == recent
    assert function.created - function.evicted == len(function.signatures)
    assert function.totals().eager_calls == len(keys)


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from(STATES)), max_size=120))
def test_lru_bound_holds_whatever_the_states(steps):
    function = _function()
    with override(max_signatures=4):
        for key, state in steps:
            function.signature(key).enter(state)
            assert len(function.signatures) <= 4 and key in function.signatures


def test_compiled_signatures_outlive_idle_ones():
    function = _function()
    with override(max_signatures=3):
        function.signature("compiled").enter(COMPILED)
        function.signature("flying").enter(QUEUED)
        for key in range(50):
            function.signature(key)
        assert list(function.signatures) == ["compiled", "flying", 49]


def test_ten_thousand_signatures_stay_bounded():
    function = _function()
    for key in range(10_000):
        function.signature(key).record_eager(1e-3, now=float(key))
    with override() as options:
        assert len(function.signatures) == options.max_signatures
    assert function.created == 10_000
    assert function.totals().eager_calls == 10_000
    assert function.new_share > 0.99


def test_new_share_falls_when_signatures_settle():
    function, rng = _function(), random.Random(0)
    for _ in range(1000):
        function.signature(rng.randrange(5))
    assert function.new_share < 0.01


def test_live_signatures_are_those_looked_up_lately():
    function = _function()
    for key in range(10):
        function.signature(key)
    assert function.live_signatures(window=100, most=99) == 10
    for _ in range(50):
        function.signature(3)
    assert function.live_signatures(window=50, most=99) == 1
    assert function.live_signatures(window=52, most=99) == 3
    assert function.live_signatures(window=52, most=2) == 2


def test_refuse_and_reopen():
    function = _function()
    old = function.signature("old")
    assert old.record_eager(0.1)
    function.refuse("it prints")
    new = function.signature("new")
    assert not old.record_eager(0.1) and not new.record_eager(0.1)
    function.reopen()
    assert function.refused == ""
    assert old.record_eager(0.1) and new.record_eager(0.1)


def test_reopen_lifts_permanent_refusals_and_leaves_compiled_alone():
    function = _function()
    refused, compiled = function.signature("r"), function.signature("c")
    refused.enter(REJECTED, "no")
    refused.permanent, refused.next_check = True, NEVER
    compiled.enter(COMPILED)
    function.reopen("weights moved")
    assert (refused.state, refused.reason, refused.permanent) == (COLD, "weights moved", False)
    assert refused.record_eager(0.1)
    assert compiled.state == COMPILED


def test_process_totals_keep_what_collected_functions_did():
    before = process_totals()
    function = _function()
    for key in range(3):
        function.signature(key).record_eager(0.5)
    during = process_totals()
    del function
    gc.collect()
    after = process_totals()
    assert during.eager_calls - before.eager_calls == 3
    assert after.to_dict() == during.to_dict()


def test_recording_stays_far_from_a_microsecond_in_proportion():
    """Against a plain method call on this machine, as absolute times would depend on it."""

    class Plain:
        def method(self, seconds):
            self.calls = seconds

    stats, plain = SignatureStats("k"), Plain()
    stats.next_check = NEVER

    def best(function):
        return min(timeit.repeat(lambda: function(1e-3), number=5000, repeat=15))

    assert best(stats.record_eager) < 12 * best(plain.method)


def test_threads_on_one_function_keep_its_bounds():
    function, errors = _function(), []

    def look_up(seed):
        rng = random.Random(seed)
        try:
            for _ in range(4000):
                function.signature(rng.randrange(40)).record_eager(1e-4)
                function.live_signatures(window=100, most=99)
        except Exception as error:
            errors.append(error)

    with override(max_signatures=16):
        threads = [threading.Thread(target=look_up, args=(seed,)) for seed in range(4)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        finally:
            sys.setswitchinterval(interval)
        assert not errors
        function.signature("last")
        assert len(function.signatures) <= 16
