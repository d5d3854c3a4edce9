"""What is looked at in every call, without any touch: layers' tables, classes, functions, names
that are absent, the environment, and objects that hide what they hold."""

import contextlib
import functools
import logging
import os
import threading
import types
import weakref

import paddle
import pytest

from paddle_fluid_boost.capture.observe import Observer
from paddle_fluid_boost.capture.state import take
from paddle_fluid_boost.errors import CaptureRefused

nn = paddle.nn
LOGGER = logging.getLogger("test_state_calls")


def snapshot(call, *args, roots=None):
    """What one observed call of ``call`` has read."""
    with Observer() as observation, paddle.no_grad():
        call(*args)
    snap = take(observation, roots or [("f", call)])
    assert snap.holds()
    return snap


def assert_seen(snap):
    """The quick check fails, and the exact one says why."""
    assert not snap.holds()
    assert snap.mismatch() is not None
    assert not snap.holds()


def net_and_snapshot():
    conv = nn.Conv2D(3, 4, 3)
    net = nn.Sequential(conv, nn.Sequential(nn.BatchNorm2D(4)), nn.ReLU())
    net.eval()
    net[0].register_forward_post_hook(lambda layer, inputs, output: output)
    x = paddle.ones([1, 3, 8, 8])
    net(x)
    return net, snapshot(net, x, roots=[("self", net)])


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net._sub_layers.update({"0": nn.Conv2D(3, 4, 3)}),
        lambda net: net._sub_layers.pop("2"),
        lambda net: net[1]._sub_layers.update(more=nn.ReLU()),
        lambda net: net[0]._parameters.update(weight=nn.Conv2D(3, 4, 3).weight),
        lambda net: net[0]._parameters.update(bias=None),
        lambda net: net[1][0]._parameters.clear(),
        lambda net: net[0]._forward_post_hooks.clear(),
        lambda net: net[2]._forward_pre_hooks.update({7: lambda layer, inputs: inputs}),
        lambda net: net[0]._stride.__setitem__(0, 2),
        lambda net: net[0].__dict__.update(forward=lambda x: x),
    ],
)
def test_layer_changed_behind_its_methods(change):
    net, snap = net_and_snapshot()
    change(net)
    assert_seen(snap)


def test_layer_put_back_serves_again():
    net, snap = net_and_snapshot()
    conv = net[0]
    net._sub_layers["0"] = nn.Conv2D(3, 4, 3)
    assert_seen(snap)
    net._sub_layers["0"] = conv
    assert snap.holds()


def test_parameter_of_one_equal_element_is_another_parameter():
    net = nn.Linear(1, 1)
    snap = snapshot(net, paddle.ones([1, 1]), roots=[("self", net)])
    other = paddle.create_parameter([1, 1], "float32")
    other.set_value(net.weight)
    net._parameters["weight"] = other
    assert_seen(snap)


@pytest.mark.parametrize("owner", [nn.Linear, paddle.nn.functional])
def test_paddle_patched(monkeypatch, owner):
    net = nn.Linear(2, 2)
    snap = snapshot(net, paddle.ones([1, 2]), roots=[("self", net)])
    monkeypatch.setattr(owner, "forward" if isinstance(owner, type) else "linear", lambda *a: a[1])
    assert_seen(snap)


def test_function_that_user_code_names(monkeypatch):
    snap = snapshot(lambda x: paddle.nn.functional.relu(x), paddle.ones([2]))
    monkeypatch.setattr(paddle.nn.functional, "relu", lambda x: x)
    assert_seen(snap)


def test_builtin_hidden_by_a_global(monkeypatch):
    snap = snapshot(lambda: abs(-1))
    monkeypatch.setitem(globals(), "abs", lambda value: value)
    assert_seen(snap)


def test_code_and_defaults_of_a_function():
    def f(scale=1.0, *, shift=2.0):
        return scale + shift

    snap = snapshot(f)
    f.__defaults__ = (float("1.0"),)  # equal: remembered
    assert not snap.holds()
    assert snap.mismatch() is None
    assert snap.holds()
    f.__kwdefaults__ = {"shift": 3.0}
    assert_seen(snap)
    f.__kwdefaults__ = None
    f.__code__ = (lambda scale=1.0, *, shift=2.0: scale).__code__
    assert_seen(snap)


def test_function_behind_a_decorator_of_paddle():
    scale = 2.0

    @paddle.no_grad()
    def f():
        return scale

    snap = snapshot(f)
    scale = 3.0
    assert_seen(snap)


def test_context_manager_of_the_users():
    items = [1]

    @contextlib.contextmanager
    def scope():
        yield items[0]

    def f():
        with scope() as value:
            return value

    snap = snapshot(f)
    items[0] = 2
    assert_seen(snap)


class Config:
    def __init__(self, **values):
        self.__dict__.update(values)


def test_absent_attribute_appears():
    config = Config(other=1)

    def f():
        try:
            return config.alpha
        except AttributeError:
            return 1

    snap = snapshot(f)
    config.unread = 2
    assert snap.mismatch() is None
    config.alpha = 2
    assert_seen(snap)


def test_class_and_attributes_of_an_object_replaced():
    config = Config(scale=1)
    snap = snapshot(lambda: config.scale)
    config.__class__ = type("Other", (Config,), {})
    assert_seen(snap)
    config.__class__ = Config
    assert snap.holds()
    config.__dict__ = {"scale": 1}
    assert_seen(snap)


def test_environment(monkeypatch):
    monkeypatch.setenv("STATE_CALLS", "a")
    snap = snapshot(lambda: os.environ.get("STATE_CALLS"))
    monkeypatch.setenv("STATE_CALLS", "b")
    assert_seen(snap)


def test_silent_logger():
    snap = snapshot(lambda: LOGGER.debug("said"))
    LOGGER.setLevel(logging.DEBUG)
    try:
        assert_seen(snap)
    finally:
        LOGGER.setLevel(logging.NOTSET)


def test_mapping_behind_a_proxy_and_behind_a_method():
    table = {"k": 1}
    proxy, get = types.MappingProxyType(table), table.get
    for call in (lambda: proxy["k"], lambda: get("k")):
        snap = snapshot(call)
        table["k"] += 1
        assert_seen(snap)


def hidden():
    value = 1
    return lambda argument: value


@functools.singledispatch
def dispatched(argument):
    return 0


dispatched.register(int)(hidden())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (weakref.ref(Config()), "weak reference"),
        (threading.local(), "between threads"),
        (functools.lru_cache(hidden), "a cache"),
        (paddle.ones([1]).get_tensor(), "written in C"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_hides_its_state_is_refused(value, said):
    with pytest.raises(CaptureRefused, match=said) as refusal:
        snapshot(lambda: value)
    assert refusal.value.permanent


def test_closure_that_nothing_leads_to_is_refused():
    with pytest.raises(CaptureRefused, match="cannot be followed"):
        snapshot(lambda: dispatched(1))


def test_functions_made_by_the_call_are_met():
    def f(scale):
        return sum(g() for g in [lambda: scale, lambda: 2 * scale])

    assert snapshot(f, 2).mismatch() is None


@pytest.mark.parametrize(
    "value",
    [LOGGER, threading.Lock(), paddle.CPUPlace(), paddle.ParamAttr(), nn.initializer.Normal()],
)
def test_what_needs_no_fact(value):
    assert snapshot(lambda: value).mismatch() is None
