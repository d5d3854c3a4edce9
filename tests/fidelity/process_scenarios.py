"""Scenarios of ``test_fidelity_process.py``; run ``process_scenarios.py NAME to_static|auto``."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import paddle
from paddle.base import unique_name

import paddle_fluid_boost as pfb

nn = paddle.nn
F = nn.functional
SCENARIOS: dict[str, Callable[[bool], None]] = {}


def scenario(function: Callable[[bool], None]) -> Callable[[bool], None]:
    SCENARIOS[function.__name__] = function
    return function


def numbers(*shape: int, seed: int = 0) -> Any:
    return paddle.to_tensor(numpy.random.RandomState(seed).randn(*shape).astype("float32"))


class Net(nn.Layer):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return F.relu(self.b(F.relu(self.a(x))))


def boosted(auto: bool, layer: Any = None) -> Any:
    layer = Net() if layer is None else layer
    layer.eval()
    return layer if auto else pfb.to_static(layer)


@paddle.no_grad()
def hot(layer: Any, x: Any) -> Any:
    """Heats ``layer`` and makes sure that a compiled version serves."""
    for _ in range(4):
        result = layer(x)
    signatures = pfb.explain(layer).signatures
    assert any(signature.engine for signature in signatures), str(pfb.explain(layer))
    return result


def in_background() -> Any:
    return pfb.override(sync=False, hot_calls=1, min_gain=0.0)


def run_threads(count: int, body: Callable[[], None]) -> None:
    """Runs ``body`` in ``count`` threads at once; raises what one of them met."""
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def run() -> None:
        try:
            gate.wait()
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- threads ---------------------------------------------------------------------------------------


@scenario
def threads_meet_a_cold_function(auto: bool) -> None:
    x = numbers(2, 16)
    for _ in range(12):
        layer = Net()
        want = layer(x).numpy()
        layer = boosted(auto, layer)

        @paddle.no_grad()
        def body(layer: Any = layer, want: Any = want) -> None:
            for _ in range(20):
                assert numpy.allclose(layer(x).numpy(), want, atol=1e-5)

        run_threads(6, body)


@scenario
def threads_while_weights_change(auto: bool) -> None:
    x, layer, other = numbers(2, 16), Net(), Net()
    values = [paddle.full([16, 16], 0.1), paddle.full([16, 16], 0.2)]
    other.b.set_state_dict(layer.b.state_dict())
    wants = []
    for value in values:
        other.a.weight.set_value(value)
        wants.append(other(x).numpy())
    layer.a.weight.set_value(values[0])
    layer, stop, late = boosted(auto, layer), threading.Event(), []

    def read() -> None:
        # While set_value runs, eager calls of other threads meet a weight half written as well:
        # what is read then is not judged.
        with paddle.no_grad():
            while not stop.is_set():
                layer(x)
            late.append(layer(x).numpy())

    with paddle.no_grad():
        hot(layer, x)
        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        stale = 0
        for turn in range(60):
            now = turn % 2
            layer.a.weight.set_value(values[now])
            stale += not numpy.allclose(layer(x).numpy(), wants[now], atol=1e-4)
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
    assert not stale
    assert len(late) == len(threads)
    assert all(numpy.allclose(got, wants[now], atol=1e-4) for got in late)


@scenario
def thread_started_during_a_trace(auto: bool) -> None:
    """The forward starts nothing; the user's program starts threads while it is traced."""
    x, failed = numbers(4, 64), []

    def use_paddle() -> None:
        try:
            (paddle.ones([2]) + 1).numpy()
            assert paddle.in_dynamic_mode()
        except BaseException as error:
            failed.append(error)

    with in_background(), paddle.no_grad():
        for _ in range(6):
            layer = boosted(auto, nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)]))
            layer(x)
            layer(x)
            while not pfb.wait(0.0):
                thread = threading.Thread(target=use_paddle)
                thread.start()
                thread.join()
                layer(x)
    assert not failed, (len(failed), failed[0])


@scenario
def balanced_scratch_state(auto: bool) -> None:
    """Each call fills a list and clears it: two threads in it at once would meet."""

    class Scratch(Net):
        def __init__(self) -> None:
            super().__init__(64)
            self.parts: list[Any] = []

        def forward(self, x: Any) -> Any:
            self.parts.append(self.a(x))
            for _ in range(20):
                self.parts.append(self.b(self.parts[-1]))
            result = paddle.concat(self.parts)
            self.parts.clear()
            return result

    x = numbers(16, 64)
    with in_background(), paddle.no_grad():
        for _ in range(4):
            layer = boosted(auto, Scratch())
            deadline = time.monotonic() + 1.5
            while time.monotonic() < deadline:
                assert layer(x).shape == [16 * 21, 64]
            pfb.wait(30)


