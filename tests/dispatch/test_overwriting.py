"""In-place calls on tensors of the call's own: compiled so that later readers see them.

A function is compiled from a call that its in-place calls leave as it is (a ``relu_`` of positive
numbers), so that the comparison with eager cannot tell; then it is called with numbers that they
change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

import paddle_fluid_boost as pfb
from paddle_fluid_boost.engines.native import NativeEngine

ENGINE = "paddle_inference" if NativeEngine().unavailable() else "native"


@pytest.fixture(autouse=True)
def forced() -> Iterator[None]:
    """Everything that can be compiled is, at once, in this thread."""
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0, engines=ENGINE):
        yield
    pfb.uninstall()


def function_of_paddle(x: Any) -> Any:
    t = x * 2
    F.relu_(t)
    return t


def method(x: Any) -> Any:
    t = x * 2
    t.clip_(0, 100)
    return t + 1


def result_and_old_name(x: Any) -> Any:
    t = x * 2
    u = t.clip_(0, 100)
    u.add_(paddle.minimum(x, x * 0))
    return t, t * 1, u


def one_after_the_other(x: Any) -> Any:
    t = x * 1
    t.clip_(0, 100)
    t[0] = F.relu(x[0] - 0.01)
    t.scale_(2.0)
    return t, x + t


def result_by_the_old_name(x: Any) -> Any:
    x = F.relu_(x * 2)
    return F.relu_(x - 0.1) * 2


def where(x: Any) -> Any:
    t = x * 1
    paddle.where_(x > 0, t, x * 0)
    return t


def masked(x: Any) -> Any:
    t = x * 1
    t[x < 0] = 0.0
    return t.masked_fill_(x < -1, 5.0)


def item(x: Any) -> Any:
    t = (x * 2).transpose([1, 0])
    t[0] = F.relu(t[0])
    t[1] = t[1] * 2
    return t + 1


def assigned(x: Any) -> Any:
    t = x * 1
    paddle.assign(F.relu(x), output=t)
    return t + 1


COMPILED = [
    function_of_paddle, method, result_and_old_name, one_after_the_other, result_by_the_old_name,
    where, masked, item, assigned,
]  # fmt: skip


def numbers() -> Any:
    return paddle.linspace(0.1, 1.0, 20).reshape([4, 5])


def boosted(function: Callable[..., Any]) -> Any:
    made = pfb.to_static(function)
    for _ in range(4):
        made(numbers())
    return made


def results(made: Any) -> list[Any]:
    return [np.asarray(one) for one in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("function", COMPILED, ids=lambda f: f.__name__)
def test_what_is_overwritten_is_seen_by_later_readers(function: Any) -> None:
    made = boosted(function)
    assert pfb.explain(made).state == "compiled", pfb.explain(made)
    for got, want in zip(results(made(-numbers())), results(function(-numbers()))):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def through_a_view(x: Any) -> Any:
    t = x * 2
    t.reshape([-1]).clip_(0, 100)
    return t + 1


def seen_by_a_view(x: Any) -> Any:
    t = x * 2
    first = t.clip_(0, 100)
    view = t.reshape([-1])
    first.add_(paddle.minimum(x, x * 0))
    return view + 1


def item_of_a_view(x: Any) -> Any:
    t = x * 2
    view = t.reshape([-1])
    view[0:10] = F.relu(view[0:10])
    return t + 1


def item_seen_by_a_view(x: Any) -> Any:
    t = x * 2
    view = t.reshape([-1])
    t[0] = F.relu(t[0])
    return view + 1


def new_shape(x: Any) -> Any:
    t = x * 2
    t.reshape_([-1])
    return x * t.shape[0]


def out(x: Any) -> Any:
    t = x * 1
    paddle.clip(t, 0, 100, out=t)
    return t


REFUSED = {
    through_a_view: "viewed Tensor in dygraph",
    seen_by_a_view: "reads it by another name",
    item_of_a_view: "has another name",
    item_seen_by_a_view: "has another name",
    new_shape: "changes the shape or type of a tensor in place",
    out: "passes out=",
}


@pytest.mark.parametrize("function", list(REFUSED), ids=lambda f: f.__name__)
def test_what_has_another_name_is_refused(function: Any) -> None:
    try:
        want = results(function(-numbers()))
    except TypeError:
        pytest.skip("this Paddle has no out=")
    made = boosted(function)
    report = pfb.explain(made)
    assert report.state != "compiled"
    assert any(REFUSED[function] in str(refusal) for refusal in report.refusals), report.refusals
    for got, expected in zip(results(made(-numbers())), want):
        np.testing.assert_array_equal(got, expected)
