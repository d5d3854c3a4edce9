"""Side effects: as often as in eager, in the same order, and never once more for a compile."""

from __future__ import annotations

import collections
import datetime
import io
import itertools
import logging
import os
import queue
import random
import threading
import time
import uuid
import warnings
from pathlib import Path
from typing import Any

import numpy
import paddle
import pytest
from differential import Scenarios, ToStatic, Way, check, follow, layer_of, numbers

import paddle_fluid_boost as pfb

nn = paddle.nn
F = nn.functional
scenarios = Scenarios()
#: As ``ToStatic`` alone: with ``auto`` the inner layer of a refused one is compiled, as it may.
WHOLE = (ToStatic,)


def effect(way: Way, forward: Any, see: Any, **attributes: Any) -> None:
    """Seven calls, then what ``see(layer)`` finds."""
    layer = layer_of(forward, **attributes)
    follow(way, layer)
    with paddle.no_grad():
        for _ in range(3):
            layer(numbers(2, 4))
    way.see("effect", see(layer))


# -- effects that must be refused with the line to blame -------------------------------------------


@scenarios(compiled=False, ways=WHOLE, refused="self.calls += 1")
def counter_attribute(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.calls += 1
        return self.fc(x)

    effect(way, forward, lambda n: n.calls, calls=0)


@scenarios(compiled=False, ways=WHOLE, refused="print(")
def printing(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        print("called", file=self.out)
        return self.fc(x)

    out = io.StringIO()
    effect(way, forward, lambda n: out.getvalue(), out=out)


@scenarios(compiled=False, ways=WHOLE, refused="time.time()")
def clock(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.fc(x) + 0.0 * time.time()

    effect(way, forward, lambda n: None)


@scenarios(compiled=False, ways=WHOLE, refused="now()")
def calendar(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.fc(x) + 0.0 * datetime.datetime.now().microsecond

    effect(way, forward, lambda n: None)


@scenarios(compiled=False, ways=WHOLE, refused="uuid4()")
def unique_identifier(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.fc(x) + 0.0 * len(uuid.uuid4().hex)

    effect(way, forward, lambda n: None)


@scenarios(compiled=False, ways=WHOLE, refused="random")
def python_random(way: Way) -> None:
    effect(way, lambda self, x: self.fc(x) * random.random(), lambda n: (random.random(),))


@scenarios(compiled=False, ways=WHOLE, refused="random")
def numpy_random(way: Way) -> None:
    effect(
        way,
        lambda self, x: self.fc(x) * float(numpy.random.rand()),
        lambda n: float(numpy.random.rand()),
    )


@scenarios(
    compiled=False,
    ways=WHOLE,
    refused="random",
)
def numpy_generator(way: Way) -> None:
    generator = numpy.random.default_rng(3)
    effect(
        way,
        lambda self, x: self.fc(x) * float(generator.normal()),
        lambda n: float(generator.normal()),
    )


@scenarios(
    compiled=False,
    ways=WHOLE,
    refused="random",
)
def numpy_generator_that_decides_rarely(way: Way) -> None:
    generator = numpy.random.default_rng(3)

    def forward(self: Any, x: Any) -> Any:
        return self.fc(x) * 2 if generator.random() < 0.1 else self.fc(x)

    layer = follow(way, layer_of(forward))
    with paddle.no_grad():
        way.see("sums", [float(layer(numbers(2, 4)).sum()) for _ in range(30)])


@scenarios(compiled=False, ways=WHOLE, refused="an iterator")
def iterator_state(way: Way) -> None:
    effect(
        way,
        lambda self, x: self.fc(x) * next(self.numbers),
        lambda n: next(n.numbers),
        numbers=itertools.count(1),
    )


@scenarios(compiled=False, ways=WHOLE)
def generator_state(way: Way) -> None:
    def count() -> Any:
        yield from range(1, 100)

    effect(
        way,
        lambda self, x: self.fc(x) * next(self.numbers),
        lambda n: next(n.numbers),
        numbers=count(),
    )


@scenarios(compiled=False, ways=WHOLE)
def list_that_grows(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.log.append(tuple(x.shape))
        return self.fc(x)

    effect(way, forward, lambda n: list(n.log), log=[])


@scenarios(compiled=False, ways=WHOLE)
def dict_that_counts(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.count["n"] = self.count.get("n", 0) + 1
        return self.fc(x)

    effect(way, forward, lambda n: dict(n.count), count={})


@scenarios(compiled=False, ways=WHOLE)
def deque_that_grows(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.log.append(1)
        return self.fc(x)

    effect(way, forward, lambda n: len(n.log), log=collections.deque())


@scenarios(compiled=False, ways=WHOLE)
def counter_through_dunder_dict(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.__dict__["calls"] += 1
        return self.fc(x)

    effect(way, forward, lambda n: n.calls, calls=0)


@scenarios(compiled=False, ways=WHOLE, refused="writes the variable")
def nonlocal_counter(way: Way) -> None:
    calls = 0

    def forward(self: Any, x: Any) -> Any:
        nonlocal calls
        calls += 1
        return self.fc(x)

    effect(way, forward, lambda n: calls)


@scenarios(compiled=False, ways=WHOLE)
def class_counter(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        type(self).calls += 1
        return self.fc(x)

    layer = layer_of(forward)
    type(layer).calls = 0
    follow(way, layer)
    way.see("calls", type(layer).calls)


@scenarios(compiled=False, ways=WHOLE)
def numpy_counter(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.count += 1
        return self.fc(x)

    def forward_in_place(self: Any, x: Any) -> Any:
        self.count[0] += 1
        return self.fc(x)

    effect(way, forward, lambda n: n.count.copy(), count=numpy.zeros(1))
    effect(way, forward_in_place, lambda n: n.count.copy(), count=numpy.zeros(1))


@scenarios(compiled=False, ways=WHOLE)
def queue_that_fills(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.q.put(1)
        return self.fc(x)

    effect(way, forward, lambda n: n.q.qsize(), q=queue.Queue())
    effect(way, forward, lambda n: n.q.qsize(), q=queue.SimpleQueue())


@scenarios(compiled=False, ways=WHOLE, refused="environ")
def environment_written(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        os.environ["FIDELITY_CALLS"] = str(int(os.environ["FIDELITY_CALLS"]) + 1)
        return self.fc(x)

    os.environ["FIDELITY_CALLS"] = "0"
    effect(way, forward, lambda n: os.environ["FIDELITY_CALLS"])


@scenarios(compiled=False, ways=WHOLE, refused="warnings.warn")
def warning(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        warnings.warn("careful", UserWarning, stacklevel=1)
        return self.fc(x)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        effect(way, forward, lambda n: None)
    way.see("warned", [str(w.message) for w in caught if "careful" in str(w.message)])


@scenarios(compiled=False, ways=WHOLE)
def thread_started(way: Way) -> None:
    ran: list[int] = []

    def forward(self: Any, x: Any) -> Any:
        thread = threading.Thread(target=lambda: ran.append(1))
        thread.start()
        thread.join()
        return self.fc(x)

    effect(way, forward, lambda n: len(ran))


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@scenarios(compiled=None)
def logging_switched_on_later(way: Way) -> None:
    logger, kept = logging.getLogger("fidelity"), _Kept()
    logger.handlers, logger.propagate = [kept], False
    logger.setLevel(logging.WARNING)

    def forward(self: Any, x: Any) -> Any:
        logger.info("called")
        return self.fc(x)

    follow(way, layer_of(forward), lambda n: logger.setLevel(logging.INFO))
    way.see("messages", list(kept.messages))


# -- writes to tensors -----------------------------------------------------------------------------


def buffer_scenario(write: Any) -> Any:
    """A scenario whose forward writes to ``self.buf`` with ``write(self, y)``."""

    def scenario(way: Way) -> None:
        def forward(self: Any, x: Any) -> Any:
            y = self.fc(x)
            write(self, y)
            return y

        layer = layer_of(forward)
        layer.register_buffer("buf", paddle.zeros([4]))
        follow(way, layer)
        way.see("buffer", layer.buf)

    return scenario


def _assign_attribute(self: Any, y: Any) -> None:
    self.buf = self.buf + y.sum(0)


def _setitem(self: Any, y: Any) -> None:
    self.buf[0] = y.sum()


WRITES = {
    "add_": lambda self, y: self.buf.add_(y.sum(0)),
    "add_constant": lambda self, y: self.buf.add_(paddle.ones([4])),
    "assign": lambda self, y: paddle.assign(self.buf + y.sum(0), self.buf),
    "set_value": lambda self, y: self.buf.set_value(self.buf + y.sum(0)),
    "copy_": lambda self, y: self.buf.copy_(self.buf + y.sum(0), True),
    "increment": lambda self, y: paddle.increment(self.buf[0:1]),
    "setitem": _setitem,
    "attribute": _assign_attribute,
    "scale_": lambda self, y: self.buf.add_(paddle.ones([4])).scale_(2.0),
    "view": lambda self, y: self.buf[0].add_(paddle.ones([])),
    "reshaped": lambda self, y: self.buf.reshape([2, 2]).add_(paddle.ones([2, 2])),
    "detached": lambda self, y: self.buf.detach().add_(paddle.ones([4])),
}


@pytest.mark.parametrize("name", WRITES)
def test_buffer_written_in_forward(name: str) -> None:
    check(buffer_scenario(WRITES[name]), compiled=False, ways=WHOLE)


@scenarios(compiled=False, ways=WHOLE, refused="argument")
def argument_written(way: Way) -> None:
    def write(x: Any) -> Any:
        x.add_(paddle.ones_like(x))
        return x * 2

    write = way.boost(write)
    x = numbers(2, 4)
    with paddle.no_grad():
        way.see("result", way.hot(write, x))
    way.see("argument", x)


@scenarios(compiled=False, ways=WHOLE)
def argument_written_through_a_view(way: Way) -> None:
    def write(x: Any) -> Any:
        x[0].add_(paddle.ones([4]))
        return x * 2

    write = way.boost(write)
    x = numbers(2, 4)
    with paddle.no_grad():
        way.see("result", way.hot(write, x))
    way.see("argument", x)


@scenarios(compiled=False, ways=WHOLE)
def argument_list_grows(way: Way) -> None:
    def write(x: Any, cache: list[Any]) -> Any:
        cache.append(x)
        return paddle.concat(cache)

    write = way.boost(write)
    cache: list[Any] = []
    with paddle.no_grad():
        way.see("result", way.hot(write, numbers(2, 4), cache))
    way.see("cache", cache)


@scenarios(compiled=False, ways=WHOLE)
def argument_dict_filled(way: Way) -> None:
    def write(x: Any, out: dict[str, Any]) -> Any:
        out["double"] = x * 2
        return x + 1

    write = way.boost(write)
    out: dict[str, Any] = {}
    with paddle.no_grad():
        way.see("result", way.hot(write, numbers(2, 4), out))
        out.clear()
        way.see("again", way.hot(write, numbers(2, 4, seed=1), out))
    way.see("out", out)


# -- values of tensors that Python asks for --------------------------------------------------------


def question_scenario(ask: Any) -> Any:
    """A scenario of ``x * ask(x)``, where ``ask`` answers by the values of ``x``: first with one
    answer until it is hot, then with the other."""

    def scenario(way: Way) -> None:
        function = way.boost(lambda x: x * ask(x))
        with paddle.no_grad():
            way.see("hot", way.hot(function, paddle.to_tensor([-9.0, -1.0])))
            way.see("other values", function(paddle.to_tensor([1.0, 2.0])))

    return scenario


def _sum(x: Any) -> Any:
    return x.astype("int64").sum()


def _caught(x: Any) -> float:
    try:
        return float(x.sum())
    except Exception:  # what a trace raises in it
        return -10.0


def _iterated(x: Any) -> int:
    return sum(1 for _ in paddle.nonzero(x > 0))


QUESTIONS: dict[str, Any] = {
    "dict_get": lambda x: {3: 5.0}.get(_sum(x).item(), 1.0),
    "in_set": lambda x: 2.0 if _sum(x).item() in {3} else 3.0,
    "text": lambda x: {"3": 5.0}.get(f"{_sum(x).item()}", 1.0),
    "repr": lambda x: {"3": 5.0}.get(repr(_sum(x).item()), 1.0),
    "is_float": lambda x: 2.0 if isinstance(x.sum().item(), float) else 3.0,
    "caught": _caught,
    "rows": lambda x: 2.0 if paddle.nonzero(x > 0).shape[0] > 1 else 3.0,
    "length": lambda x: 2.0 if len(paddle.nonzero(x > 0)) > 1 else 3.0,
    "iterated": _iterated,
    "missing": lambda x: 2.0 if getattr(x, "data_ptr", None) is not None else 3.0,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_value_asked_for(name: str) -> None:
    check(question_scenario(QUESTIONS[name]), compiled=False, ways=WHOLE)


def _same_list_twice(x: Any) -> Any:
    parts = [x * 2]
    return parts, parts


KEPT = ["a", "b"]
IDENTITIES: dict[str, Any] = {
    "twice": (_same_list_twice, lambda r, given: r[0] is r[1]),
    "global": (lambda x: (x * 2, KEPT), lambda r, given: r[1] is KEPT),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_of_lists(name: str) -> None:
    make, see = IDENTITIES[name]

    def scenario(way: Way) -> None:
        function = way.boost(lambda x: make(x))
        with paddle.no_grad():
            way.see("same", see(way.hot(function, numbers(2, 4)), None))

    check(scenario, compiled=False, ways=WHOLE)


@scenarios(compiled=False, ways=WHOLE, refused="that it was given")
def argument_list_returned(way: Way) -> None:
    function = way.boost(lambda parts: (parts, parts[0] * 2))
    given = [numbers(2, 4)]
    with paddle.no_grad():
        way.see("same", way.hot(function, given)[0] is given)


@scenarios(compiled=False, ways=WHOLE, refused="changes a container")
def list_filled_and_cleared(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        self.parts.append(self.fc(x))
        result = paddle.concat(self.parts)
        self.parts.clear()
        return result

    effect(way, forward, lambda n: len(n.parts), parts=[])


@scenarios()
def list_filled_by_the_first_call(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        if not self.scales:
            self.scales.append(2.0)
        return self.fc(x) * self.scales[0]

    effect(way, forward, lambda n: list(n.scales), scales=[])


# -- code that must stay compiled ------------------------------------------------------------------

PLAIN_TENSORS = [paddle.to_tensor([1.0, 2.0, 3.0, 4.0]), paddle.to_tensor([3, 1, 2, 0])]
MIXED: dict[str, Any] = {
    "tensor_right": lambda x: x + PLAIN_TENSORS[0] * 2,
    "tensor_left": lambda x: PLAIN_TENSORS[0] * x - PLAIN_TENSORS[0],
    "matmul": lambda x: x @ PLAIN_TENSORS[0],
    "compare": lambda x: paddle.where(PLAIN_TENSORS[0] > x, x, -x),
    "index": lambda x: x[:, PLAIN_TENSORS[1]],
    "indexed": lambda x: x * PLAIN_TENSORS[0][1:2],
    "tensor_alone": lambda x: x * PLAIN_TENSORS[0].clone().T,
    "length": lambda x: x * len(x) + sum(row.sum() for row in x),
    "place": lambda x: x + paddle.to_tensor([1.0], place=x.place),
    "shape_op": lambda x: (x * 2).reshape([paddle.shape(x)[1], -1]),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_from_a_list_are_compiled(name: str, recwarn: Any) -> None:
    def scenario(way: Way) -> None:
        function = way.boost(lambda x: MIXED[name](x))
        with paddle.no_grad():
            way.see("hot", way.hot(function, numbers(3, 4)))
            way.see("other values", function(numbers(3, 4, seed=1)))

    check(scenario)
    assert [str(w.message) for w in recwarn if "graph mode" in str(w.message)] == []


# -- random numbers of Paddle ----------------------------------------------------------------------


@scenarios()
def a_compile_draws_no_random_numbers(way: Way) -> None:
    paddle.seed(1)
    follow(way, layer_of(lambda self, x: F.relu(self.fc(x))))
    way.see("paddle", paddle.rand([4]))
    way.see("numpy", numpy.random.rand(4))
    way.see("python", random.random())


def random_scenario(draw: Any, x: Any) -> Any:
    """A scenario of a function that draws: the same numbers, and as many of them, as in eager."""

    def scenario(way: Way) -> None:
        function = way.boost(lambda value: draw(value))
        paddle.seed(1)
        with paddle.no_grad():
            way.see("hot", way.hot(function, x))
            way.see("next", function(x))
        way.see("afterwards", paddle.rand([4]))

    return scenario


DRAWS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "dropout": (lambda x: F.dropout(x, 0.5, training=True), (4, 8)),
    "dropout2d": (lambda x: F.dropout2d(x, 0.5, training=True), (1, 4, 3, 3)),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.5, training=True), (4, 8)),
    "rrelu": (lambda x: F.rrelu(x, training=True), (4, 8)),
    "randn": (lambda x: x + paddle.randn([4, 8]), (4, 8)),
    "rand_like": (lambda x: x + paddle.rand(x.shape), (4, 8)),
    "normal": (lambda x: x + paddle.normal(shape=[4, 8]), (4, 8)),
    "randint": (lambda x: x + paddle.randint(0, 5, [4, 8]).astype("float32"), (4, 8)),
    "randperm": (lambda x: x[paddle.randperm(4)], (4, 8)),
    "bernoulli": (lambda x: paddle.bernoulli(F.sigmoid(x)), (4, 8)),
    "multinomial": (lambda x: paddle.multinomial(F.softmax(x), 2), (4, 8)),
    "poisson": (lambda x: paddle.poisson(F.relu(x)), (4, 8)),
    "uniform_": (lambda x: paddle.zeros_like(x).uniform_(), (4, 8)),
    "exponential_": (lambda x: paddle.zeros_like(x).exponential_(), (4, 8)),
    "normal_": (lambda x: paddle.zeros_like(x).normal_(), (4, 8)),
    "gumbel_softmax": (lambda x: F.gumbel_softmax(x), (4, 8)),
    "gumbel_softmax_sure": (lambda x: F.gumbel_softmax(x * 1000, hard=True), (1, 3)),
    "fractional_max_pool2d": (lambda x: F.fractional_max_pool2d(x, 2), (1, 2, 6, 6)),
    "fractional_max_pool3d": (lambda x: F.fractional_max_pool3d(x, 2), (1, 2, 6, 6, 6)),
    "top_p_sampling": (
        lambda x: paddle.tensor.top_p_sampling(F.softmax(x), paddle.full([4], 0.5))[0],
        (4, 8),
    ),
    "shuffle": (lambda x: paddle.incubate.nn.functional.fused_dropout_add(x, x, 0.5), (4, 8)),
    "sdpa_dropout": (
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, training=True),
        (1, 4, 2, 8),
    ),
    "lstm_dropout": (
        lambda x: _LSTM(x)[0],
        (2, 5, 4),
    ),
}


class _TrainModeLSTM(nn.LSTM):
    """Made once, so that both ways use the same weights."""


_LSTM = _TrainModeLSTM(4, 4, num_layers=2, dropout=0.5)


@pytest.mark.parametrize("name", DRAWS)
def test_random_ops_draw_as_in_eager(name: str) -> None:
    draw, shape = DRAWS[name]
    try:
        draw(numbers(*shape))
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"this build of Paddle cannot run it: {str(error)[:80]}")
    check(random_scenario(draw, numbers(*shape)), compiled=False, ways=WHOLE)


@pytest.mark.parametrize(("scenario", "expected"), scenarios.params)
def test_effects(scenario: Any, expected: dict[str, Any]) -> None:
    check(scenario, **expected)


def test_a_compile_leaves_no_output_and_no_files(capfd: Any, tmp_path: Path) -> None:
    def temporary() -> set[str]:
        found = set()
        for folder in ("/tmp", "/dev/shm"):
            found |= {str(path) for path in Path(folder).glob("pfb*")}
        return found

    before, here = temporary(), os.getcwd()
    with pfb.override(sync=True, hot_calls=1, min_gain=0.0), paddle.no_grad():
        layer = pfb.to_static(layer_of(lambda self, x: F.relu(self.fc(x))))
        for _ in range(4):
            layer(numbers(2, 4))
    assert pfb.explain(layer).state == "compiled"
    assert capfd.readouterr() == ("", "")
    assert temporary() == before
    assert os.getcwd() == here
