"""What a second process makes of what the first has found; "process" is played by a new engine."""

from __future__ import annotations

import time

import paddle
import pytest

from paddle_fluid_boost import cache
from paddle_fluid_boost.cache import store
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.engines import remembered, select, verdicts
from paddle_fluid_boost.engines.native import tiles
from paddle_fluid_boost.engines.paddle_inference_config import PredictorSettings
from paddle_fluid_boost.options import override

SETTINGS = PredictorSettings(onednn=True, threads=1, onednn_cache_capacity=10)
#: Seconds of one run; eager takes 1.
EAGER = 1.0


class Executable:
    """Gives ``result``; how long it takes is played by :func:`run`."""

    engine, nbytes, notes = "toy", 0, ()

    def __init__(self, number, result):
        self.number, self.result, self.closed = number, result, False

    def __call__(self, inputs):
        return self.result

    def close(self):
        self.closed = True


class Toy:
    """An engine whose candidates take ``seconds`` and give ``results``; notes what it builds."""

    name = "toy"

    def __init__(self, seconds, results):
        self.seconds, self.results, self.built, self.runs = seconds, results, [], []

    def unavailable(self):
        return None

    def candidates(self, captured):
        return [{"number": number} for number in range(len(self.seconds))]

    def build(self, captured, settings):
        self.built.append(settings["number"])
        return Executable(settings["number"], [self.results[settings["number"]]])


@pytest.fixture
def captured():
    with paddle.no_grad():
        return trace(lambda x: x * 2, (paddle.ones([2]),), {})[0]


@pytest.fixture
def choose(captured, monkeypatch):
    """Chooses among candidates of these seconds; returns the engine and the choice."""

    def run(seconds, results=None):
        right = paddle.full([2], 2.0)
        toy = Toy(seconds, results or [right] * len(seconds))

        def seconds_of_a_run(executable, inputs):
            toy.runs.append(executable.number)
            return toy.seconds[executable.number]

        monkeypatch.setattr(select, "engine_names", lambda _: ["toy"])
        monkeypatch.setattr(select, "make_engine", lambda name: toy)
        monkeypatch.setattr(select, "run_seconds", seconds_of_a_run)
        x = paddle.ones([2])
        return toy, select.choose(captured, [x], [right], EAGER, lambda seconds: None)

    return run


def test_the_winner_comes_first_the_next_time_and_one_run_is_enough(folder, choose):
    toy, choice = choose([0.95, 0.9, 0.5, 0.1])
    assert toy.built == [0, 1, 2] and choice.executable.number == 2
    toy, choice = choose([0.95, 0.9, 0.5, 0.1])
    assert toy.built == [2] and toy.runs == [2]
    assert choice.executable.number == 2 and choice.compiled == 0.5
    assert [entry.kind for entry in cache.entries()] == ["choice"]


def test_a_winner_by_little_is_not_searched_for_again(folder, choose):
    toy, _ = choose([0.99, 0.9, 0.98])
    assert toy.built == [0, 1, 2]
    toy, choice = choose([0.99, 0.9, 0.98])
    assert toy.built == [1] and len(toy.runs) > 1  # timed well, as it matters
    assert choice.executable.number == 1


def test_a_winner_that_gives_another_result_now_is_not_used(folder, choose):
    choose([0.95, 0.5, 0.6])
    right, wrong = paddle.full([2], 2.0), paddle.full([2], 3.0)
    toy, choice = choose([0.95, 0.5, 0.6], [right, wrong, right])
    assert toy.built[0] == 1
    assert choice.executable.number == 2
    assert any("wrong result" in outcome for _, outcome in choice.tried)
    toy, _ = choose([0.95, 0.5, 0.6])  # and what won instead is what is known from now on
    assert toy.built == [2]


def test_a_winner_that_is_slow_now_is_measured_against_the_others(folder, choose):
    choose([0.95, 0.5])
    toy, choice = choose([0.4, 2.0])
    assert toy.built == [1, 0]
    assert choice.executable.number == 0


