"""Single decisions: what is decided, when it is asked again, what a person reads."""

from __future__ import annotations

import threading

import pytest
from forking import in_child, needs_fork

from paddle_fluid_boost.hotspot import policy as policy_module
from paddle_fluid_boost.hotspot.estimates import (
    INTERFERENCE_PRIOR,
    INTERFERENCE_PRIOR_ONE_CORE,
    CompileCost,
    Estimates,
)
from paddle_fluid_boost.hotspot.monitor import FunctionStats
from paddle_fluid_boost.hotspot.policy import COMPILE, COMPILE_GENERIC, REFUSE, WAIT, Policy
from paddle_fluid_boost.hotspot.signature_stats import (
    COLD,
    COMPILED,
    NEVER,
    QUEUED,
    REJECTED,
    SignatureStats,
)
from paddle_fluid_boost.options import override


@pytest.fixture
def policy():
    return Policy(Estimates(cores=2))


@pytest.fixture
def function():
    return FunctionStats("net.forward")


class Caller:
    """Calls eager, with a pause before each call, and asks the policy when told to."""

    def __init__(self, policy, function, pause=0.0):
        self.policy, self.function, self.now = policy, function, 0.0
        self.pause = pause

    def call(self, key, seconds):
        self.now += self.pause + seconds
        stats = self.function.signature(key)
        if stats.record_eager(seconds, self.now):
            return self.policy.decide(self.function, stats, self.now)
        return None

    def until_compile(self, key, seconds, most=100_000):
        """Number of calls until a compile is asked for, and how often the policy was asked."""
        asked = 0
        for calls in range(1, most + 1):
            decision = self.call(key, seconds)
            asked += decision is not None
            if decision is not None and decision.action == COMPILE:
                return calls, asked
        raise AssertionError(f"no compile within {most} calls")


@pytest.fixture
def caller(policy, function):
    return Caller(policy, function)


def test_a_large_net_is_compiled_after_its_first_call(caller):
    assert caller.until_compile("k", 0.1) == (1, 1)
    assert caller.function.signature("k").state == QUEUED


def test_a_toy_waits_and_the_policy_is_asked_log_times(caller):
    calls, asked = caller.until_compile("k", 50e-6)
    assert 10 < calls < 1000
    assert asked <= 10


def test_waiting_says_from_when_it_pays(caller):
    decision = caller.call("k", 50e-6)
    assert decision.action == WAIT
    expected = "called once at 50 us; a compile of about 50 ms is expected to save 50% of that"
    assert decision.reason.startswith(expected + " and pays from call ")
    needed = int(decision.reason.rsplit(" ", 1)[1])
    assert caller.until_compile("k", 50e-6)[0] + 1 == needed
    assert caller.function.signature("k").reason.startswith("called")


def test_a_dear_compile_waits_longer_than_a_cheap_one(policy):
    counts = []
    for cost in (0.05, 5.0):
        function = FunctionStats("f")
        function.compile_cost = cost
        counts.append(Caller(policy, function).until_compile("k", 1e-3)[0])
    assert counts[1] > 20 * counts[0]


def test_an_idle_caller_compiles_sooner(policy):
    counts = []
    for pause in (0.0, 1.0):
        caller = Caller(policy, FunctionStats("f"), pause)
        counts.append(caller.until_compile("k", 50e-6)[0])
    assert counts[1] < counts[0]


@pytest.mark.parametrize("hot", [1, 2, 7])
@pytest.mark.parametrize("seconds", [1e-6, 0.3])
def test_hot_calls_compiles_at_exactly_that_call(caller, hot, seconds):
    with override(hot_calls=hot):
        assert caller.until_compile("k", seconds)[0] == hot


def test_no_second_decision_while_in_flight_or_compiled(caller):
    caller.until_compile("k", 0.1)
    stats = caller.function.signature("k")
    for state in (QUEUED, COMPILED):
        stats.enter(state, "as it is")
        stats.next_check = 0
        assert caller.call("k", 0.1).action == WAIT
        assert stats.state == state


def test_two_threads_get_one_compile(policy, function):
    stats = function.signature("k")
    stats.record_eager(1.0, now=1.0)
    barrier, actions = threading.Barrier(8), []

    def ask():
        barrier.wait(10)
        actions.append(policy.decide(function, stats, 1.0).action)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(actions) == [COMPILE] + [WAIT] * 7


@needs_fork
def test_a_forked_child_can_decide_though_the_lock_was_held(policy, function):
    stats = function.signature("k")
    stats.record_eager(1.0, now=1.0)
    with policy_module._transition:
        assert in_child(lambda: policy.decide(function, stats, 1.0).action == COMPILE) == 0


# -- after a rejection -----------------------------------------------------------------------------


