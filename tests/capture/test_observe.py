"""What the observer refuses, and what it lets pass: one line of effect per function."""

import collections
import copy
import cProfile
import dataclasses
import datetime
import functools
import io
import logging
import math
import os
import random
import sys
import threading
import time
import types
import warnings

import numpy
import paddle
import pytest

from paddle_fluid_boost.capture.observe import Busy, Observer
from paddle_fluid_boost.capture.scan import location

X = paddle.ones([2, 2])
COUNT = 0
BOX = types.SimpleNamespace(n=0, items=[], table={})
LOG = logging.getLogger("test_observe")
LOCK = threading.Lock()
OWN_RANDOM = random.Random(1)


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(2, 2)
        self.register_buffer("seen", paddle.zeros([1]))
        self.calls = 0

    def forward(self, x):
        return self.linear(x)


class Plain:
    def __init__(self, value):
        self.value = value

    def bump(self):
        self.value += 1
        return self

    def assign(self, value):
        self.value = value


class Forced:
    """Stores attributes where no bytecode shows it."""

    def __init__(self):
        self.__dict__["value"] = 0

    def assign(self, value):
        object.__setattr__(self, "value", value)


NET, PLAIN, FORCED = Net(), Plain(0), Forced()
NET.eval()


def assign(target, value):
    target.value = value


def observe(function, *args):
    with Observer() as observation:
        function(*args)
    return observation


def reasons(function, *args):
    return [refusal.reason for refusal in observe(function, *args).refusals]


# -- effects: (function whose second line has the effect, what the reason says) -------------------


def writes_layer_attribute():
    net = NET
    net.calls = net.calls + 1


def writes_plain_attribute():
    box = BOX
    box.n = box.n + 1


def writes_alternately():
    for target in (NET, BOX):
        assign(target, 1)


def writes_global():
    global COUNT
    COUNT += 1


def deletes_attribute():
    BOX.extra = 1
    del BOX.extra


def writes_hidden():
    f = FORCED
    f.assign(1)


def uses_setattr():
    name = "n"
    setattr(BOX, name, 1)


def uses_globals():
    name = "COUNT"
    globals()[name] = 1


def prints():
    text = "x"
    print(text, file=io.StringIO())


def prints_through_star():
    args = ("x",)
    print(*args, file=io.StringIO())


def opens():
    path = os.devnull
    open(path).close()


def evaluates():
    text = "1 + 1"
    eval(text)


def executes():
    text = "1 + 1"
    exec(text)


def reads_clock():
    x = 0
    return x + time.time()


def reads_perf_counter():
    x = 0
    return x + time.perf_counter()


def reads_date():
    day = 1
    return day, datetime.datetime.now()


def sleeps():
    seconds = 0
    time.sleep(seconds)


def draws_from_python():
    low = 0.0
    return random.uniform(low, 1.0)


def draws_from_own_generator():
    x = 1.0
    return x + OWN_RANDOM.random()


def draws_from_numpy():
    n = 2
    return numpy.random.rand(n)


def reads_environment():
    name = "PFB_TEST"
    os.environ[name] = "1"


def lists_files():
    path = os.curdir
    return os.listdir(path)


def logs():
    text = "x"
    LOG.warning(text)


def warns():
    text = "x"
    warnings.warn(text, stacklevel=2)


def starts_thread():
    thread = threading.Thread(target=len, args=("",))
    thread.start(), thread.join()


def writes_stream():
    text = ""
    sys.stderr.write(text)


def sets_value():
    value = paddle.zeros([1])
    NET.seen.set_value(value)


def registers_hook():
    hook = print
    NET.register_forward_post_hook(hook).remove()


def runs_backward():
    loss = (NET.linear.weight * 2).sum()
    loss.backward()


def computes_gradients():
    loss = (NET.linear.weight * 2).sum()
    paddle.grad(loss, NET.linear.weight)


def registers_gradient_hook():
    weight = NET.linear.weight
    weight.register_hook(print).remove()


def clears_gradients():
    net = NET
    net.clear_gradients()


def clears_gradient():
    weight = NET.linear.weight
    weight.clear_gradient()


def seeds():
    value = 3
    paddle.seed(value)


def sets_default_dtype():
    name = paddle.get_default_dtype()
    paddle.set_default_dtype(name)


