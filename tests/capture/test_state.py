"""Snapshots of Python state: each kind of fact notices its change, and nothing else."""

import array
import collections
import enum
import functools
import itertools
import operator
import sys
import types
from decimal import Decimal

import numpy
import paddle
import pytest

from paddle_fluid_boost.capture.observe import Observer
from paddle_fluid_boost.capture.state import MAX_CALL_FACTS, is_simple, same_value, take
from paddle_fluid_boost.errors import CaptureRefused

SCALE = 2.0
UNUSED = 1


def snapshot(call, *args, roots=None):
    """What one observed call of ``call`` has read."""
    with Observer() as observation:
        call(*args)
    assert observation.refusals == []
    return take(observation, roots or [("f", call)])


def reason(snap):
    """Why a snapshot no longer holds, None while it does."""
    found = snap.layer_mismatch() or snap.mismatch()
    if found is None:
        assert snap.holds()
    return found


# -- functions ------------------------------------------------------------------------------------


def test_global(monkeypatch):
    def f():
        return SCALE

    snap = snapshot(f)
    assert reason(snap) is None
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert not snap.holds()
    assert reason(snap) == "global 'SCALE' changed from 2.0 to 3.0"


def test_global_that_is_not_read(monkeypatch):
    snap = snapshot(lambda: SCALE)
    monkeypatch.setitem(globals(), "UNUSED", 2)
    assert reason(snap) is None


def test_global_of_a_called_function(monkeypatch):
    def helper():
        return SCALE

    snap = snapshot(lambda: helper())
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert reason(snap) == "global 'SCALE' changed from 2.0 to 4.0"


def test_equal_value_is_no_change(monkeypatch):
    snap = snapshot(lambda: SCALE)
    monkeypatch.setitem(globals(), "SCALE", float("2.0"))
    assert not snap.holds()  # another object ...
    assert snap.mismatch() is None  # ... but equal, which is remembered
    assert snap.holds()


@pytest.mark.parametrize("other", [2, True, numpy.float64(2.0), "2.0", None])
def test_value_of_another_type_is_a_change(monkeypatch, other):
    snap = snapshot(lambda: SCALE)
    monkeypatch.setitem(globals(), "SCALE", other)
    assert reason(snap) is not None


def test_cell():
    scale = 2.0

    def f():
        return scale

    snap = snapshot(f)
    assert reason(snap) is None
    scale = 5.0
    assert not snap.holds()
    assert "variable 'scale' of" in reason(snap) and "from 2.0 to 5.0" in reason(snap)


def test_cell_that_becomes_empty():
    scale = 2.0

    def f():
        return scale  # noqa: F821

    snap = snapshot(f)
    del scale
    assert "from 2.0 to nothing" in reason(snap)


def test_defaults():
    def f(x=[1], *, y={"k": 2}):  # noqa: B006
        return x, y

    snap = snapshot(f)
    f.__defaults__[0].append(3)
    assert "defaults of" in reason(snap)
    f.__defaults__[0].pop()
    assert reason(snap) is None
    f.__kwdefaults__["y"]["k"] = 3
    assert "defaults of" in reason(snap)


def test_partial():
    def f(table):
        return table["k"]

    table = {"k": 1}
    snap = snapshot(functools.partial(f, table))
    table["k"] = 2
    assert "from 1 to 2" in reason(snap)


def test_method_and_its_instance():
    class Holder:
        def __init__(self):
            self.scale = 2.0

        def call(self):
            return self.scale

    holder = Holder()
    snap = snapshot(holder.call)
    holder.scale = 3.0
    assert "scale changed from 2.0 to 3.0" in reason(snap)


def test_decorated_function():
    def decorate(function):
        @functools.wraps(function)
        def wrapper():
            return function()

        return wrapper

    items = [1]

    @decorate
    def f():
        return items[0]

    snap = snapshot(f)
    items[0] = 2
    assert "items" in reason(snap)


# -- containers and objects -----------------------------------------------------------------------

BOX = types.SimpleNamespace()


