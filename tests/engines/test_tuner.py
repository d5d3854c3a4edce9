"""The tuner, on engines whose speed is written down, so that no test depends on the clock."""

from __future__ import annotations

import random
from types import SimpleNamespace

import paddle
import paddle_inference_cases as cases
import pytest
from paddle import nn

from paddle_fluid_boost.engines import race, select, tuner
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.options import override

ONE = paddle.ones([1])


class _Executable:
    def __init__(self, seconds, value, lasts):
        self.seconds, self.value, self.lasts = seconds, value, lasts
        self.runs, self.closed = 0, False

    def __call__(self, inputs):
        assert not self.closed
        self.runs += 1
        if self.runs > self.lasts:
            raise EngineError("out of memory")
        return [self.value]

    def close(self):
        self.closed = True


class _Engine:
    """speeds: thread count -> seconds of one run; a candidate is offered for the highest.
    lasts: runs that go well."""

    def __init__(self, name, speeds, wrong=False, broken=False, lasts=10**9):
        self.name, self.speeds = name, speeds
        self.wrong, self.broken, self.lasts = wrong, broken, lasts
        self.built = {}

    def unavailable(self):
        return None

    def candidates(self, captured):
        return [{"threads": max(self.speeds)}]

    def build(self, captured, settings):
        if self.broken or settings["threads"] not in self.speeds:
            raise EngineError(f"{self.name}: no")
        value = ONE * (2 if self.wrong else 1)
        made = _Executable(self.speeds[settings["threads"]], value, self.lasts)
        self.built[settings["threads"]] = made
        return made


@pytest.fixture
def tune(monkeypatch):
    """Calls the tuner with engines in place of the real ones; 4 threads are the most."""

    def call(*engines, noise=None, budget=1e9, memory=None, program="a", pause=None):
        table = {engine.name: engine for engine in engines}
        for module in (select, race):
            monkeypatch.setattr(module, "make_engine", table.__getitem__)
        monkeypatch.setattr(select, "engine_names", lambda _: list(table))
        monkeypatch.setattr(tuner, "thread_counts", lambda: [4, 2, 1])
        monkeypatch.setattr(tuner, "fingerprint", lambda captured: captured.key)
        monkeypatch.setattr(
            tuner, "cpu_advice", lambda: SimpleNamespace(fallback=("paddle_inference",))
        )

        def run_seconds(executable, inputs):
            executable(inputs)
            return executable.seconds * (noise() if noise else 1.0)

        for module in (select, race):
            monkeypatch.setattr(module, "run_seconds", run_seconds)
        memory = tuner.Remembering(on_disk=False) if memory is None else memory
        pauses = []
        captured = SimpleNamespace(key=program, device="cpu")
        choice = tuner.tune(
            captured, [ONE], [ONE], 1.0, pause or pauses.append, budget=budget, memory=memory
        )
        assert pauses  # the user's thread gets its turn after every piece of work
        return choice

    return call


def _taken(choice, *engines):
    """(engine, threads) of what was chosen."""
    return next(
        (engine.name, threads)
        for engine in engines
        for threads, made in engine.built.items()
        if made is choice.executable
    )


def test_the_fastest_wins_and_losers_are_stopped_early(tune):
    slow, fast, near = (
        _Engine("slow", {4: 5.0}),
        _Engine("fast", {4: 1.0}),
        _Engine("near", {4: 1.1}),
    )
    choice = tune(slow, fast, near)
    assert _taken(choice, slow, fast, near) == ("fast", 4)
    assert choice.compiled == 1.0
    assert slow.built[4].closed and near.built[4].closed and not fast.built[4].closed
    assert slow.built[4].runs < near.built[4].runs <= fast.built[4].runs
    assert choice.tried[-1][1].endswith("the fastest")


def test_the_knee_of_threads_is_found(tune):
    """Two threads are best; one is only looked at, not raced."""
    engine = _Engine("e", {4: 1.2, 2: 1.0, 1: 1.9})
    choice = tune(engine)
    assert _taken(choice, engine) == ("e", 2)
    assert engine.built[1].closed and engine.built[4].closed


