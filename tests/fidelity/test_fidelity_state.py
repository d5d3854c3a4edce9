"""Python state that a forward reads: a change of it must show in the very next call."""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import functools
import operator
import os
import sys
import threading
import types
import weakref
from typing import Any

import numpy
import paddle
import pytest
from differential import OneLinear, Scenarios, Way, check, follow, layer_of, numbers

nn = paddle.nn
F = nn.functional
scenarios = Scenarios()


class Config:
    """A plain object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def put(target: Any, name: str, value: Any) -> Any:
    """A change: sets an attribute, whatever it is called with."""
    return lambda _: setattr(target, name, value)


# -- attributes of layers --------------------------------------------------------------------------


@scenarios()
def plain_attribute(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.scale, scale=2.0)
    follow(way, layer, put(layer, "scale", 3.0), put(layer, "scale", numpy.float32(4)))


@scenarios()
def attribute_deleted_and_class_default_shows(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.scale, scale=2.0)
    type(layer).scale = 5.0
    follow(way, layer, lambda n: delattr(n, "scale"))


@scenarios()
def attribute_of_a_sublayer(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.fc.gain)
    layer.fc.gain = 2.0
    follow(way, layer, lambda n: setattr(n.fc, "gain", 3.0))


@scenarios()
def list_attribute(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * sum(self.scales), scales=[1.0, 2.0])
    follow(
        way,
        layer,
        lambda n: n.scales.__setitem__(0, 4.0),
        lambda n: n.scales.append(1.0),
        lambda n: n.scales.clear(),
    )


@scenarios()
def nested_dict_attribute(way: Way) -> None:
    layer = layer_of(
        lambda self, x: self.fc(x) * self.table["a"]["b"][0], table={"a": {"b": [2.0]}}
    )
    follow(
        way,
        layer,
        lambda n: n.table["a"]["b"].__setitem__(0, 3.0),
        lambda n: n.table.update(a={"b": [4.0]}),
    )


@scenarios()
def set_attribute(way: Way) -> None:
    layer = layer_of(
        lambda self, x: self.fc(x) * (2.0 if "twice" in self.words else 1.0), words=set()
    )
    follow(way, layer, lambda n: n.words.add("twice"), lambda n: n.words.discard("twice"))


@scenarios()
def numpy_array_attribute(way: Way) -> None:
    layer = layer_of(
        lambda self, x: self.fc(x) * float(self.scales.sum()), scales=numpy.array([1.0, 2.0])
    )
    follow(way, layer, lambda n: n.scales.__setitem__(0, 5.0))


@scenarios(compiled=None)
def large_numpy_array_attribute(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * float(self.big[3]), big=numpy.ones(4096))
    follow(way, layer, lambda n: n.big.__setitem__(3, 5.0))


@scenarios()
def property_that_reads_state(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.scale, base=2.0)
    type(layer).scale = property(lambda self: self.base * 2)
    follow(
        way,
        layer,
        put(layer, "base", 3.0),
        lambda n: setattr(type(n), "scale", property(lambda self: self.base * 5)),
    )


@scenarios()
def attribute_set_through_dunder_dict(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.scale, scale=2.0)
    follow(way, layer, lambda n: n.__dict__.update(scale=4.0))


@scenarios()
def attribute_read_through_dunder_dict(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.__dict__["level"], level=2.0)
    follow(way, layer, put(layer, "level", 4.0))


@scenarios()
def attribute_that_appears_under_getattr(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * getattr(self, "alpha", 1.0))
    follow(way, layer, put(layer, "alpha", 4.0))


@scenarios()
def attribute_that_appears_under_getattr_of_an_object(way: Way) -> None:
    config = Config(other=1)
    layer = layer_of(lambda self, x: self.fc(x) * getattr(self.c, "alpha", 1.0), c=config)
    follow(way, layer, put(config, "alpha", 4.0))


@scenarios()
def attribute_that_appears_under_try(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        try:
            scale = self.c.alpha
        except AttributeError:
            scale = 1.0
        return self.fc(x) * scale

    config = Config(other=1)
    follow(way, layer_of(forward, c=config), put(config, "alpha", 4.0))


@scenarios()
def stride_of_a_convolution_changed_in_place(way: Way) -> None:
    paddle.seed(0)
    layer = nn.Conv2D(3, 4, 3)
    layer.eval()
    follow(way, layer, lambda n: n._stride.__setitem__(0, 2), inputs=(numbers(1, 3, 8, 8),))


# -- what a layer is made of -----------------------------------------------------------------------


@scenarios()
def sublayer_replaced_by_attribute(way: Way) -> None:
    def replace(layer: Any) -> None:
        layer.fc = nn.Linear(4, 4)
        layer.fc.weight.set_value(numbers(4, 4, seed=9))

    follow(way, layer_of(lambda self, x: self.fc(x)), replace)


@scenarios()
def sublayer_replaced_in_the_table(way: Way) -> None:
    def replace(layer: Any) -> None:
        fresh = nn.Linear(4, 4)
        fresh.weight.set_value(numbers(4, 4, seed=9))
        layer._sub_layers["fc"] = fresh

    follow(way, layer_of(lambda self, x: self.fc(x)), replace)


@scenarios()
def parameter_replaced_in_the_table(way: Way) -> None:
    def replace(layer: Any) -> None:
        fresh = nn.Linear(4, 4)
        fresh.weight.set_value(numbers(4, 4, seed=9))
        layer.fc._parameters["weight"] = fresh.weight

    follow(way, layer_of(lambda self, x: self.fc(x)), replace)


@scenarios()
def optional_sublayer_attached_and_removed(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        y = self.fc(x)
        return y + self.adapter(x) if self.adapter is not None else y

    def attach(layer: Any) -> None:
        layer.adapter = nn.Linear(4, 4)
        layer.adapter.weight.set_value(numbers(4, 4, seed=4))

    follow(way, layer_of(forward, adapter=None), attach, lambda n: setattr(n, "adapter", None))


@scenarios()
def containers_mutated(way: Way) -> None:
    def scaled(value: float) -> nn.Layer:
        layer = nn.Linear(4, 4)
        layer.weight.set_value(numpy.eye(4, dtype="float32") * value)
        return layer

    def forward(self: Any, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        for name in sorted(self.named):
            x = self.named[name](x)
        return self.chain(x)

    layer = layer_of(
        forward,
        parts=nn.LayerList([scaled(2.0)]),
        named=nn.LayerDict({"a": scaled(3.0)}),
        chain=nn.Sequential(scaled(1.0), nn.Tanh()),
    )
    follow(
        way,
        layer,
        lambda n: n.parts.append(scaled(5.0)),
        lambda n: n.parts.insert(0, scaled(0.1)),
        lambda n: n.parts.__setitem__(0, scaled(0.2)),
        lambda n: n.parts.__delitem__(1),
        lambda n: n.named.update({"b": scaled(2.0)}),
        lambda n: n.named.pop("a"),
        lambda n: n.chain.__setitem__(0, scaled(0.3)),
        lambda n: n.chain.add_sublayer("last", scaled(7.0)),
    )


@scenarios()
def hooks_added_and_removed(way: Way) -> None:
    handles = []

    def add(layer: Any) -> None:
        handles.append(layer.fc.register_forward_post_hook(lambda _l, _i, output: output * 2))
        handles.append(layer.register_forward_pre_hook(lambda _l, inputs: (inputs[0] + 1,)))

    follow(way, layer_of(lambda self, x: self.fc(x)), add, lambda _: [h.remove() for h in handles])


@scenarios(compiled=None)
def hooks_cleared_in_the_table(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x))
    layer.fc.register_forward_post_hook(lambda _l, _i, output: output * 2)
    follow(way, layer, lambda n: n.fc._forward_post_hooks.clear())


@scenarios()
def training_mode_of_one_sublayer(way: Way) -> None:
    def forward(self: Any, x: Any) -> Any:
        y = self.fc(x)
        return y * 3 if self.fc.training else y

    follow(way, layer_of(forward), lambda n: n.fc.train(), lambda n: n.fc.eval())


# -- classes ---------------------------------------------------------------------------------------


@scenarios()
def class_attribute_and_method_replaced(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.gain + self.extra())
    cls = type(layer)
    cls.gain, cls.extra = 2.0, lambda self: 1.0
    follow(way, layer, put(cls, "gain", 3.0), put(cls, "extra", lambda self: 7.0))


@scenarios()
def class_attribute_shadowed_on_a_subclass(way: Way) -> None:
    class Base(OneLinear):
        gain = 2.0

        def forward(self, x: Any) -> Any:
            return self.fc(x) * self.gain

    class Child(Base):
        pass

    layer = Child()
    layer.eval()
    follow(way, layer, put(Child, "gain", 4.0))


@scenarios()
def class_attribute_of_an_object_shadowed(way: Way) -> None:
    class Base:
        factor = 2.0

    class Child(Base):
        pass

    layer = layer_of(lambda self, x: self.fc(x) * self.c.factor, c=Child())
    follow(way, layer, put(Child, "factor", 4.0))


@scenarios()
def class_attribute_that_appears(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * getattr(type(self), "alpha", 1.0))
    follow(way, layer, put(type(layer), "alpha", 4.0))


@scenarios()
def class_of_a_sublayer_replaced(way: Way) -> None:
    class Tripled(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 3

    follow(way, layer_of(lambda self, x: self.fc(x)), lambda n: setattr(n.fc, "__class__", Tripled))


@scenarios()
def class_of_an_object_replaced(way: Way) -> None:
    one = type("One", (), {"value": lambda self: 2.0})
    other = type("Other", (), {"value": lambda self: 4.0})
    layer = layer_of(lambda self, x: self.fc(x) * self.c.value(), c=one())
    follow(way, layer, lambda n: setattr(n.c, "__class__", other))


@scenarios()
def method_of_a_paddle_class_patched(way: Way) -> None:
    stock = nn.Linear.forward
    try:
        follow(
            way,
            layer_of(lambda self, x: self.fc(x)),
            lambda _: setattr(nn.Linear, "forward", lambda self, x: stock(self, x) * 2),
        )
    finally:
        nn.Linear.forward = stock


@scenarios()
def function_of_paddle_patched(way: Way) -> None:
    stock = F.relu
    try:
        follow(
            way,
            layer_of(lambda self, x: F.relu(self.fc(x))),
            lambda _: setattr(F, "relu", lambda x: stock(x) * 2),
        )
    finally:
        F.relu = stock


# -- globals, closures, defaults -------------------------------------------------------------------

GLOBAL_SCALE = 2.0
GLOBAL_CONFIG = Config(scale=2.0, nested=Config(values=[1.0]))


@scenarios()
def global_rebound(way: Way) -> None:
    scope = globals()
    scope["GLOBAL_SCALE"] = 2.0
    follow(
        way,
        layer_of(lambda self, x: self.fc(x) * GLOBAL_SCALE),
        lambda _: scope.update(GLOBAL_SCALE=5.0),
    )


@scenarios()
def global_config_object(way: Way) -> None:
    GLOBAL_CONFIG.scale, GLOBAL_CONFIG.nested.values[0] = 2.0, 1.0
    layer = layer_of(
        lambda self, x: self.fc(x) * GLOBAL_CONFIG.scale + GLOBAL_CONFIG.nested.values[0]
    )
    follow(
        way,
        layer,
        put(GLOBAL_CONFIG, "scale", 3.0),
        lambda _: GLOBAL_CONFIG.nested.values.__setitem__(0, 9.0),
    )


@scenarios(compiled=None, refused="globals")
def global_read_through_globals(way: Way) -> None:
    scope = globals()
    scope["GLOBAL_SCALE"] = 2.0
    follow(
        way,
        layer_of(lambda self, x: self.fc(x) * globals()["GLOBAL_SCALE"]),
        lambda _: scope.update(GLOBAL_SCALE=5.0),
    )


@scenarios()
def builtin_shadowed_by_a_global(way: Way) -> None:
    scope = globals()
    try:
        follow(
            way,
            layer_of(lambda self, x: self.fc(x) * abs(-2.0)),
            lambda _: scope.update(abs=lambda value: 7.0),
        )
    finally:
        scope.pop("abs", None)


@scenarios()
def closure_rebound(way: Way) -> None:
    scale, shift = 2.0, [1.0]

    def forward(self: Any, x: Any) -> Any:
        return self.fc(x) * scale + shift[0]

    def rebind(_: Any) -> None:
        nonlocal scale
        scale = 7.0

    follow(way, layer_of(forward), rebind, lambda _: shift.__setitem__(0, 3.0))


@scenarios()
def defaults_changed(way: Way) -> None:
    def forward(self: Any, x: Any, scale: float = 2.0, *, shifts: Any = [1.0]) -> Any:  # noqa: B006
        return self.fc(x) * scale + shifts[0]

    layer = layer_of(forward)
    follow(
        way,
        layer,
        lambda n: forward.__kwdefaults__["shifts"].__setitem__(0, 4.0),
        lambda n: setattr(forward, "__defaults__", (3.0,)),
    )


@scenarios()
def helper_function_replaced(way: Way) -> None:
    scope = globals()
    scope["helper"] = lambda x: x * 2
    follow(
        way,
        layer_of(lambda self, x: helper(self.fc(x))),  # noqa: F821
        lambda _: scope.update(helper=lambda x: x * 5),
    )


@scenarios()
def module_imported_inside(way: Way) -> None:
    module = types.ModuleType("fidelity_settings")
    module.__file__ = "fidelity_settings.py"
    module.SCALE = 2.0
    sys.modules["fidelity_settings"] = module

    def forward(self: Any, x: Any) -> Any:
        import fidelity_settings

        return self.fc(x) * fidelity_settings.SCALE

    follow(way, layer_of(forward), put(module, "SCALE", 4.0))


@scenarios()
def name_imported_inside(way: Way) -> None:
    module = types.ModuleType("fidelity_settings")
    module.__file__ = "fidelity_settings.py"
    module.SCALE = 2.0
    sys.modules["fidelity_settings"] = module

    def forward(self: Any, x: Any) -> Any:
        from fidelity_settings import SCALE

        return self.fc(x) * SCALE

    follow(way, layer_of(forward), put(module, "SCALE", 4.0))


@scenarios()
def environment_variable(way: Way) -> None:
    os.environ["FIDELITY_MODE"] = "a"
    follow(
        way,
        layer_of(
            lambda self, x: self.fc(x) * (2.0 if os.environ.get("FIDELITY_MODE") == "a" else 3.0)
        ),
        lambda _: os.environ.update(FIDELITY_MODE="b"),
    )


@scenarios()
def environment_variable_by_getenv(way: Way) -> None:
    os.environ["FIDELITY_MODE"] = "a"
    follow(
        way,
        layer_of(lambda self, x: self.fc(x) * (2.0 if os.getenv("FIDELITY_MODE") == "a" else 3.0)),
        lambda _: os.environ.update(FIDELITY_MODE="b"),
    )


# -- other containers and objects ------------------------------------------------------------------


@scenarios()
def deque(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * sum(self.q), q=collections.deque([1.0, 2.0]))
    follow(way, layer, lambda n: n.q.append(4.0))


@scenarios()
def user_dict(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.d["s"], d=collections.UserDict(s=2.0))
    follow(way, layer, lambda n: n.d.__setitem__("s", 4.0))


@scenarios()
def dict_subclasses(way: Way) -> None:
    layer = layer_of(
        lambda self, x: self.fc(x) * self.d["s"] * self.e["t"] + self.c["u"],
        d=collections.defaultdict(float, s=2.0),
        e=collections.OrderedDict(t=2.0),
        c=collections.Counter(u=3),
    )
    follow(
        way,
        layer,
        lambda n: n.d.__setitem__("s", 4.0),
        lambda n: n.e.__setitem__("t", 5.0),
        lambda n: n.c.update(u=2),
    )


@scenarios(compiled=None, refused="raw memory")
def array_array(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.a[0], a=array.array("d", [1.0]))
    follow(way, layer, lambda n: n.a.__setitem__(0, 4.0))


@scenarios(compiled=None, refused="raw memory")
def byte_array(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.b[0], b=bytearray(b"\2"))
    follow(way, layer, lambda n: n.b.__setitem__(0, 4))


@scenarios()
def mapping_proxy(way: Way) -> None:
    inner = {"s": 2.0}
    layer = layer_of(lambda self, x: self.fc(x) * self.m["s"], m=types.MappingProxyType(inner))
    follow(way, layer, lambda _: inner.update(s=4.0))


@scenarios()
def bound_builtin_method(way: Way) -> None:
    inner = {"s": 2.0}
    layer = layer_of(lambda self, x: self.fc(x) * self.look("s"), look=inner.get)
    follow(way, layer, lambda _: inner.update(s=4.0))


@scenarios(compiled=None, refused="a weak reference")
def weak_reference(way: Way) -> None:
    config = Config(scale=2.0)
    layer = layer_of(lambda self, x: self.fc(x) * self.ref().scale, ref=weakref.ref(config))
    follow(way, layer, put(config, "scale", 4.0))


@scenarios()
def object_read_through_dunder_dict(way: Way) -> None:
    config = Config(level=2.0)
    layer = layer_of(lambda self, x: self.fc(x) * self.c.__dict__["level"], c=config)
    follow(way, layer, put(config, "level", 4.0))


@dataclasses.dataclass
class Settings:
    breadth: float = 2.0


@scenarios()
def dataclass_field(way: Way) -> None:
    settings = Settings()
    layer = layer_of(lambda self, x: self.fc(x) * self.s.breadth, s=settings)
    follow(way, layer, put(settings, "breadth", 4.0))


@scenarios()
def dataclass_asdict(way: Way) -> None:
    settings = Settings()
    layer = layer_of(lambda self, x: self.fc(x) * dataclasses.asdict(self.s)["breadth"], s=settings)
    follow(way, layer, put(settings, "breadth", 4.0))


@scenarios(compiled=None, refused="reads cannot be followed")
def attribute_getter(way: Way) -> None:
    config, get = Config(level=2.0), operator.attrgetter("level")
    layer = layer_of(lambda self, x: self.fc(x) * get(self.c), c=config)
    follow(way, layer, put(config, "level", 4.0))


@scenarios()
def attribute_in_a_format_string(way: Way) -> None:
    config = Config(level=2.0)
    text = "{.level}"
    layer = layer_of(lambda self, x: self.fc(x) * float(text.format(self.c)), c=config)
    follow(way, layer, put(config, "level", 4.0))


class Fallback:
    """Answers unknown attributes from a dictionary, and raises KeyError for the rest."""

    def __init__(self) -> None:
        self.values = {"scale": 2.0}

    def __getattr__(self, name: str) -> Any:
        if name == "values":
            raise AttributeError(name)
        return self.values[name]


@scenarios()
def object_with_getattr_fallback(way: Way) -> None:
    config = Fallback()
    layer = layer_of(lambda self, x: self.fc(x) * self.c.scale, c=config)
    follow(way, layer, lambda _: config.values.update(scale=4.0), put(config, "scale", 5.0))


class Slotted:
    __slots__ = ("scale",)


@scenarios(compiled=None, refused="__slots__")
def object_with_slots(way: Way) -> None:
    slotted = Slotted()
    slotted.scale = 2.0
    layer = layer_of(lambda self, x: self.fc(x) * self.s.scale, s=slotted)
    follow(way, layer, put(slotted, "scale", 4.0))


class Mode(enum.Enum):
    PLAIN = 1
    DOUBLE = 2


@scenarios()
def enum_attribute(way: Way) -> None:
    layer = layer_of(lambda self, x: self.fc(x) * self.mode.value, mode=Mode.PLAIN)
    follow(way, layer, put(layer, "mode", Mode.DOUBLE))


@scenarios()
def partial_with_state(way: Way) -> None:
    state = {"s": 2.0}
    layer = layer_of(
        lambda self, x: self.scale(self.fc(x)),
        scale=functools.partial(lambda table, x: x * table["s"], state),
    )
    follow(way, layer, lambda _: state.update(s=3.0))


@scenarios(compiled=None, refused="a cache")
def cached_function_cleared(way: Way) -> None:
    table = {"s": 2.0}

    @functools.lru_cache
    def scale() -> float:
        return table["s"]

    def clear(_: Any) -> None:
        table["s"] = 4.0
        scale.cache_clear()

    follow(way, layer_of(lambda self, x: self.fc(x) * scale()), clear)


@scenarios(compiled=None, refused="differs between threads")
def thread_local_state(way: Way) -> None:
    local = threading.local()
    local.scale = 2.0
    layer = follow(way, layer_of(lambda self, x: self.fc(x) * self.local.scale, local=local))

    def elsewhere() -> None:
        local.scale = 5.0
        with paddle.no_grad():
            way.see("in another thread", layer(numbers(2, 4)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()


@scenarios()
def negative_zero_as_argument(way: Way) -> None:
    def divide(x: Any, by: float) -> Any:
        return paddle.ones_like(x) / paddle.full_like(x, by)

    divide = way.boost(divide)
    with paddle.no_grad():
        way.see("plus", way.hot(divide, numbers(2), 0.0))
        way.see("minus", way.hot(divide, numbers(2), -0.0))


@scenarios(compiled=None)
def not_a_number_as_argument(way: Way) -> None:
    def scale(x: Any, by: float) -> Any:
        return x * by

    scale = way.boost(scale)
    with paddle.no_grad():
        way.see("nan", way.hot(scale, numbers(2), float("nan")))
        way.see("one", way.hot(scale, numbers(2), 1))
        way.see("float one", way.hot(scale, numbers(2), 1.0))
        way.see("true", way.hot(scale, numbers(2), True))


if sys.version_info >= (3, 10):
    _scope: dict[str, Any] = {}
    exec(
        """
class Point:
    __match_args__ = ("height",)

    def __init__(self, height):
        self.height = height


def match_forward(self, x):
    match self.c:
        case Point(h):
            return self.fc(x) * h
""",
        _scope,
    )

    @scenarios()
    def class_pattern(way: Way) -> None:
        point = _scope["Point"](2.0)
        follow(way, layer_of(_scope["match_forward"], c=point), put(point, "height", 4.0))


@pytest.mark.parametrize(("scenario", "expected"), scenarios.params)
def test_state_is_fresh(scenario: Any, expected: dict[str, Any]) -> None:
    check(scenario, **expected)
