"""Runs one scenario in eager mode and again boosted, and compares everything it observed.

A scenario is a function of a :class:`Way`.  It makes its layers and functions through
``way.boost``, heats them with ``way.hot`` and notes what a user could see with ``way.see``.  In
the boosted ways ``hot`` also says whether a compiled version really serves: a comparison in which
nothing was compiled proves nothing.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy
import paddle
import pytest

import paddle_fluid_boost as pfb

#: Calls that make a function hot: one observed, one that confirms, one compiled, one to spare.
WARM = 4
FORCED: dict[str, Any] = {"sync": True, "hot_calls": 1, "min_gain": 0.0}


class Way:
    """Eager mode; the base of the others."""

    name = "eager"

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.compiled: list[bool] = []
        self.reports: list[Any] = []
        self.last: Any = None

    def boost(self, target: Any) -> Any:
        return target

    def hot(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls ``function`` until it could be compiled; its last result."""
        result = None
        for _ in range(WARM):
            result = function(*args, **kwargs)
        self._look(function)
        return result

    def _look(self, function: Any) -> None:
        self.last = function

    def see(self, label: str, value: Any) -> None:
        """Notes something a user can see: a deep copy, tensors as numpy."""
        self.seen.append((label, freeze(value)))


class ToStatic(Way):
    """Under ``pfb.to_static``."""

    name = "to_static"

    def boost(self, target: Any) -> Any:
        return pfb.to_static(target)

    def _look(self, function: Any) -> None:
        self.last = function
        report = pfb.explain(function).to_dict()
        self.reports.append(report)
        self.compiled.append(_is_compiled(report))


class Auto(ToStatic):
    """Under ``pfb.install(auto=True)``: layers are watched with no decorator."""

    name = "auto"

    def boost(self, target: Any) -> Any:
        if not isinstance(target, paddle.nn.Layer):
            return pfb.to_static(target)
        return target


def _is_compiled(report: dict[str, Any]) -> bool:
    if any(s["state"] == "compiled" and s["engine"] for s in report["signatures"]):
        return True
    return any(map(_is_compiled, report["parts"]))


def freeze(value: Any) -> Any:
    """A picture of ``value`` that later writes cannot reach."""
    if isinstance(value, paddle.Tensor):
        wide = (
            value.astype("float32") if value.dtype in (paddle.bfloat16, paddle.float16) else value
        )
        return (str(value.dtype), list(value.shape), value.stop_gradient, wide.numpy().copy())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value).__name__, [freeze(item) for item in value])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [freeze(item) for item in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(key, freeze(item)) for key, item in value.items()])
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value))
    return copy.deepcopy(value)


def unlike(got: Any, want: Any, path: str) -> str | None:
    """Where two frozen pictures differ, or None."""
    if type(got) is not type(want):
        return f"{path}: {type(got).__name__} {got!r:.80}, eager {type(want).__name__} {want!r:.80}"
    if isinstance(want, (list, tuple)):
        if len(got) != len(want):
            return f"{path}: {got!r:.120}, eager {want!r:.120}"
        pairs = enumerate(zip(got, want))
        return next((d for i, (a, b) in pairs if (d := unlike(a, b, f"{path}.{i}"))), None)
    if isinstance(want, numpy.ndarray):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{path}: {got.dtype}{got.shape}, eager {want.dtype}{want.shape}"
        tight = 1e-9 if want.dtype == numpy.float64 else 1e-4
        if numpy.issubdtype(want.dtype, numpy.inexact):
            if numpy.allclose(got, want, rtol=tight, atol=tight * 0.1, equal_nan=True):
                return None
        elif numpy.array_equal(got, want):
            return None
        return f"{path}: {got.ravel()[:4]}, eager {want.ravel()[:4]}"
    if isinstance(want, float) and want != want and got != got:
        return None
    return None if got == want else f"{path}: {got!r:.120}, eager {want!r:.120}"