@scenario
def static_program_built_during_a_trace(auto: bool) -> None:
    x = numbers(4, 64)
    with in_background():
        for _ in range(6):
            layer = boosted(auto, nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)]))
            with paddle.no_grad():
                layer(x)
                layer(x)
            paddle.enable_static()
            try:
                while not pfb.wait(0.0):
                    main = paddle.static.Program()
                    with paddle.static.program_guard(main, paddle.static.Program()):
                        value = paddle.static.data("x", [2, 4])
                        paddle.mean(paddle.tanh(value))
                    names = [op.name() for op in main.global_block().ops]
                    names = [name for name in names if name != "pd_op.full_int_array"]
                    assert names == ["pd_op.data", "pd_op.tanh", "pd_op.mean"], names
            finally:
                paddle.disable_static()
            assert not paddle.static.default_main_program().global_block().ops


# -- fork ------------------------------------------------------------------------------------------


def in_child(check: Callable[[], None], seconds: float = 20.0) -> None:
    """Forks; raises when ``check`` fails or hangs in the child."""
    pid = os.fork()
    if not pid:
        try:
            check()
        except BaseException as error:
            print("child:", repr(error)[:500], file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, f"child ended with {status}"
            return
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


@scenario
def fork_when_hot(auto: bool) -> None:
    x, layer = numbers(2, 16), boosted(auto)
    want = hot(layer, x).numpy()

    def check() -> None:
        with paddle.no_grad():
            for _ in range(3):
                assert numpy.allclose(layer(x).numpy(), want, atol=1e-5)
            layer.a.weight.set_value(paddle.zeros([16, 16]))
            layer.a.bias.set_value(paddle.zeros([16]))
            got = layer(x).numpy()
        assert numpy.allclose(got, F.relu(layer.b.bias).numpy(), atol=1e-5)

    in_child(check)


@scenario
def fork_during_a_trace(auto: bool) -> None:
    x = numbers(4, 64)

    def check() -> None:
        assert paddle.in_dynamic_mode()
        other = Net()
        other(numbers(2, 16)).sum().backward()
        assert other.a.weight.grad is not None
        assert not paddle.static.default_main_program().global_block().ops
        paddle.enable_static()
        main = paddle.static.Program()
        with paddle.static.program_guard(main, paddle.static.Program()):
            paddle.tanh(paddle.static.data("x", [2, 4]))
        assert [op.name() for op in main.global_block().ops] == ["pd_op.data", "pd_op.tanh"]

    with in_background():
        for turn in range(10):
            layer = boosted(auto, nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)]))
            with paddle.no_grad():
                layer(x)
                layer(x)
            time.sleep(0.004 * turn)
            in_child(check)
            pfb.wait(30)


@scenario
def data_loader_workers(auto: bool) -> None:
    layer = boosted(auto)
    hot(layer, numbers(2, 16))

    class Data(paddle.io.Dataset):
        def __len__(self) -> int:
            return 6

        @paddle.no_grad()
        def __getitem__(self, index: int) -> Any:
            return layer(paddle.full([2, 16], float(index))).numpy()

    want = [Data()[index] for index in range(6)]
    loader = paddle.io.DataLoader(Data(), batch_size=1, num_workers=2, timeout=30)
    for batch, value in zip(loader, want):
        got = batch[0] if isinstance(batch, (list, tuple)) else batch
        assert numpy.allclose(got.numpy().reshape(value.shape), value, atol=1e-5)


# -- life time -------------------------------------------------------------------------------------


@scenario
def layer_is_freed(auto: bool) -> None:
    layer = boosted(auto)
    hot(layer, numbers(2, 16))
    here, weight = weakref.ref(layer), weakref.ref(layer.a.weight)
    del layer
    gc.collect()
    assert here() is None
    assert weight() is None


@scenario
def refused_layer_is_freed(auto: bool) -> None:
    class Prints(Net):
        def forward(self, x: Any) -> Any:
            print(end="")
            return self.a(x)

    layer = boosted(auto, Prints())
    with paddle.no_grad():
        for _ in range(4):
            layer(numbers(2, 16))
    here = weakref.ref(layer)
    del layer
    gc.collect()
    assert here() is None


@scenario
def nothing_at_exit(auto: bool) -> None:
    """Leaves a hot layer to the end of the interpreter; the test looks at its last words."""
    global _kept
    _kept = boosted(auto)
    hot(_kept, numbers(2, 16))


@scenario
def deep_copy_is_a_layer_of_its_own(auto: bool) -> None:
    x, layer = numbers(2, 16), boosted(auto)
    want = hot(layer, x).numpy()
    twin = copy.deepcopy(layer)
    optimizer = paddle.optimizer.SGD(0.5, parameters=twin.parameters())
    for _ in range(3):
        twin(x).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        with paddle.no_grad():
            eager = F.relu(F.linear(x, twin.a.weight, twin.a.bias))
            eager = F.relu(F.linear(eager, twin.b.weight, twin.b.bias))
            assert numpy.allclose(hot(twin, x).numpy(), eager.numpy(), atol=1e-4)
            assert numpy.allclose(layer(x).numpy(), want, atol=1e-6)