def test_a_winner_that_is_not_offered_any_more_is_nothing(folder, choose):
    choose([0.95, 0.99, 0.5])
    toy, choice = choose([0.95, 0.6])
    assert toy.built == [0, 1] and choice.executable.number == 1


def test_nothing_is_kept_where_nothing_is_faster(folder, choose):
    choose([0.99, 1.5])
    assert cache.entries() == []


def test_switched_off_every_process_begins_anew(folder, choose):
    choose([0.95, 0.5])
    with override(cache=False):
        toy, _ = choose([0.95, 0.5])
    assert toy.built == [0, 1]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"best": 7, "made": 1.0},
        {"best": "toy {'number': 1}"},
        {"best": "toy {'number': 1}", "made": "yesterday"},
        {"best": "toy {'number': 1}", "made": 0.0},
        {"best": "toy {'number': 1}", "made": 1e300},
    ],
    ids=["empty", "type", "undated", "date", "old", "future"],
)
def test_a_choice_that_is_odd_or_old_is_ignored(folder, choose, captured, value):
    name = remembered.recall(captured).name
    assert store.write("choice", name, value, {})
    toy, _ = choose([0.95, 0.5])
    assert toy.built == [0, 1]


def test_another_surrounding_begins_anew(folder, choose, monkeypatch):
    choose([0.95, 0.5])
    monkeypatch.setenv("OMP_NUM_THREADS", "97")
    toy, _ = choose([0.95, 0.5])
    assert toy.built == [0, 1]


def test_a_network_with_other_weights_starts_warm_and_is_right(folder, monkeypatch):
    import paddle_fluid_boost as pfb

    builds = []
    build_right = select.build_right

    def counted(engine, captured, settings, *others):
        builds.append(select.label_of(engine, settings))
        return build_right(engine, captured, settings, *others)

    monkeypatch.setattr(select, "build_right", counted)
    # As slow as it takes for any engine to be clearly faster: how fast is not the question here.
    monkeypatch.setattr(select, "run_seconds", lambda executable, inputs: 1e-9)
    x = paddle.randn([1, 4, 9, 9])
    for _ in range(2):
        net = paddle.nn.Sequential(paddle.nn.Conv2D(4, 8, 3), paddle.nn.ReLU())
        net.eval()
        with paddle.no_grad():
            eager = net(x)
        fast = pfb.to_static(net)
        pfb.warmup(fast, [x])
        with paddle.no_grad():
            error = float((fast(x) - eager).abs().max())
        assert error < 1e-4
    assert len(builds) == 2 and builds[0] == builds[1]
    (entry,) = [entry for entry in cache.entries() if entry.kind == "choice"]
    assert entry.about["best"] == builds[0]


# -- the probe child's verdicts -------------------------------------------------------------------


def layer_program(layer):
    with paddle.no_grad():
        return trace(layer, (paddle.ones([1, 3]),), {})[0]


@pytest.mark.parametrize("wrong", [None, "crashes the process (SIGSEGV)", "returns wrong values"])
def test_a_verdict_is_believed_for_the_same_weights_only(folder, wrong):
    layer = paddle.nn.Linear(3, 3)
    program = layer_program(layer)
    assert verdicts.recall(program, SETTINGS) is None
    verdicts.keep(program, SETTINGS, wrong)
    assert verdicts.recall(layer_program(layer), SETTINGS) == verdicts.Verdict(wrong)
    layer.weight.set_value(layer.weight + 1)
    assert verdicts.recall(layer_program(layer), SETTINGS) is None


def test_a_verdict_is_for_its_settings_and_surroundings(folder, monkeypatch):
    program = layer_program(paddle.nn.Linear(3, 3))
    verdicts.keep(program, SETTINGS, None)
    other = PredictorSettings(onednn=True, threads=2, onednn_cache_capacity=10)
    assert verdicts.recall(program, other) is None
    monkeypatch.setattr(paddle, "__version__", "3.9.9")
    assert verdicts.recall(program, SETTINGS) is None