def test_equals_leave_cores_to_others(tune):
    engine = _Engine("e", {4: 1.0, 2: 1.01, 1: 1.5})
    assert _taken(tune(engine), engine) == ("e", 2)


def test_the_users_number_of_threads_stays(tune):
    engine = _Engine("e", {4: 1.2, 2: 1.0})
    with override(threads=4):
        assert _taken(tune(engine), engine) == ("e", 4)


def test_wrong_and_broken_candidates_never_win(tune):
    wrong, broken, right = (
        _Engine("wrong", {4: 0.1}, wrong=True),
        _Engine("broken", {4: 0.1}, broken=True),
        _Engine("right", {4: 1.0}),
    )
    choice = tune(wrong, broken, right)
    assert _taken(choice, right) == ("right", 4)
    outcomes = dict(choice.tried)
    assert outcomes["wrong {'threads': 4}"].startswith("wrong result")
    assert outcomes["broken {'threads': 4}"].startswith("not built")
    assert tune(wrong, broken).executable is None


@pytest.mark.parametrize("lasts", [1, 2, 4, 10, 40])
def test_a_candidate_that_fails_in_a_later_run_is_out(tune, lasts):
    failing, right = _Engine("failing", {4: 0.5, 2: 0.5}, lasts=lasts), _Engine("right", {4: 0.6})
    choice = tune(failing, right)
    assert _taken(choice, right) == ("right", 4) and not right.built[4].closed
    assert all(made.closed for made in failing.built.values())
    assert "failed in a later run: out of memory" in dict(choice.tried)["failing {'threads': 4}"]
    assert tune(_Engine("failing", {4: 1.0}, lasts=2)).executable is None


def test_a_race_that_is_broken_off_leaves_nothing_behind(tune):
    engines = [_Engine("one", {4: 1.0}), _Engine("two", {4: 1.0, 2: 1.0})]
    left = iter(range(6))

    def pause(seconds):
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(*engines, pause=pause)
    built = [made for engine in engines for made in engine.built.values()]
    assert len(built) > 1 and all(made.closed for made in built)


def test_waiting_for_the_child_process_is_no_work_of_ours(tune, monkeypatch):
    """A GPU's first candidate is tried in a child for longer than the tuner may take; TensorRT,
    which comes second, is raced all the same."""
    first, second = _Engine("first", {4: 2.0}), _Engine("second", {4: 1.0})
    now = [0.0]
    monkeypatch.setattr(race.time, "perf_counter", lambda: now[0])
    build = first.build

    def tried_in_a_child(captured, settings):
        now[0] += 600.0
        monkeypatch.setattr(race.PROBE, "waited", race.PROBE.waited + 600.0)
        return build(captured, settings)

    first.build = tried_in_a_child
    assert _taken(tune(first, second, budget=2.0), first, second) == ("second", 4)


def test_without_time_the_first_one_that_is_right_is_taken(tune):
    first, second = _Engine("first", {4: 2.0, 2: 1.0}), _Engine("second", {4: 1.0})
    choice = tune(first, second, budget=0.0)
    assert _taken(choice, first) == ("first", 4)
    assert second.built == {}
    assert ("second {'threads': 4}", "not tried: the time was up") in choice.tried


def test_fallbacks_are_raced_only_where_nothing_else_is_right(tune):
    """Paddle Inference, says the library of x86: it comes last, and only if it must."""
    slow = _Engine("paddle_inference", {4: 0.5})
    main = _Engine("main", {4: 1.0})
    assert _taken(tune(slow, main), main) == ("main", 4)
    assert slow.built == {}
    assert _taken(tune(slow, _Engine("main", {4: 1.0}, wrong=True)), slow)[0] == "paddle_inference"


