"""Branches and loops on tensors: compiled where that is right for every value, refused elsewhere.

Each function is compiled from one call, which takes one branch, and then compared with eager for
the others: both signs, several numbers of turns, none included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

import paddle_fluid_boost as pfb
from paddle_fluid_boost.engines.native import NativeEngine

cond, while_loop = paddle.static.nn.cond, paddle.static.nn.while_loop
ENGINES = ["paddle_inference"] + ["native"] * (NativeEngine().unavailable() is None)
SIGNS, TURNS = (1.0, -1.0), (0, 1, 2, 3, 40)


@pytest.fixture(autouse=True)
def forced() -> Iterator[None]:
    """Everything that can be compiled is, at once, in this thread."""
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        yield
    pfb.uninstall()


def zero() -> Any:
    return paddle.zeros([1], "int64")


def up_to(n: Any, turn: Callable[..., Any], *start: Any) -> Any:
    """``n`` turns of a loop whose state behind the counter begins with ``start``."""
    body = lambda i, *state: [i + 1, *turn(*state)]  # noqa: E731
    return while_loop(lambda i, *state: i < n, body, [zero(), *start])[1:]


# -- what is compiled ----------------------------------------------------------------------------


def both_sides(x: Any, n: Any) -> Any:
    return cond(x.mean() > 0, lambda: F.relu(x) * 2, lambda: paddle.tanh(x) - 1)


def one_side_gives_back_what_it_has(x: Any, n: Any) -> Any:
    return cond(x.mean() > 0, lambda: x, lambda: x * 2) + 1.0


def same_number_from_both(x: Any, n: Any) -> Any:
    factor, y = cond(x.mean() > 0, lambda: (2, x + 1), lambda: (2, x - 1))
    return y * factor


def nothing_from_either(x: Any, n: Any) -> Any:
    cond(x.mean() > 0, lambda: None, lambda: None)
    return x * 2


def cases(x: Any, n: Any) -> Any:
    pairs = [(x.sum() > 15, lambda: x + 1), (x.sum() > 0, lambda: x * 2)]
    return paddle.static.nn.case(pairs, default=lambda: x - 3)


def switch(x: Any, n: Any) -> Any:
    return paddle.static.nn.switch_case(n, [lambda: x + 1, lambda: x * 2, lambda: paddle.exp(x)])


def switch_with_default(x: Any, n: Any) -> Any:
    branches = {1: lambda: x + 1, 3: lambda: x * 2}
    return paddle.static.nn.switch_case(n, branches, default=lambda: x - 7)


def loop(x: Any, n: Any) -> Any:
    (y,) = up_to(n, lambda y: [y * 0.5 + x], paddle.assign(x))
    return y


def loop_that_keeps_a_part(x: Any, n: Any) -> Any:
    return up_to(n, lambda y, z: [y * 0.5 + z, z], x * 1.0, x * 3.0)[0]


def loop_until_small(x: Any, n: Any) -> Any:
    (y,) = while_loop(lambda y: y.abs().max() > 0.1, lambda y: [y * 0.7], [x * 1.0])
    return y + x


def branch_and_loop_in_a_loop(x: Any, n: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        y = cond(y.sum() > 4, lambda: y * 0.25, lambda: y + 1)
        inner = [zero(), y * 1.0]
        z = while_loop(lambda j, z: j < paddle.minimum(i, zero() + 2), grow, inner)[1]
        return [i + 1, z * 0.5]

    def grow(j: Any, z: Any) -> Any:
        return [j + 1, z + x]

    return while_loop(lambda i, y: i < n, turn, [zero(), x * 1.0])[1]


def condition_is_nan(x: Any, n: Any) -> Any:
    """Only the condition is not a number: neither inputs nor results are."""
    bad = paddle.log(x.min() * 0.0 - 1.0)
    return cond(bad > 0, lambda: x + 1, lambda: cond(bad <= 0, lambda: x * 2, lambda: x - 3))


COMPILED = [
    both_sides, one_side_gives_back_what_it_has, same_number_from_both, nothing_from_either, cases,
    switch, switch_with_default, loop, loop_that_keeps_a_part, loop_until_small,
    branch_and_loop_in_a_loop, condition_is_nan,
]  # fmt: skip


def arguments(sign: float, turns: int) -> list[Any]:
    steps = paddle.linspace(0.1, 1.0, 20).reshape([4, 5])
    return [steps * sign, paddle.to_tensor([turns])]


def compiled(function: Callable[..., Any], engine: str, *args: Any) -> Any:
    boosted = pfb.to_static(function)
    with pfb.override(engines=engine):
        for _ in range(4):
            boosted(*args)
    return boosted


def assert_like_eager(boosted: Any, function: Callable[..., Any]) -> None:
    for sign in SIGNS:
        for turns in TURNS:
            given = arguments(sign, turns)
            want = np.asarray(function(*given))
            got = np.asarray(boosted(*given))
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"{sign} {turns}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("function", COMPILED, ids=lambda f: f.__name__)
def test_compiled_from_one_branch_and_right_in_all(function: Any, engine: str) -> None:
    boosted = compiled(function, engine, *arguments(1.0, 3))
    report = pfb.explain(boosted)
    assert report.state == "compiled", report
    assert report.signatures[0].engine == engine
    assert_like_eager(boosted, function)


class Experts(nn.Layer):
    """One of two layers by what the input says; the second is not run by the observed call."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 5)
        self.scale = 1.0

    def forward(self, x: Any) -> Any:
        return cond(x.mean() > 0, lambda: self.one(x), lambda: self.two(x) * self.scale)


