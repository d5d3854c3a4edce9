"""Helpers for tests of graphs and passes: capture a layer, run passes, compare with eager."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import paddle
from paddle import nn

from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.ir import reference
from paddle_fluid_boost.ir.graph import Graph
from paddle_fluid_boost.ir.importer import import_program
from paddle_fluid_boost.ir.printer import print_graph
from paddle_fluid_boost.ir.verify import verify
from paddle_fluid_boost.passes.base import Pass, PassRecord

_GOLDEN = pathlib.Path(__file__).parent.parent / "passes" / "golden"


@contextlib.contextmanager
def fresh_names(seed: int = 0) -> Iterator[None]:
    """Parameters made inside are called the same and hold the same in every run."""
    paddle.seed(seed)
    with paddle.utils.unique_name.guard():
        yield


def calibrated(layer: nn.Layer) -> nn.Layer:
    """``layer`` in eval mode, with biases and statistics that would show a wrong fold."""
    rng = np.random.RandomState(7)
    for parameter in layer.parameters():
        if parameter.name.split(".")[-1].startswith("b_"):
            parameter.set_value(rng.uniform(-0.2, 0.2, parameter.shape).astype("float32"))
    for sub in layer.sublayers(include_self=True):
        if isinstance(sub, nn.layer.norm._BatchNormBase):
            count = sub._mean.shape[0]
            sub._mean.set_value(rng.uniform(-0.2, 0.2, count).astype("float32"))
            sub._variance.set_value(rng.uniform(0.5, 1.5, count).astype("float32"))
            sub.weight.set_value(rng.uniform(0.5, 1.5, count).astype("float32"))
            sub.bias.set_value(rng.uniform(-0.2, 0.2, count).astype("float32"))
    layer.eval()
    return layer


def random_input(*shape: int, seed: int = 1) -> Any:
    """Normal float32 numbers."""
    return paddle.to_tensor(np.random.RandomState(seed).randn(*shape).astype("float32"))


def graph_of(call: Callable[..., Any], inputs: Sequence[Any]) -> Graph:
    """The imported graph of ``call(*inputs)``."""
    with paddle.no_grad():
        captured, _ = trace(call, inputs, {})
    graph = import_program(captured)
    verify(graph)
    return graph


def eager(call: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """What eager returns, flattened to a list of tensors."""
    with paddle.no_grad():
        return [t for t in paddle.utils.flatten(call(*inputs)) if isinstance(t, paddle.Tensor)]


def relative_error(got: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference of any output, relative to that output's largest magnitude."""
    assert len(got) == len(wanted)
    worst = 0.0
    for mine, theirs in zip(got, wanted):
        assert list(mine.shape) == list(theirs.shape)
        assert mine.dtype == theirs.dtype
        if mine.size:
            a, b = mine.numpy().astype("float64"), theirs.numpy().astype("float64")
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


@dataclass
class Outcome:
    """What passes made of a layer: the graph, the last pass's record, the error against eager."""

    graph: Graph
    record: PassRecord
    error: float

    @property
    def text(self) -> str:
        return print_graph(self.graph)

    @property
    def ops(self) -> list[str]:
        return [node.op for node in self.graph.nodes]


def after_passes(
    call: Callable[..., Any], inputs: Sequence[Any], passes: Sequence[Pass]
) -> Outcome:
    """Captures ``call``, runs ``passes`` with the verifier after each, compares with eager."""
    graph = graph_of(call, inputs)
    record = PassRecord("none")
    for one in passes:
        record = one.run(graph)
        verify(graph)
    got = reference.run(graph, [t for t in inputs if isinstance(t, paddle.Tensor)])
    return Outcome(graph, record, relative_error(got, eager(call, inputs)))


def assert_golden(outcome: Outcome, name: str) -> None:
    """The printed graph is the text in ``tests/passes/golden/<name>.txt``.

    ``PFB_WRITE_GOLDEN=1`` writes the files instead: read the diff before committing it.
    """
    path = _GOLDEN / f"{name}.txt"
    if os.environ.get("PFB_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(outcome.text)
    assert outcome.text == path.read_text()