@pytest.mark.parametrize("wrong", ["gives no answer in time", "crashes the process (SIGKILL)"])
def test_what_a_busy_machine_may_be_to_blame_for_is_not_kept(folder, wrong):
    program = layer_program(paddle.nn.Linear(3, 3))
    verdicts.keep(program, SETTINGS, wrong)
    assert verdicts.recall(program, SETTINGS) is None


def test_a_verdict_of_the_wrong_type_is_none(folder):
    program = layer_program(paddle.nn.Linear(3, 3))
    for value in ({}, {"wrong": 3}, {"wrong": False}):
        store.write("probe", verdicts._name(program, SETTINGS), value, {})
        assert verdicts.recall(program, SETTINGS) is None


def test_the_engine_asks_the_child_once_for_all_processes(folder, monkeypatch):
    from paddle_fluid_boost.engines import paddle_inference

    asked = []
    monkeypatch.setattr(paddle_inference.PROBE, "ask", lambda *a: asked.append(a) or "raises")
    program = layer_program(paddle.nn.Linear(3, 3))

    class Model:
        model = params = "unused"

    for _ in range(2):
        engine = paddle_inference.PaddleInference()  # knows nothing, as in a new process
        assert engine._verdict(program, Model, SETTINGS) == "raises"
        assert engine._verdict(program, Model, SETTINGS) == "raises"
    assert len(asked) == 1


# -- Winograd's tiles -----------------------------------------------------------------------------


class Extension:
    """The part of the extension that knows tiles, as it is when a process starts."""

    def __init__(self):
        self.known = {}

    def winograd_tiles(self):
        return [(list(shape), tile) for shape, tile in self.known.items()]

    def remember_winograd_tile(self, shape, tile):
        self.known[tuple(shape)] = tile


@pytest.fixture
def new_process(monkeypatch):
    def make():
        monkeypatch.setattr(tiles, "_read", None)
        monkeypatch.setattr(tiles, "_stored", {})
        return Extension()

    return make


def test_tiles_go_to_the_next_process(folder, new_process):
    first = new_process()
    tiles.recall(first)
    first.known = {(1, 14, 14, 32, 2): 4, (1, 7, 7, 32, 2): 0}
    tiles.keep(first)
    second = new_process()
    tiles.recall(second)
    assert second.known == first.known
    second.known[(1, 28, 28, 16, 2)] = 2
    tiles.keep(second)
    third = new_process()
    tiles.recall(third)
    assert third.known == second.known


def test_tiles_are_written_only_when_there_are_new_ones(folder, new_process):
    extension = new_process()
    extension.known = {(1, 2): 4}
    tiles.keep(extension)
    cache.clear()
    tiles.keep(extension)
    assert cache.entries() == []


@pytest.mark.parametrize(
    "rows", ["text", [[1, 2, 3]], [[]], [[1, -2, 4]], [[1, True, 4]], [["a", 4]], [5]], ids=str
)
def test_odd_tiles_are_ignored(folder, new_process, rows):
    name = tiles.key("tiles", tiles.surroundings())
    assert store.write("tiles", name, {"tiles": rows}, {})
    extension = new_process()
    tiles.recall(extension)
    assert extension.known == {}


def test_the_extension_takes_and_gives_tiles(folder):
    runtime = pytest.importorskip("paddle_fluid_boost.engines.native.runtime")
    if runtime.missing():
        pytest.skip(runtime.missing())
    native = runtime.module()
    odd = [int(time.time()) % 1000 + 1, 3, 5, 7, 99]  # a shape that no network has
    native.remember_winograd_tile(odd, 2)
    assert (odd, 2) in [(list(shape), tile) for shape, tile in native.winograd_tiles()]