def test_rejections_double_the_time_to_the_next_try(caller, policy, function):
    waits = []
    for _ in range(6):
        waits.append(caller.until_compile("k", 0.01)[0])
        stats = function.signatures["k"]
        policy.rejected(function, stats, "not faster", cost=1.0, now=caller.now)
        assert (stats.state, stats.reason) == (REJECTED, "not faster")
        assert stats.retry_at == stats.next_check
    for before, after in zip(waits[1:], waits[2:]):
        assert after == pytest.approx(2 * before, rel=0.05)
    assert stats.rejections == 6


def test_permanent_refusal_is_never_asked_again_until_something_changed(caller, policy, function):
    caller.until_compile("k", 0.1)
    stats = function.signatures["k"]
    policy.rejected(function, stats, "it writes a global", cost=0.1, permanent=True)
    assert stats.retry_at == NEVER
    assert all(caller.call("k", 0.1) is None for _ in range(1000))
    decision = policy.decide(function, stats, caller.now)
    assert (decision.action, decision.reason) == (REFUSE, "it writes a global")
    function.reopen()
    caller.until_compile("k", 0.1)


def test_refused_function_refuses_new_signatures(caller, policy, function):
    function.refuse("it reads stdin")
    assert caller.call("new", 0.1) is None
    decision = policy.decide(function, function.signatures["new"], 1.0)
    assert (decision.action, decision.reason) == (REFUSE, "it reads stdin")


def test_hot_calls_does_not_override_the_back_off(caller, policy, function):
    with override(hot_calls=1):
        assert caller.until_compile("k", 0.01)[0] == 1
        policy.rejected(function, function.signatures["k"], "wrong", cost=1.0, now=caller.now)
        assert caller.until_compile("k", 0.01)[0] > 50


def test_deferred_asks_again_after_a_doubling(caller, policy, function):
    caller.until_compile("k", 0.1)
    stats = function.signatures["k"]
    policy.deferred(stats)
    assert stats.state == COLD
    assert caller.until_compile("k", 0.1)[0] == 1


# -- versions in use -------------------------------------------------------------------------------


def _publish(policy, function, stats, eager=0.1, compiled=0.02, cost=1.0, now=1.0):
    stats.start_compile()
    policy.published(function, stats, eager=eager, compiled=compiled, cost=cost, now=now)


def test_published_is_counted_and_learned_from(caller, policy, function):
    caller.until_compile("k", 0.1)
    stats = function.signatures["k"]
    _publish(policy, function, stats)
    assert stats.state == COMPILED and stats.compiles == 1 and stats.compile_seconds == 1.0
    assert stats.reason == "5.00 times faster than eager when measured"
    assert function.compile_cost == 1.0
    assert policy.estimates.saving(function) > 0.5


def test_review_withdraws_a_version_that_is_slower_in_use(caller, policy, function):
    caller.until_compile("k", 0.1)
    stats = function.signatures["k"]
    _publish(policy, function, stats)

    def use(seconds):
        """Seconds of compiled calls until a review is due."""
        for _ in range(100_000):
            if stats.sample_due() and stats.record_compiled(seconds, now=2.0):
                return policy.review(function, stats)
        raise AssertionError("no review")

    assert use(0.02) == ""
    assert use(0.2) == "slower than eager in use (200 ms against 100 ms)"


def test_lost_version_that_paid_is_made_again_at_once(caller, policy, function):
    caller.until_compile("k", 0.1)
    stats = function.signatures["k"]
    _publish(policy, function, stats)
    for _ in range(100):
        stats.sample_due()
    policy.lost(function, stats, "evicted", now=caller.now)
    assert caller.until_compile("k", 0.1)[0] == 1
    assert (function.versions_lost, function.versions_paid) == (1, 1)


def test_lost_version_that_did_not_pay_must_promise_more(caller, policy, function):
    caller.until_compile("k", 0.1)
    waits = []
    for _ in range(4):
        stats = function.signatures["k"]
        _publish(policy, function, stats)
        policy.lost(function, stats, "weights changed", now=caller.now)
        waits.append(caller.until_compile("k", 0.1)[0])
    assert waits == sorted(waits) and waits[-1] > 4 * waits[0]


# -- megamorphic functions -------------------------------------------------------------------------


def _sweep(caller, signatures, rounds, seconds=1e-3):
    decisions = []
    for _ in range(rounds):
        for key in range(signatures):
            decision = caller.call(key, seconds)
            if decision is not None:
                decisions.append(decision)
    return decisions


def test_many_live_signatures_get_one_generic_version(caller, function):
    with override(max_signatures=256, megamorphic_signatures=8):
        decisions = _sweep(caller, 20, 40)
    generic = [d for d in decisions if d.action == COMPILE_GENERIC]
    assert len(generic) == 1
    assert generic[0].reason.startswith(
        "megamorphic (more than 8 signatures within the last 64 eager"
    )
    assert function.generic.state == QUEUED
    assert sum(d.action == COMPILE for d in decisions) <= 8