def test_state_of_the_branch_that_was_not_taken_is_guarded() -> None:
    net = Experts()
    net.eval()
    x, _ = arguments(1.0, 0)
    boosted = compiled(net, ENGINES[-1], x)
    assert pfb.explain(boosted).state == "compiled"
    eager = lambda: np.asarray(Experts.forward(net, -x))  # noqa: E731
    np.testing.assert_allclose(np.asarray(boosted(-x)), eager(), rtol=1e-5, atol=1e-6)
    net.scale = 3.0  # which the observed call has not read
    np.testing.assert_allclose(np.asarray(boosted(-x)), eager(), rtol=1e-5, atol=1e-6)
    net.two.weight.set_value(net.two.weight * 2)
    np.testing.assert_allclose(np.asarray(boosted(-x)), eager(), rtol=1e-5, atol=1e-6)


# -- what is refused: the program ----------------------------------------------------------------


def gives_back_its_input(x: Any, n: Any) -> Any:
    return cond(x.mean() > 0, lambda: x * 2, lambda: x)


def gives_back_a_view_of_its_input(x: Any, n: Any) -> Any:
    return cond(x.mean() > 0, lambda: x.T * 2, lambda: x.T)


def one_tensor_twice(x: Any, n: Any) -> Any:
    return cond(x.mean() > 0, lambda: (x * 2, x * 3), lambda: (lambda y: (y, y))(x * 4))


def other_shape(x: Any, n: Any) -> Any:
    return cond(x.mean() > 0, lambda: x * 2, lambda: x[:1] * 2)


def other_dtype(x: Any, n: Any) -> Any:
    return cond(x.mean() > 0, lambda: x * 2, lambda: (x * 2).astype("float64"))


def other_number(x: Any, n: Any) -> Any:
    return x * cond(x.mean() > 0, lambda: 2, lambda: 3)


def starts_from_its_input(x: Any, n: Any) -> Any:
    return up_to(n, lambda y: [y * 0.5], x.reshape([5, 4]))[0] + 1.0


def starts_from_what_is_read_later(x: Any, n: Any) -> Any:
    start = x * 2
    return up_to(n, lambda y: [y * 0.5], start)[0] + start


def starts_from_what_a_turn_reads(x: Any, n: Any) -> Any:
    start = x * 2
    return up_to(n, lambda y: [y * 0.5 + start], start)[0]