def in_box(value):
    """A snapshot of a call that reads ``BOX.value``."""
    BOX.value = value
    return snapshot(lambda: BOX.value)


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda v: v.append(3)),
        ([1, 2], lambda v: operator.setitem(v, 0, 5)),
        ([[1]], lambda v: v[0].append(2)),
        (([1],), lambda v: v[0].append(2)),
        ({"a": 1}, lambda v: operator.setitem(v, "a", 2)),
        ({"a": 1}, lambda v: operator.setitem(v, "b", 2)),
        ({"a": 1}, lambda v: v.clear()),
        ({"a": {"b": [1]}}, lambda v: v["a"]["b"].clear()),
        ({1, 2}, lambda v: v.add(3)),
        (collections.OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
        (collections.defaultdict(list, a=[1]), lambda v: v["b"]),
        (collections.Counter("ab"), lambda v: v.update("a")),
        (collections.deque([1]), lambda v: v.append(2)),
        (collections.UserList([1]), lambda v: v.data.append(2)),
        (numpy.zeros(3), lambda v: operator.setitem(v, 0, 1)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_content_of_a_container(value, change):
    snap = in_box(value)
    if isinstance(value, collections.UserList):
        snap = snapshot(lambda: BOX.value.data[0])
    assert reason(snap) is None
    change(value)
    assert not snap.holds()
    assert reason(snap) is not None


def test_container_replaced_by_an_equal_one():
    snap = in_box([1])
    BOX.value = [1]
    assert "value changed from a list to a list" in reason(snap)


def test_tuple_of_numbers_is_compared_by_value():
    snap = in_box((1, 2.0, "three"))
    BOX.value = tuple([1, 2.0, "three"])  # noqa: C409 - another object
    assert reason(snap) is None
    BOX.value = (1, 2, "three")
    assert reason(snap) is not None


class Config:
    scale = 1.0

    def __init__(self):
        self.depth = 3


def test_attributes_of_an_object():
    config = Config()

    def f():
        return config.depth, config.scale

    snap = snapshot(f)
    config.depth = 4
    assert "depth changed from 3 to 4" in reason(snap)
    config.depth = 3
    assert reason(snap) is None
    config.scale = 9.0  # hides the attribute of the class
    assert reason(snap) is not None
    del config.scale
    config.other = 1  # nobody has read it
    assert reason(snap) is None


def test_attribute_of_a_class(monkeypatch):
    config = Config()
    snap = snapshot(lambda: config.scale)
    monkeypatch.setattr(Config, "scale", 2.0)
    assert reason(snap) == "Config.scale changed from 1.0 to 2.0"


def test_attribute_of_a_class_that_a_subclass_comes_to_hide():
    class Sub(Config):
        pass

    config = Sub()
    snap = snapshot(lambda: config.scale)
    assert reason(snap) is None
    Sub.scale = 7.0
    assert "scale changed from 1.0 to 7.0" in reason(snap)


def test_method_replaced_on_the_class():
    class Holder:
        def call(self):
            return 1

    holder = Holder()
    snap = snapshot(lambda: holder.call())
    Holder.call = lambda self: 2
    assert "Holder.call changed" in reason(snap)


def test_class_used_through_its_name(monkeypatch):
    snap = snapshot(lambda: Config.scale)
    monkeypatch.setattr(Config, "scale", 2.0)
    assert "Config.scale" in reason(snap)


def test_property_reads_what_it_reads():
    class Holder:
        def __init__(self):
            self.hidden = 1

        @property
        def shown(self):
            return self.hidden

    holder = Holder()
    snap = snapshot(lambda: holder.shown)
    holder.hidden = 2
    assert "hidden changed from 1 to 2" in reason(snap)


def test_attribute_read_by_a_computed_name():
    config, name = Config(), "depth"
    snap = snapshot(lambda: getattr(config, name))
    config.depth = 8
    assert "depth changed from 3 to 8" in reason(snap)


def test_attribute_read_and_written_through_dict():
    config = Config()

    def counts():
        config.__dict__["calls"] = config.__dict__.get("calls", 0) + 1

    snap = snapshot(counts)
    counts()
    assert "calls changed from 1 to 2" in reason(snap)


def test_module_of_the_users(monkeypatch):
    module = types.ModuleType("users_module")
    module.__file__ = "/somewhere/users_module.py"
    module.factor = 2
    monkeypatch.setitem(globals(), "users_module", module)
    snap = snapshot(lambda: users_module.factor)  # noqa: F821
    module.factor = 3
    assert reason(snap) == "users_module.factor changed from 2 to 3"


def test_module_imported_inside(monkeypatch):
    module = types.ModuleType("users_package.settings")
    module.__file__ = "/somewhere/users_package/settings.py"
    module.factor = 2
    monkeypatch.setitem(sys.modules, "users_package", types.ModuleType("users_package"))
    monkeypatch.setitem(sys.modules, "users_package.settings", module)

    def f():
        from users_package.settings import factor

        return factor

    snap = snapshot(f)
    module.factor = 3
    assert reason(snap) == "users_package.settings.factor changed from 2 to 3"


def test_enum_and_dtype_are_values():
    color = enum.Enum("color", "red green")
    BOX.value = color.red
    snap = snapshot(lambda: (BOX.value, paddle.float32))
    assert reason(snap) is None
    BOX.value = color.green
    assert reason(snap) is not None


# -- layers ---------------------------------------------------------------------------------------


class Net(paddle.nn.Layer):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(2, 2)
        self.register_buffer("shift", paddle.zeros([2]))
        self.scale = 2.0
        self.sizes = [1, 2]
        self.counter = 0

    def forward(self, x):
        return self.linear(x) * self.scale + self.shift * self.factor + len(self.sizes)


def net_snapshot():
    net, x = Net(), paddle.ones([1, 2])
    net.eval()
    net(x)  # Paddle's bookkeeping of the first call
    with paddle.no_grad():
        snap = snapshot(net, x, roots=[("self", net)])
    assert reason(snap) is None
    return net, snap


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda net: setattr(net, "scale", 3.0), "self.scale changed from 2.0 to 3.0"),
        (lambda net: delattr(net, "scale"), "self.scale changed from 2.0 to nothing"),
        (lambda net: net.train(), "training changed from False to True"),
        (lambda net: net.linear.train(), "self.linear.training changed"),
        (lambda net: setattr(net, "linear", paddle.nn.Linear(2, 2)), "self.linear changed"),
        (lambda net: net.add_sublayer("more", paddle.nn.ReLU()), "self._sub_layers changed"),
        (lambda net: net.register_buffer("more", paddle.zeros([1])), "self._buffers changed"),
        (lambda net: setattr(net, "shift", paddle.ones([2])), "self.shift changed"),
        (lambda net: net.register_forward_post_hook(print), "_forward_post_hooks changed"),
        (lambda net: net.linear.register_forward_pre_hook(print), "_forward_pre_hooks changed"),
        (
            lambda net: setattr(
                net.linear, "weight", paddle.create_parameter([2, 2], "float32")
            ),
            "self.linear.weight changed",
        ),
    ],
)  # fmt: skip
def test_change_of_a_layer(change, said):
    net, snap = net_snapshot()
    change(net)
    assert said in snap.layer_mismatch()