def test_without_a_generic_version_there_is_no_compile_per_call(caller, policy, function):
    policy.rejected(function, function.generic, "no dynamic shapes", cost=0.1, permanent=True)
    with override(megamorphic_signatures=8):
        decisions = _sweep(caller, 40, 100, seconds=0.05)
    assert sum(d.action != WAIT for d in decisions) <= 8
    assert decisions[-1].reason.endswith("no dynamic shapes")


def test_a_dominant_signature_is_compiled_in_a_megamorphic_function(caller, policy, function):
    policy.rejected(function, function.generic, "no dynamic shapes", cost=0.1, permanent=True)
    with override(megamorphic_signatures=8):
        _sweep(caller, 40, 3, seconds=1e-5)
        compiled = set()
        for step in range(2000):
            for key in ("main", step % 40):
                decision = caller.call(key, 1e-3)
                if decision is not None and decision.action == COMPILE:
                    compiled.add(key)
    assert "main" in compiled


def test_churn_alone_makes_a_function_megamorphic(caller, policy, function):
    for key in range(200):
        caller.call(key, 1e-5)
    with override(megamorphic_signatures=1000):
        assert "of recent calls have a signature not seen before" in policy.megamorphic(function)
    with override(megamorphic_signatures=1000, hot_calls=1):
        assert policy.megamorphic(function) == ""


def test_a_function_that_settles_is_no_longer_megamorphic(caller, policy, function):
    for key in range(100):
        caller.call(key, 1e-5)
    assert policy.megamorphic(function)
    for _ in range(600):
        caller.call("steady", 1e-5)
    assert policy.megamorphic(function) == ""


def test_hot_calls_1_on_ten_thousand_signatures_does_not_compile_each(caller):
    with override(hot_calls=1):
        actions = [caller.call(key, 1e-3) for key in range(10_000)]
    compiles = sum(d is not None and d.action in (COMPILE, COMPILE_GENERIC) for d in actions)
    assert compiles <= 65


def test_full_slots_go_to_a_newcomer_only_when_it_is_worth_more(caller, policy, function):
    with override(max_versions=1):
        caller.until_compile("old", 0.1)
        old = function.signatures["old"]
        _publish(policy, function, old, now=caller.now)
        for _ in range(100):
            caller.now += 0.1
            old.sample_due()
            decision = caller.call("new", 0.001)
            assert decision is None or decision.action == WAIT
        assert decision is None or "more valuable" in decision.reason
        caller.until_compile("new", 0.1)


# -- estimates -------------------------------------------------------------------------------------


def test_compile_cost_learns_the_line():
    cost = CompileCost()
    for _ in range(30):
        for eager in (1e-4, 1e-3, 1e-2, 1e-1):
            cost.learn(eager, 3.0 * eager**0.5)
    for eager in (1e-4, 1e-3, 1e-1):
        assert cost.expect(eager) == pytest.approx(3.0 * eager**0.5, rel=0.5)


def test_compile_cost_rises_with_eager_time_whatever_it_met():
    cost = CompileCost()
    for _ in range(50):
        cost.learn(1e-4, 10.0)
        cost.learn(1e-1, 0.01)
    assert cost.expect(1e-1) >= cost.expect(1e-4) > 0.0


def test_failures_lower_what_is_expected_and_never_to_nothing(policy, function):
    before = policy.estimates.saving(FunctionStats("other"))
    for _ in range(50):
        policy.estimates.learn_saving(function, 0.0)
    after = policy.estimates.saving(FunctionStats("other"))
    assert 0.0 < policy.estimates.saving(function) < after < before


def test_interference_is_learned_from_slower_calls_during_a_compile(policy, function):
    stats = SignatureStats("k")
    for _ in range(10):
        stats.record_eager(0.1, now=0.0)
    stats.start_compile()
    for _ in range(10):
        stats.record_eager(0.2, now=0.0)
    before = policy.estimates.interference
    policy.published(function, stats, eager=0.1, compiled=0.05, cost=1.0)
    assert before == INTERFERENCE_PRIOR
    assert policy.estimates.interference == pytest.approx(before + 0.2 * (0.5 - before))


def test_one_core_starts_from_a_compile_that_costs_its_caller_nearly_all():
    assert Estimates(cores=1).interference == INTERFERENCE_PRIOR_ONE_CORE


def test_explain_and_stats_fields(policy):
    assert set(policy.to_dict()) == {
        "saving_share",
        "interference",
        "compile_seconds_at_1ms",
        "compile_seconds_at_100ms",
    }