@scenario
def pickled_as_before(auto: bool) -> None:
    def attempt(layer: Any) -> Any:
        try:
            return pickle.loads(pickle.dumps(layer))
        except TypeError as error:
            return error

    layer = boosted(auto)
    cold = attempt(layer)
    want = hot(layer, numbers(2, 16)).numpy()
    warm = attempt(layer)
    assert type(cold) is type(warm)
    if isinstance(warm, Net):
        with paddle.no_grad():
            assert numpy.allclose(warm(numbers(2, 16)).numpy(), want, atol=1e-5)
    buffer = io.BytesIO()
    paddle.save(layer.state_dict(), buffer)
    assert list(layer.state_dict()) == list(Net().state_dict())


@scenario
def saved_by_jit_save(auto: bool) -> None:
    import tempfile

    x, layer = numbers(2, 16), boosted(auto)
    hot(layer, x)
    layer.a.weight.set_value(paddle.full([16, 16], 0.1))
    with paddle.no_grad():
        want = layer(x).numpy()
    with tempfile.TemporaryDirectory() as folder:
        spec = [paddle.static.InputSpec([None, 16])]
        paddle.jit.save(layer, f"{folder}/net", input_spec=spec)
        loaded = paddle.jit.load(f"{folder}/net")
        loaded.eval()
        with paddle.no_grad():
            for _ in range(5):
                assert numpy.allclose(loaded(x).numpy(), want, atol=1e-5)


# -- the state of the process ----------------------------------------------------------------------


def process_state() -> dict[str, Any]:
    """What a program can see of the process, one entry each."""
    import random
    import warnings

    values = paddle.base.core.globals()
    flags = {
        f"flag {name}": str(values[name])
        for name in list(values.keys())
        if "dump_chunk" not in name
    }
    return {
        **flags,
        "names": dict(unique_name.generator.ids),
        "python random": random.getstate(),
        "numpy random": numpy.random.get_state()[1].tolist(),
        "main program": str(paddle.static.default_main_program()),
        "main program object": id(paddle.static.default_main_program()),
        "startup program": str(paddle.static.default_startup_program()),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in (2, 11, 15, 17)],
        "filters": list(warnings.filters),
        "default dtype": paddle.get_default_dtype(),
        "dynamic": paddle.in_dynamic_mode(),
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "path": list(sys.path),
        "profile": sys.getprofile(),
        "trace": sys.gettrace(),
        "excepthook": sys.excepthook,
        "grad": paddle.is_grad_enabled(),
        "gc": gc.get_threshold(),
    }


@scenario
def nothing_changes_in_the_process(auto: bool) -> None:
    def network() -> Any:
        return nn.Sequential(
            nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.ReLU(), nn.AdaptiveAvgPool2D(1),
            nn.Flatten(), nn.Linear(8, 4), nn.Dropout(0.5), nn.LayerNorm(4), nn.GELU(),
        )  # fmt: skip

    x, layer = numbers(2, 3, 16, 16), boosted(auto, network())
    with pfb.override(hot_calls=1000), paddle.no_grad():
        for _ in range(3):
            layer(x)
    before = process_state()
    pfb.warmup(layer, [x])
    assert pfb.explain(layer).state == "compiled"
    after = process_state()
    wrong = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not wrong, wrong


@scenario
def names_of_later_parameters(auto: bool) -> None:
    """Optimizer states are saved under these names."""
    first = nn.Linear(2, 2).weight.name
    hot(boosted(auto, nn.Sequential(nn.ReLU(), nn.Softmax())), numbers(2, 16))
    second = nn.Linear(2, 2).weight.name
    number = [int(name.split("_")[1].split(".")[0]) for name in (first, second)]
    assert number[1] == number[0] + 1, (first, second)


@scenario
def seeds_are_left_alone_in_background(auto: bool) -> None:
    paddle.seed(1)
    want = [paddle.rand([4]).numpy() for _ in range(2)]
    layer, x = boosted(auto), numbers(2, 16)
    with in_background(), paddle.no_grad():
        paddle.seed(1)
        for _ in range(4):
            layer(x)
        got = [paddle.rand([4]).numpy()]
        pfb.wait(30)
        got.append(paddle.rand([4]).numpy())
    assert all((a == b).all() for a, b in zip(got, want))


