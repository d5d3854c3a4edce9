"""Traced ops carry no call stack; whoever else asks for one gets it."""

import threading
import traceback

import paddle
import pytest

from paddle_fluid_boost.capture.call_stacks import no_call_stacks
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.errors import CaptureRefused

_original = traceback.extract_stack


def _stack(limit=None):
    return traceback.extract_stack(limit=limit)


def test_a_trace_asks_for_no_stack(monkeypatch):
    asked = []
    monkeypatch.setattr(traceback, "extract_stack", lambda *a: asked.append(a) or _original(*a))
    captured, _ = trace(lambda x: paddle.tanh(x) + 1, (paddle.ones([2]),), {})
    assert "pd_op.tanh" in captured.op_names
    assert asked == []


def test_the_function_is_put_back_after_a_failed_trace_too():
    with pytest.raises(CaptureRefused):
        trace(lambda x: paddle.reshape(x, [7, 7]), (paddle.ones([2]),), {})
    assert traceback.extract_stack is _original


@pytest.mark.parametrize("limit", [None, 2])
def test_python_in_the_block_gets_its_own_stack(limit):
    with no_call_stacks():
        stack = _stack(limit)
        formatted = traceback.format_stack()
    assert stack[-1].name == "_stack"
    assert limit is None or len(stack) == limit
    assert "test_python_in_the_block" in formatted[-1]


def test_other_threads_get_their_stack():
    stacks = []
    with no_call_stacks():
        thread = threading.Thread(target=lambda: stacks.append(eval("traceback").extract_stack()))
        thread.start()
        thread.join()
    assert stacks[0]


def test_a_replacement_made_meanwhile_stays():
    def other(*args):
        return _original(*args)

    try:
        with no_call_stacks():
            traceback.extract_stack = other
        assert traceback.extract_stack is other
    finally:
        traceback.extract_stack = _original