def starts_twice_from_one(x: Any, n: Any) -> Any:
    start = x * 2
    return up_to(n, lambda y, z: [y * 0.5, z + 1], start, start)[0]


def swaps(x: Any, n: Any) -> Any:
    return up_to(n, lambda y, z: [z, y], x * 1, x * 2)[0]


def carries_a_number(x: Any, n: Any) -> Any:
    factor, y = up_to(n, lambda k, y: [k + 1, y * 0.5], 0, x * 1.0)
    return y * factor


PROGRAMS = {
    gives_back_its_input: "a tensor that it was given",
    gives_back_a_view_of_its_input: "a tensor that it was given",
    one_tensor_twice: "one tensor in two places",
    other_shape: "they must agree",
    other_dtype: "they must agree|The dtype in output",
    other_number: "different values that are no tensors",
    starts_from_its_input: "one of its inputs or parameters|one of its arguments",
    starts_from_what_is_read_later: "reads a tensor that a while_loop started from",
    starts_from_what_a_turn_reads: "reads a tensor that a while_loop started from",
    starts_twice_from_one: "overwrites a tensor from outside of it|started from",
    swaps: "hands one part of the state on as another",
    carries_a_number: "carries what is not a tensor",
}


@pytest.mark.parametrize("function", list(PROGRAMS), ids=lambda f: f.__name__)
def test_programs_that_eager_would_not_run_so_are_refused(function: Any) -> None:
    boosted = compiled(function, ENGINES[-1], *arguments(1.0, 3))
    report = pfb.explain(boosted)
    assert report.state != "compiled"
    assert any(map(_matches(PROGRAMS[function]), report.refusals)), report.refusals


# -- what is refused: Python in a branch that was not taken ----------------------------------------

LOG: list[str] = []
HEAP: list[int] = []


class Effects(nn.Layer):
    """``what`` says which effect the second branch would have."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.said = what, 0

    def forward(self, x: Any) -> Any:
        return cond(x.mean() > 0, lambda: x * 2, lambda: getattr(self, self.what)(x))

    def attribute(self, x: Any) -> Any:
        self.said = 1
        return x * 3

    def said_aloud(self, x: Any) -> Any:
        print("never", end="")
        return x * 3

    def logged(self, x: Any) -> Any:
        LOG.append("never")
        return x * 3

    def queued(self, x: Any) -> Any:
        import heapq

        heapq.heappush(HEAP, 1)
        return x * 3

    def stored(self, x: Any) -> Any:
        LOG[0:0] = ["never"]
        return x * 3

    def drawn(self, x: Any) -> Any:
        return x * float(np.random.rand())

    def weight(self, x: Any) -> Any:
        paddle.nn.initializer.Constant(0.0)
        return x * 3 + paddle.rand([4, 5])


EFFECTS = {
    "attribute": "writes the attribute 'said', inside a branch",
    "said_aloud": "calls print()",
    "logged": "calls append() inside a branch",
    "queued": "calls heappush() inside a branch",
    "stored": "may change something in place, inside a branch",
    "drawn": "uses numpy inside a branch",
    "weight": "draws random numbers",
}


@pytest.mark.parametrize("what", list(EFFECTS))
def test_effects_of_a_branch_that_was_not_taken_are_refused_before_they_happen(
    what: str, capsys: Any
) -> None:
    net = Effects(what)
    net.eval()
    x, _ = arguments(1.0, 0)
    state = np.random.get_state()[1].copy()
    boosted = compiled(net, ENGINES[-1], x)
    report = pfb.explain(boosted)
    assert report.state != "compiled"
    assert any(map(_matches(EFFECTS[what]), report.refusals)), report.refusals
    assert net.said == 0 and not LOG and not HEAP
    assert "never" not in capsys.readouterr().out
    np.testing.assert_array_equal(np.random.get_state()[1], state)


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda refusal: any(part in str(refusal) for part in pattern.split("|"))
