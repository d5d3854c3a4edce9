"""Predictors built from captured programs give what eager gives, and harm nothing around them."""

from __future__ import annotations

import gc
import threading

import numpy as np
import paddle
import paddle_inference_cases as cases
import pytest
from paddle import nn
from paddle_inference_cases import BOTH, ENGINE, ONEDNN, PLAIN

from paddle_fluid_boost.capture.program import CapturedProgram
from paddle_fluid_boost.engines import _paddle as pd
from paddle_fluid_boost.engines import paddle_inference_run as run_module
from paddle_fluid_boost.engines.openmp import math_threads
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.options import override

both = pytest.mark.parametrize("settings", BOTH, ids=["plain", "onednn"])


@pytest.fixture(autouse=True)
def _seeded():
    paddle.seed(7)


@pytest.fixture(scope="module")
def cnn():
    """(net, its input, its program)"""
    x = paddle.randn([2, 3, 8, 8])
    net = cases.calibrated(cases.small_cnn(), x)
    return net, x, cases.capture(net, x)


@both
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_vision_model(name, settings):
    x = paddle.randn([1, 3, 64, 64])
    net = cases.calibrated(getattr(paddle.vision.models, name)(), paddle.randn([4, 3, 64, 64]))
    executable = ENGINE.build(cases.capture(net, x), settings)
    for _ in range(3):
        x = paddle.randn([1, 3, 64, 64])
        cases.assert_same(executable([x]), cases.eager(net, x))
    weights = sum(p.size * 4 for p in net.parameters())
    assert weights <= executable.nbytes <= 3 * weights


@both
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (cases.encoder, [1, 12, 32]),
        (cases.UNet, [1, 3, 32, 32]),
    ],
    ids=["encoder", "unet"],
)
def test_small_net(make, shape, settings):
    x = paddle.randn(shape)
    net = cases.calibrated(make(), x)
    executable = ENGINE.build(cases.capture(net, x), settings)
    for _ in range(3):
        x = paddle.randn(shape)
        cases.assert_same(executable([x]), cases.eager(net, x))


@both
def test_lstm_with_token_numbers(settings):
    net = cases.SequenceTagger()
    net.eval()
    tokens = paddle.randint(0, 50, [2, 6])
    executable = ENGINE.build(cases.capture(net, tokens), settings)
    cases.assert_same(executable([tokens]), cases.eager(net, tokens))


@both
def test_outputs_of_every_kind(settings):
    net = cases.ManyOutputs()
    inputs = cases.many_inputs()
    executable = ENGINE.build(cases.capture(net, *inputs), settings)
    before = [t.clone() for t in inputs]
    first = executable(inputs)
    cases.assert_same(first, cases.eager(net, *inputs))
    kept = [t.numpy().copy() for t in first]

    # Writing to a result reaches neither weights, inputs, other results nor later calls ...
    for result in first:
        result.fill_(77)
        assert float(result.astype("float32").min()) == 77
    cases.assert_same(executable(inputs), cases.eager(net, *inputs))
    cases.assert_same(list(inputs), before)

    # ... and later calls do not reach it.
    second = executable(inputs)
    executable([t * 2 for t in inputs])
    for result, values in zip(second, kept):
        np.testing.assert_allclose(result.numpy(), values, rtol=1e-5, atol=1e-6)


@both
def test_a_large_output_is_its_own(settings):
    x = paddle.randn([run_module.LARGE_OUTPUT // 4 + 3])
    executable = ENGINE.build(cases.capture(nn.functional.relu, x), settings)
    first = executable([x])[0]
    copy = first.clone()
    executable([x * 5])
    cases.assert_same([first], [copy])
    first += 1  # memory that came from numpy takes in-place ops like any other
    assert float((first - copy - 1).abs().max()) < 1e-6


@both
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "bool",
    ],
)
def test_dtypes(dtype, settings):
    x = paddle.to_tensor([[1, 0, 1], [0, 0, 1]]).astype(dtype)

    def call(x):
        return x.reshape([-1]), x.astype("float32")

    executable = ENGINE.build(cases.capture(call, x), settings)
    cases.assert_same(executable([x]), cases.eager(call, x), 0.0)


def test_a_dtype_predictors_do_not_take_is_refused():
    x = paddle.ones([2]).astype("complex64")
    with pytest.raises(EngineError, match="complex64"):
        ENGINE.build(cases.capture(lambda x: x * x, x), PLAIN)


@both
def test_strided_and_offset_inputs(settings):
    net = nn.Linear(3, 4)
    wide = paddle.randn([3, 5])
    captured = cases.capture(net, paddle.randn([5, 3]))
    executable = ENGINE.build(captured, settings)
    cases.assert_same(executable([wide.t()]), cases.eager(net, wide.t()))
    tall = paddle.randn([9, 3])
    cases.assert_same(executable([tall[4:]]), cases.eager(net, tall[4:]))