@pytest.mark.parametrize("seed", range(20))
def test_noise_costs_little(tune, seed):
    """Runs take up to half as long again, and one in ten three times as long."""
    rng = random.Random(seed)

    def noise():
        return 3.0 if rng.random() < 0.1 else 1 + rng.random() ** 2 / 2

    engines = [
        _Engine(f"e{i}", {4: 1 + rng.random(), 2: 1 + rng.random(), 1: 1 + rng.random()})
        for i in range(4)
    ]
    choice = tune(*engines, noise=noise)
    best = min(made.seconds for engine in engines for made in engine.built.values())
    assert choice.executable.seconds <= 1.10 * best


def test_a_choice_is_remembered(tune):
    memory = tuner.Remembering(on_disk=False)
    first = _Engine("a", {4: 1.5}), _Engine("b", {4: 2.0, 2: 1.0})
    assert _taken(tune(*first, memory=memory), *first) == ("b", 2)
    again = _Engine("a", {4: 1.5}), _Engine("b", {4: 2.0, 2: 1.0})
    choice = tune(*again, memory=memory)
    assert _taken(choice, *again) == ("b", 2)
    assert again[0].built == {} and list(again[1].built) == [2]
    other = _Engine("a", {4: 1.5}), _Engine("b", {4: 2.0, 2: 1.0})
    tune(*other, memory=memory, program="another")
    assert other[0].built  # another program is measured anew


@pytest.mark.parametrize(
    "remembered",
    [
        {},
        {"engine": "gone", "settings": {"threads": 4}},
        {"engine": "e", "settings": {"threads": "many"}},
        {"engine": "e", "settings": None},
        {"engine": "e", "settings": {"threads": 4, "more": 1}},
        {"engine": 3},
        {"engine": "e", "settings": {"threads": 77}},
    ],
)
def test_what_is_remembered_wrongly_is_measured_anew(tune, remembered):
    memory = tuner.Remembering(on_disk=False)
    memory.write("a", remembered)
    engine = _Engine("e", {4: 1.0})
    assert _taken(tune(engine, memory=memory), engine) == ("e", 4)
    assert memory.read("a") == {"engine": "e", "settings": {"threads": 4}}


def test_choices_outlive_the_process(tmp_path, monkeypatch):
    with override(cache=True, cache_dir=str(tmp_path)):
        value = {"engine": "e", "settings": {"threads": 2}}
        tuner.Remembering().write("0" * 32, value)
        read = tuner.Remembering().read("0" * 32)
        assert read is not None and {**read, **value} == read
        monkeypatch.setattr(tuner.time, "time", lambda: read["made"] + 8 * 86400)
        assert tuner.Remembering().read("0" * 32) is None  # a week is trusted


def test_memory_is_bounded():
    memory = tuner.Remembering(size=2, on_disk=False)
    for name in "abc":
        memory.write(name, {"engine": name})
    assert memory.read("a") is None and memory.read("c") == {"engine": "c"}


def test_programs_are_told_apart():
    def key(net, *shape):
        return tuner.fingerprint(cases.capture(net, paddle.rand(shape)))

    net = nn.Linear(4, 4)
    assert key(net, 2, 4) == key(nn.Linear(4, 4), 2, 4)
    different = [key(net, 2, 4), key(net, 3, 4), key(nn.Linear(4, 5), 2, 4)]
    different.append(key(nn.Sequential(net, nn.ReLU()), 2, 4))
    with override(threads=1):
        different.append(key(net, 2, 4))
    assert len(set(different)) == 5


def test_real_engines():
    """Whatever wins here, its result is eager's."""
    net = nn.Sequential(nn.Conv2D(3, 8, 3), nn.ReLU(), nn.Conv2D(8, 4, 3))
    net.eval()
    x = paddle.rand([1, 3, 16, 16])
    want = cases.eager(net, x)
    captured = cases.capture(net, x)
    choice = tuner.tune(
        captured,
        [x],
        want,
        1.0,
        lambda s: None,
        budget=5.0,
        memory=tuner.Remembering(on_disk=False),
    )
    assert choice.executable is not None and choice.compiled > 0
    cases.assert_same(choice.executable([x]), want)
    assert choice.tried[-1][1].endswith("the fastest")
    choice.executable.close()