def test_change_of_a_layer_that_nobody_reads():
    net, snap = net_snapshot()
    net.counter = 5
    net.note = "new"
    assert reason(snap) is None


def test_list_of_a_layer():
    net, snap = net_snapshot()
    net.sizes.append(3)
    assert not snap.holds()
    assert reason(snap) == "the content of self.sizes changed"


def test_instance_attribute_that_hides_one_of_the_class():
    net, snap = net_snapshot()
    net.factor = 2.0
    assert snap.layer_mismatch() == "attributes were added to or removed from self"


def test_forward_replaced_on_the_class(monkeypatch):
    _, snap = net_snapshot()
    monkeypatch.setattr(Net, "forward", lambda self, x: x)
    assert "Net.forward changed" in reason(snap)


def test_snapshot_names_layers_and_tensors():
    net, snap = net_snapshot()
    assert {id(layer) for layer in snap.layers} == {id(net), id(net.linear)}
    expected = {id(t) for t in (net.shift, net.linear.weight, net.linear.bias)}
    assert {id(tensor) for tensor in snap.tensors} == expected


def test_parameters_cost_nothing_per_call():
    net, x = paddle.nn.Sequential(*[paddle.nn.Linear(2, 2) for _ in range(30)]), paddle.ones([1, 2])
    net.eval()
    with paddle.no_grad():
        assert snapshot(net, x, roots=[("self", net)]).call_facts < 10


# -- what cannot be guarded -----------------------------------------------------------------------


class Slotted:
    __slots__ = ("other", "value")

    def __init__(self, value=1):
        self.value = value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (iter([1]), "an iterator"),
        (itertools.count(), "an iterator"),
        ((n for n in [1]), "an iterator"),
        (Slotted(), "uses __slots__"),
        (numpy.zeros(5000), "too large"),
        (numpy.array([object()]), "numpy array"),
        (bytearray(b"x"), "raw memory"),
        (array.array("f", [1.0]), "raw memory"),
        (operator.attrgetter("x"), "reads cannot be followed"),
        (numpy.random.default_rng(0), "a random generator"),
        (numpy.random.RandomState(0), "a random generator"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_refused(value, said):
    with pytest.raises(CaptureRefused, match=said):
        in_box(value)


def test_immutable_objects_are_not_refused():
    for value in (Decimal(1), range(3), frozenset({1}), object(), len, slice(1), b"x", 1j):
        assert reason(in_box(value)) is None


def test_too_many_facts():
    with pytest.raises(CaptureRefused, match="more mutable Python state"):
        in_box([[] for _ in range(MAX_CALL_FACTS)])


def test_cycles_end():
    loop: list = []
    loop.append(loop)
    snap = in_box(loop)
    assert reason(snap) is None
    loop.append(1)
    assert reason(snap) is not None


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 1.0, True, None, "a", b"a", (1, ("b",)), numpy.int64(1)])
def test_simple(value):
    assert is_simple(value)
    assert same_value(value, value)


@pytest.mark.parametrize("value", [[1], {}, {1}, (1, [2]), object(), numpy.ones(1)])
def test_not_simple(value):
    assert not is_simple(value)


def test_same_value():
    assert same_value(float("nan"), float("nan"))
    assert same_value((1, (2.0,)), (1, (2.0,)))
    assert same_value(numpy.float32(1), numpy.float32(1))
    assert same_value(1j, 0 + 1j)
    assert not same_value((1,), (1.0,))
    assert not same_value((1,), (1, 2))
    assert not same_value([1], [1])
    assert not same_value(0.0, -0.0)
    assert not same_value(numpy.float32(0.0), numpy.float32(-0.0))
    assert not same_value(numpy.float32(1), numpy.float64(1))