EFFECTS = {
    writes_layer_attribute: "writes the attribute 'calls' of a layer",
    writes_plain_attribute: "writes the attribute 'n'",
    uses_setattr: "calls setattr()",
    uses_globals: "calls globals()",
    prints: "calls print()",
    prints_through_star: "calls print()",
    opens: "open, which may have effects",
    evaluates: "calls eval()",
    executes: "calls exec()",
    reads_clock: "calls time.time",
    reads_perf_counter: "calls time.perf_counter",
    reads_date: "calls datetime.now",
    sleeps: "calls time.sleep",
    draws_from_own_generator: "draws random numbers",
    reads_environment: "calls posix.putenv",
    lists_files: "calls posix.listdir",
    warns: "calls _warnings.warn",
    writes_stream: "write, which may have effects",
    sets_value: "sets the value of a tensor",
    registers_hook: "registers a hook",
    runs_backward: "runs a backward pass",
    computes_gradients: "computes gradients",
    registers_gradient_hook: "registers a gradient hook",
    clears_gradients: "clears gradients",
    clears_gradient: "calls Tensor.clear_gradient",
    seeds: "seeds a random generator",
    sets_default_dtype: "sets the default dtype",
}


@pytest.mark.parametrize("function", EFFECTS, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_effect_is_refused_with_its_line(function):
    refusals = observe(function).refusals
    line = location(function.__code__, function.__code__.co_firstlineno + 2)
    found = [refusal.reason for refusal in refusals if refusal.where == line]
    assert any(EFFECTS[function] in reason for reason in found), refusals
    assert all(refusal.permanent for refusal in refusals)


#: Effects that happen in a function called from the line, or that have no line of their own.
ELSEWHERE = {
    writes_global: "writes the global variable 'COUNT'",
    deletes_attribute: "deletes the attribute 'extra'",
    writes_hidden: "calls __setattr__",
    writes_alternately: "writes the attribute 'value'",
    draws_from_python: "draws random numbers",
    draws_from_numpy: "draws random numbers",
    logs: "may have effects",
    starts_thread: "may have effects",
}


@pytest.mark.parametrize("function", ELSEWHERE, ids=lambda f: f.__name__)
def test_effect_is_refused(function):
    found = reasons(function)
    assert any(ELSEWHERE[function] in reason for reason in found), found


def test_one_reason_for_one_line():
    def twice():
        for _ in range(2):
            print("", end="")

    assert len(reasons(twice)) == 1


def test_effect_inside_a_comprehension_and_a_generator():
    def comprehension():
        return [print("", end="") for _ in range(2)]

    def generator():
        return max(time.time() for _ in range(2))

    def consumed():
        def numbers():
            yield BOX.items.pop() if BOX.items else 0
            BOX.n = 1

        return list(numbers())

    assert reasons(comprehension) == ["calls print()"]
    assert reasons(generator) == ["calls time.time, which may have effects"]
    assert reasons(consumed) == ["writes the attribute 'n'"]


def test_effect_in_a_hook_of_a_layer():
    net = Net()
    net.eval()
    net.linear.register_forward_post_hook(lambda *_: print("", end=""))
    assert reasons(net, X) == ["calls print()"]


def test_effect_in_an_exception_handler():
    def recovers():
        try:
            raise ValueError
        except ValueError:
            print("", end="")

    assert reasons(recovers) == ["calls print()"]


# -- pure code ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 2.0


Point = collections.namedtuple("Point", "x y")


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@decorated
def scaled(x, by=2.0):
    return x * by


def builds_containers():
    items = [i * i for i in range(3)]
    items.append(len(items))
    table = dict(zip("ab", items))
    table.update(c=max(items))
    return sorted(table.items(), key=lambda item: item[1]), {*items}, "".join(table)


def builds_objects():
    point = Point(1, 2)._replace(x=3)
    return Plain(point.x).value, Frozen().scale, dataclasses.replace(Frozen(), scale=1.0)


def computes_with_tensors():
    y = paddle.nn.functional.relu(NET(X)).reshape([-1])
    y = paddle.concat([y, y]).unsqueeze(0).astype("float32")
    y[0, 0] = 1.0
    return paddle.where(y > 0, y, -y).mean(), y.shape, X[:, 0]


def computes_with_numbers():
    return math.sqrt(2.0) + float("1") + int(3.7) + round(2.5) + sum(range(3)) + abs(-1)


def uses_closures_and_generators():
    total = sum(x for x in (n * 2 for n in range(3)))
    add = functools.partial(lambda a, b: a + b, total)
    return functools.reduce(lambda a, b: a + b, map(add, [1, 2])), next(iter([1]))


def handles_errors():
    try:
        return {}["missing"]
    except KeyError:
        return None


def takes_a_lock():
    with LOCK:
        return scaled(X)


def copies():
    return copy.copy([1]), copy.deepcopy({"a": [1]})


def checks_types():
    return isinstance(X, paddle.Tensor), issubclass(Net, paddle.nn.Layer), callable(NET)


PURE = [
    builds_containers,
    builds_objects,
    computes_with_tensors,
    computes_with_numbers,
    uses_closures_and_generators,
    handles_errors,
    takes_a_lock,
    copies,
    checks_types,
]


@pytest.mark.parametrize("function", PURE, ids=lambda f: f.__name__)
def test_pure_code_is_not_refused(function):
    with paddle.no_grad():
        assert reasons(function) == []


LAYERS = {
    "conv": lambda: (paddle.nn.Conv2D(3, 4, 3), [1, 3, 8, 8]),
    "batch_norm": lambda: (paddle.nn.BatchNorm2D(3), [1, 3, 8, 8]),
    "layer_norm": lambda: (paddle.nn.LayerNorm(8), [1, 8]),
    "dropout": lambda: (paddle.nn.Dropout(0.5), [1, 8]),
    "pool": lambda: (paddle.nn.AdaptiveAvgPool2D(1), [1, 3, 8, 8]),
    "attention": lambda: (paddle.nn.TransformerEncoderLayer(8, 2, 16), [1, 4, 8]),
    "lstm": lambda: (paddle.nn.LSTM(8, 4), [1, 4, 8]),
    "upsample": lambda: (paddle.nn.Upsample(scale_factor=2), [1, 3, 4, 4]),
    "sequential": lambda: (paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.GELU()), [1, 8]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_paddle_are_pure_in_eval_mode_at_their_first_call(name):
    layer, shape = LAYERS[name]()
    layer.eval()
    with paddle.no_grad():
        assert reasons(layer, paddle.ones(shape)) == []


def test_attributes_that_paddle_writes_are_guarded():
    norm = paddle.nn.BatchNorm1D(2)
    norm.eval()
    with paddle.no_grad():
        observation = observe(norm, X)
    assert observation.refusals == []
    assert "_data_format" in observation.attribute_names


def test_new_layer_in_each_call():
    assert reasons(lambda: paddle.nn.Linear(2, 2)) != []


def test_mode_left_behind():
    def forgets():
        paddle.set_grad_enabled(False)

    def restores():
        with paddle.no_grad(), paddle.amp.auto_cast():
            return X + 1

    try:
        assert reasons(forgets) == ["leaves Paddle in another mode than it found"]
    finally:
        paddle.set_grad_enabled(True)
    assert reasons(restores) == []


# -- what was seen --------------------------------------------------------------------------------


def test_codes_and_names():
    observation = observe(scaled, X)
    names = {code.co_name for code, _ in observation.user_codes}
    assert names == {"wrapper", "scaled"}
    assert all(scope is globals() for _, scope in observation.user_codes)
    assert "value" in observe(PLAIN.bump).attribute_names


def test_dynamic_reads():
    assert not observe(scaled, X).dynamic_reads
    assert observe(lambda: getattr(BOX, "n")).dynamic_reads  # noqa: B009
    assert observe(lambda: BOX.__dict__["n"]).dynamic_reads
    assert observe(lambda: vars(BOX)).dynamic_reads
    assert observe(lambda: dataclasses.asdict(Frozen())).dynamic_reads


def test_dynamic_reads_of_paddle_itself_do_not_count():
    with paddle.no_grad():
        assert not observe(NET, X).dynamic_reads


def test_exception_passes_and_the_hook_is_gone():
    with pytest.raises(ZeroDivisionError), Observer():
        1 / 0  # noqa: B018
    assert sys.getprofile() is None


def test_busy_when_somebody_profiles():
    def other(frame, event, arg):
        return None

    sys.setprofile(other)
    try:
        with pytest.raises(Busy):
            Observer().__enter__()
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_busy_under_cprofile():
    profile = cProfile.Profile()
    profile.enable()
    try:
        with pytest.raises(Busy):
            Observer().__enter__()
    finally:
        profile.disable()
    assert reasons(scaled, X) == []


def test_other_threads_are_not_observed():
    stop = threading.Event()

    def noise():
        while not stop.is_set():
            time.time()

    thread = threading.Thread(target=noise)
    thread.start()
    try:
        assert reasons(lambda: [scaled(X) for _ in range(50)]) == []
    finally:
        stop.set()
        thread.join()