@scenario
def uninstall_restores_everything(auto: bool) -> None:
    from paddle.jit.dy2static import pir_partial_program, program_translator
    from paddle.nn.layer import layers

    pfb.uninstall()
    owners = [
        nn.Layer, nn.LayerList, nn.LayerDict, nn.Sequential, nn.ParameterList, nn.ParameterDict,
        paddle.Tensor, paddle.base.core.DenseTensor, paddle.optimizer.Optimizer,
        paddle.optimizer.LBFGS, paddle.optimizer.Adam, paddle.incubate.LookAhead,
        paddle.incubate.ModelAverage, program_translator.StaticFunction,
        program_translator.ProgramCache, pir_partial_program.PartialProgramLayer,
        layers.HookRemoveHelper, nn.initializer.Initializer,
        paddle.base.framework.EagerParamBase,
    ]  # fmt: skip
    modules = [
        paddle,
        paddle.jit,
        paddle.static,
        paddle.nn.functional,
        paddle.nn.utils,
        paddle._C_ops,
    ]
    before = [dict(vars(owner)) for owner in (*owners, *modules)]
    pfb.install(auto=True)
    layer = boosted(auto)
    hot(layer, numbers(2, 16))
    pfb.uninstall()
    for owner, was in zip((*owners, *modules), before):
        now = dict(vars(owner))
        changed = [n for n in {*was, *now} if now.get(n) is not was.get(n) and n != "__doc__"]
        assert not changed, (owner, changed)
    with paddle.no_grad():
        layer(numbers(2, 16))


# -- exceptions, profilers, odd calls --------------------------------------------------------------


@scenario
def exceptions_at_any_moment(auto: bool) -> None:
    class Fails(Net):
        error: Any = None

        def forward(self, x: Any) -> Any:
            if self.error is not None:
                raise self.error
            return super().forward(x)

    x = numbers(2, 16)
    for kind in (ValueError("bad"), KeyboardInterrupt(), SystemExit(3), RecursionError("deep")):
        layer = boosted(auto, Fails())
        layer.error = kind
        for _ in range(3):
            try:
                with paddle.no_grad():
                    layer(x)
            except BaseException as error:
                assert error is kind
            else:
                raise AssertionError("the exception was lost")
        layer.error = None
        hot(layer, x)
        layer.error = kind
        try:
            with paddle.no_grad():
                layer(x)
        except BaseException as error:
            assert error is kind
        else:
            raise AssertionError("the exception was lost")
        layer.error = None
        hot(layer, x)
        assert sys.getprofile() is None


@scenario
def profiled_by_the_user(auto: bool) -> None:
    import cProfile
    import pstats

    layer, x, profile = boosted(auto), numbers(2, 16), cProfile.Profile()
    with paddle.no_grad():
        profile.enable()
        for _ in range(5):
            layer(x)
        profile.disable()
    calls = {name: row[0] for (_, _, name), row in pstats.Stats(profile).stats.items()}  # type: ignore[attr-defined]
    assert calls["forward"] >= 5
    hot(layer, x)


@scenario
def traced_by_the_user(auto: bool) -> None:
    seen = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        seen.append(event)
        return tracer

    layer = boosted(auto)
    sys.settrace(tracer)
    try:
        hot(layer, numbers(2, 16))
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    assert seen


@scenario
def keyword_named_as_our_parameters(auto: bool) -> None:
    class Odd(Net):
        def forward(self, x: Any, layer: Any = 1.0, unit: Any = 1.0, args: Any = 1.0,
                    kwargs: Any = 1.0, function: Any = 1.0, hooked: Any = 1.0) -> Any:  # fmt: skip
            return self.a(x) * layer * unit * args * kwargs * function * hooked

    odd = boosted(auto, Odd())
    with paddle.no_grad():
        for _ in range(5):
            odd(numbers(2, 16), layer=2.0, unit=2.0, args=2.0, kwargs=2.0, function=2.0, hooked=2.0)


@scenario
def in_coroutines(auto: bool) -> None:
    import asyncio

    layer, x = boosted(auto), numbers(2, 16)
    want = hot(layer, x).numpy()

    async def ask() -> Any:
        with paddle.no_grad():
            await asyncio.sleep(0)
            return layer(x).numpy()

    async def main() -> None:
        for got in await asyncio.gather(*[ask() for _ in range(8)]):
            assert numpy.allclose(got, want, atol=1e-5)

    asyncio.run(main())


@scenario
def denormals_are_kept(auto: bool) -> None:
    tiny = paddle.full([4], 1e-40)
    before = (tiny * 1).numpy()
    hot(boosted(auto), numbers(2, 16))
    assert ((tiny * 1).numpy() == before).all()
    assert numpy.float32(1e-40) * numpy.float32(1) != 0


if __name__ == "__main__":
    _name, _way = sys.argv[1:]
    pfb.configure(sync=True, hot_calls=1, min_gain=0.0)
    pfb.install(auto=_way == "auto")
    SCENARIOS[_name](_way == "auto")