def play(way: Way, scenario: Callable[[Way], None]) -> Way:
    """Runs ``scenario`` in one way, from the same seeds, and cleans up after it."""
    random.seed(7)
    numpy.random.seed(7)
    paddle.seed(7)
    try:
        if way.name == "eager":
            scenario(way)
            return way
        pfb.install(auto=way.name == "auto")
        with pfb.override(**FORCED):
            scenario(way)
    finally:
        pfb.uninstall()
    return way


def check(
    scenario: Callable[[Way], None],
    *,
    compiled: bool | None = True,
    ways: tuple[type[Way], ...] = (ToStatic, Auto),
    refused: str | None = None,
) -> None:
    """Asserts that the boosted ways show what eager shows.

    compiled: True when a compiled version must have served after the first ``hot``, False when
        none ever may, None when either will do.
    refused: a text that ``explain`` must give as a reason.
    """
    want = play(Way(), scenario)
    for kind in ways:
        got = play(kind(), scenario)
        labels, wanted = [label for label, _ in got.seen], [label for label, _ in want.seen]
        assert labels == wanted, f"{got.name}: saw {labels}, eager {wanted}"
        for (label, one), (_, other) in zip(got.seen, want.seen):
            difference = unlike(one, other, label)
            assert difference is None, f"{got.name}: {difference}"
        if compiled is True:
            assert got.compiled and got.compiled[0], f"{got.name}: never compiled: {got.reports}"
        elif compiled is False:
            assert not any(got.compiled), f"{got.name}: compiled, and must not be"
        if refused is not None:
            said = str(got.reports)
            assert refused in said, f"{got.name}: no reason says {refused!r}: {said}"


class Scenarios:
    """Collects scenarios, for one parametrized test of a file.

    ``@scenarios(compiled=..., refused=..., fault="...")``: ``fault`` says what is known to be wrong
    today; the test is then expected to fail, strictly.
    """

    def __init__(self) -> None:
        self.params: list[Any] = []

    def __call__(
        self, *, fault: str = "", **expected: Any
    ) -> Callable[[Callable[[Way], None]], Callable[[Way], None]]:
        def collect(scenario: Callable[[Way], None]) -> Callable[[Way], None]:
            marks = [pytest.mark.xfail(strict=True, reason=fault)] if fault else []
            self.params.append(pytest.param(scenario, expected, id=scenario.__name__, marks=marks))
            return scenario

        return collect


def numbers(*shape: int, seed: int = 0) -> paddle.Tensor:
    """float32 normal numbers that depend on ``seed`` alone."""
    return paddle.to_tensor(numpy.random.RandomState(seed).randn(*shape).astype("float32"))


class OneLinear(paddle.nn.Layer):
    """A layer with one Linear(4, 4), the same weights each time."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        values = numpy.random.RandomState(3).randn(4, 4).astype("float32")
        self.fc = paddle.nn.Linear(4, 4)
        self.fc.weight.set_value(values)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


def layer_of(forward: Callable[..., Any], **attributes: Any) -> OneLinear:
    """A OneLinear of a class of its own with that ``forward``, in eval mode."""
    layer: OneLinear = type("Net", (OneLinear,), {"forward": forward})(**attributes)
    layer.eval()
    return layer


@paddle.no_grad()
def follow(
    way: Way, layer: Any, *changes: Callable[[Any], Any], inputs: tuple[Any, ...] | None = None
) -> Any:
    """Heats ``layer``, then after each change looks at what it gives, at once and hot again."""
    inputs = (numbers(2, 4),) if inputs is None else inputs
    boosted = way.boost(layer)
    way.see("hot", way.hot(boosted, *inputs))
    for index, change in enumerate(changes):
        change(layer)
        way.see(f"after change {index}", boosted(*inputs))
        way.see(f"hot after change {index}", way.hot(boosted, *inputs))
    return boosted