def test_empty_input_stays_off_onednn():
    x = paddle.zeros([0, 3])
    net = nn.Linear(3, 4)
    captured = cases.capture(net, x)
    assert [c["onednn"] for c in ENGINE.candidates(captured)] == [False]
    cases.assert_same(ENGINE.build(captured, PLAIN)([x]), cases.eager(net, x))


@both
def test_inputs_are_fed_by_name(cnn, settings):
    a, b = paddle.ones([3]), paddle.full([3], 5.0)
    captured = cases.capture(lambda a, b: a - 2 * b, a, b)
    swapped = CapturedProgram(
        captured.program,
        captured.inputs[::-1],
        captured.input_values[::-1],
        captured.outputs,
        captured.output_values,
        captured.parameters,
    )
    assert ENGINE.build(swapped, settings)([b, a])[0].tolist() == [-9.0] * 3


@both
def test_threads_of_the_process_are_left_alone(cnn, settings):
    _, x, captured = cnn
    before = math_threads()
    try:
        for threads in (1, 3):
            pd.set_math_threads(threads)
            executable = ENGINE.build(captured, {**settings, "threads": 2})
            assert math_threads() == threads
            executable([x])
            assert math_threads() == threads
    finally:
        pd.set_math_threads(before)


@both
def test_many_threads(cnn, settings):
    net, _, captured = cnn
    executable = ENGINE.build(captured, settings)
    failures = []

    def work(seed: int) -> None:
        for round_ in range(8):
            x = paddle.full([2, 3, 8, 8], 0.1 * seed + round_)
            if cases.error(executable([x])[0], cases.eager(net, x)[0]) > 1e-4:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_onednn_does_not_grow_with_the_number_of_threads(cnn):
    net, x, captured = cnn
    executable = ENGINE.build(captured, ONEDNN)
    want = cases.eager(net, x)
    ran_in = []
    run = executable._run

    def spy(inputs):
        ran_in.append(threading.get_ident())
        return run(inputs)

    executable._run = spy
    gate = threading.Barrier(12)

    def work() -> None:
        gate.wait()
        cases.assert_same(executable([x]), want)
        gate.wait()

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ran_in) == 12
    assert len(set(ran_in)) <= run_module.MAX_DIRECT_THREADS + 1


@both
def test_a_forked_child_goes_on(cnn, settings):
    _, x, captured = cnn
    executable = ENGINE.build(captured, {**settings, "threads": 2})
    want = executable([x])[0]

    def use() -> int:
        return 0 if cases.error(executable([x])[0], want) < 1e-4 else 1

    def build() -> int:
        return 0 if cases.error(ENGINE.build(captured, settings)([x])[0], want) < 1e-4 else 1

    assert cases.exit_status_of_fork(use) == 0
    assert cases.exit_status_of_fork(build) == 0

    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            executable([x])

    threads = [threading.Thread(target=busy) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        assert [cases.exit_status_of_fork(use) for _ in range(5)] == [0] * 5
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@both
def test_close(cnn, settings):
    _, x, captured = cnn
    executable = ENGINE.build(captured, settings)
    executable([x])
    executable.close()
    executable.close()
    with pytest.raises(EngineError, match="close"):
        executable([x])


def test_wrong_calls_are_engine_errors(cnn):
    net, x, captured = cnn
    executable = ENGINE.build(captured, PLAIN)
    with pytest.raises(EngineError, match="needs 1 inputs, got 2"):
        executable([x, x])
    with pytest.raises(EngineError, match="paddle_inference"):
        executable([x.astype("int64")])
    cases.assert_same(executable([x]), cases.eager(net, x))  # and it still works


@pytest.mark.parametrize(
    "settings",
    [{}, {"onednn": True}, {"onednn": False, "threads": 0}, {**PLAIN, "precision": "int8"}],
)
def test_wrong_settings(cnn, settings):
    with pytest.raises(EngineError, match="paddle_inference"):
        ENGINE.build(cnn[2], settings)


def test_candidates(cnn):
    _, _, captured = cnn
    assert ENGINE.unavailable() is None
    with override(threads=3):
        found = ENGINE.candidates(captured)
    assert found == [{"onednn": True, "threads": 3}, {"onednn": False, "threads": 3}]
    lookup = cases.capture(nn.Embedding(5, 4), paddle.to_tensor([1, 2]))
    assert [c["onednn"] for c in ENGINE.candidates(lookup)] == [False]


def test_memory_comes_back(cnn):
    _, x, captured = cnn

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def build_and_drop() -> None:
        executable = ENGINE.build(captured, ONEDNN)
        executable([x])
        executable.close()
        gc.collect()

    for _ in range(3):
        build_and_drop()
    before = resident()
    for _ in range(8):
        build_and_drop()
    assert resident() - before < 8 << 20
