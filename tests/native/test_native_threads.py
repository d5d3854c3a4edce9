"""The choice between all threads and one, made in use."""

from __future__ import annotations

import os

import native_models as nm
import paddle
import pytest

from paddle_fluid_boost.engines.native.threads import ThreadChoice


def _calls(choice: ThreadChoice, costs: tuple[float, float], count: int) -> list[int]:
    """The plan that each of ``count`` calls took, when plan i takes ``costs[i]`` seconds."""
    taken = []
    for _ in range(count):
        plan = choice.current
        taken.append(plan)
        choice.record(plan, costs[plan])
    return taken


@pytest.mark.parametrize("costs", [(1.0, 3.0), (3.0, 1.0)])
def test_the_slower_plan_gets_few_calls(costs: tuple[float, float]) -> None:
    taken = _calls(ThreadChoice(), costs, 5000)
    slower = costs.index(3.0)
    assert taken.count(slower) < 0.02 * len(taken)


def test_a_plan_that_became_slow_is_left_within_few_calls() -> None:
    choice = ThreadChoice()
    assert _calls(choice, (1.0, 2.0), 500)[-1] == 0
    assert _calls(choice, (6.0, 2.0), 40)[-1] == 1


def test_a_plan_that_recovered_is_taken_again() -> None:
    choice = ThreadChoice()
    _calls(choice, (6.0, 2.0), 500)
    assert _calls(choice, (1.0, 2.0), 5000)[-1] == 0


def test_a_plan_judged_beside_a_compile_is_soon_judged_again() -> None:
    choice = ThreadChoice()
    _calls(choice, (7.0, 2.0), 16)
    assert _calls(choice, (1.0, 2.0), 50)[-1] == 0


def test_equal_costs_do_not_make_it_change_its_mind() -> None:
    taken = _calls(ThreadChoice(), (2.0, 2.0), 5000)
    assert taken.count(1) < 0.02 * len(taken)


def test_calls_that_wake_the_threads_do_not_count() -> None:
    choice = ThreadChoice()
    for call in range(5000):
        plan = choice.current
        fresh = call == 0 or plan != last  # noqa: F821 - set below before it is read
        choice.record(plan, 50.0 if fresh else (1.0, 2.0)[plan])
        last = plan  # noqa: F841
    assert choice.current == 0


def test_a_small_network_has_two_plans_that_give_the_same_bits() -> None:
    net = paddle.nn.Sequential(paddle.nn.Linear(64, 64), paddle.nn.ReLU(), paddle.nn.Linear(64, 8))
    x = paddle.randn([4, 64])
    executable = nm.check(net, x)
    assert any("one thread too" in note for note in executable.notes)
    results = {executable([x])[0].numpy().tobytes() for _ in range(200)}
    assert len(results) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
@pytest.mark.parametrize("processors", [1, None])
def test_where_a_thread_may_run_is_left_alone(processors: int | None) -> None:
    net, x = paddle.nn.Conv2D(16, 32, 3), paddle.randn([1, 16, 40, 40])
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, set(sorted(before)[:processors]))
        allowed = os.sched_getaffinity(0)
        executable = nm.check(net, x, threads=2)
        for _ in range(20):
            executable([x])
        assert os.sched_getaffinity(0) == allowed
    finally:
        os.sched_setaffinity(0, before)


def test_a_network_with_host_steps_has_one_plan() -> None:
    executable = nm.check(lambda x: paddle.cumsum(x, 0), paddle.randn([4, 8]))
    assert not any("one thread too" in note for note in executable.notes)
