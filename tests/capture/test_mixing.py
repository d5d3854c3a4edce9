"""Eager tensors and symbols in one expression, and questions that only a value could answer."""

import threading
import warnings

import paddle
import pytest

from paddle_fluid_boost.capture import _paddle as pd
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.mixing import mixing
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.errors import CaptureRefused

T = paddle.to_tensor([1.0, 2.0])
INDEX = paddle.to_tensor([1, 0])


@pytest.fixture(autouse=True)
def traces_allowed():
    was_open = STATIC_LOCK._open
    STATIC_LOCK.open()
    yield
    if not was_open:
        STATIC_LOCK.close()


def ops(function):
    with paddle.no_grad():
        captured, _ = trace(function, [paddle.to_tensor([3.0, 4.0])], {})
    return [op.name().partition(".")[2] for op in captured.program.global_block().ops]


MIXED = {
    "add": (lambda x: x + T, "add"),
    "radd": (lambda x: T + x, "add"),
    "rsub": (lambda x: T - x, "subtract"),
    "matmul": (lambda x: T @ x, "matmul"),
    "compare": (lambda x: T.__lt__(x), "less_than"),
    "two eager": (lambda x: x * (T + T), "multiply"),
    "index": (lambda x: x[INDEX], "gather_nd"),
    "indexed": (lambda x: T[0] * x, "multiply"),
    "alone": (lambda x: x + T.clone().T, "add"),
}


@pytest.mark.parametrize("name", MIXED)
def test_eager_tensor_becomes_a_parameter(name):
    function, op = MIXED[name]
    found = ops(function)
    assert "parameter" in found and op in found


QUESTIONS = {
    "item": lambda x: (x.sum().item(), x),
    "hash": lambda x: {}.get(x, x),
    "text": lambda x: f"{x}" and x,
    "name": lambda x: x.name and x,
    "attribute": lambda x: x * hasattr(x, "data_ptr"),
    "own attribute": lambda x: x * getattr(x, "set_by_the_user", 1),
    "eager value": lambda x: x * T.numpy().sum(),
    "eager text": lambda x: str(T) and x,
    "shape": lambda x: x * paddle.nonzero(x).shape[0],
    "length": lambda x: x * len(paddle.nonzero(x)),
    "rows": lambda x: list(paddle.nonzero(x)),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("swallowed", [False, True])
def test_question_is_refused_with_its_line(name, swallowed):
    def function(x):
        try:
            return QUESTIONS[name](x)
        except Exception:
            if swallowed:
                return x
            raise

    with pytest.raises(CaptureRefused, match="asks a tensor for") as refused:
        ops(function)
    assert __file__ in refused.value.where


def test_questions_of_paddle_itself_are_none():
    layer = paddle.nn.Sequential(paddle.nn.Linear(2, 2), paddle.nn.Softmax())
    layer.eval()
    assert "softmax" in ops(layer)


def test_place_is_that_of_eager_mode_and_nothing_warns():
    places = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ops(lambda x: places.append(x.place) or x.contiguous().clone().add_(T))
    assert places == [T.place]
    assert [w for w in caught if "graph mode" in str(w.message)] == []


def test_classes_are_as_they_were():
    before = {cls: dict(cls.__dict__) for cls in (pd.Value, pd.EagerTensor)}
    ops(lambda x: x + T)
    with pytest.raises(CaptureRefused):
        ops(lambda x: x.sum().item())
    for cls, attributes in before.items():
        assert dict(cls.__dict__) == attributes


def test_other_threads_keep_eager_mode_meanwhile():
    results = []

    def eager():
        results.append((float((T + T)[1]), str(T[0]), T.numpy().tolist(), len(T)))

    with STATIC_LOCK, mixing():
        thread = threading.Thread(target=eager)
        thread.start()
        thread.join()
    eager()
    assert results[0] == results[1]
