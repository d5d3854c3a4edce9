"""The bridges: what is shared is the same memory, never dangles, and is not counted as a copy."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import paddle
import pytest
from paddle import nn

import paddle_fluid_boost as pfb
from paddle_fluid_boost import io
from paddle_fluid_boost.memory import paddle_tensors
from paddle_fluid_boost.memory.pool import BlockPool
from paddle_fluid_boost.memory.shared import shared_pool

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]


@pytest.fixture(autouse=True)
def _fresh_counts():
    io.reset_copies()


# -- arrays to tensors ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_shared(dtype) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    tensor = io.to_tensor(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.stop_gradient and tensor.place.is_cpu_place()
    assert tensor.numpy().dtype == array.dtype and (tensor.numpy() == array).all()
    array[1, 2, 3] = 0
    assert not tensor[1, 2, 3].item()
    assert io.copies().count == 0


@pytest.mark.parametrize("view", ["T", "every second column", "rows"])
def test_views_that_step_forward_are_shared(view) -> None:
    base = np.arange(24, dtype="float32").reshape(4, 6)
    array = {"T": base.T, "every second column": base[:, ::2], "rows": base[1:3]}[view]
    tensor = io.to_tensor(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert ((tensor + 1).numpy() == array + 1).all()
    assert io.copies().count == 0


def odd_arrays() -> dict[str, np.ndarray]:
    base = np.arange(24, dtype="float32").reshape(4, 6)
    read_only = base.copy()
    read_only.flags.writeable = False
    misaligned = np.zeros(97, np.uint8)[1:].view("float32")
    misaligned[:] = 3
    return {
        "steps backwards": base[::-1],
        "repeats itself": np.lib.stride_tricks.as_strided(base, (3, 6), (0, 4), writeable=True),
        "read-only": read_only,
        "not aligned": misaligned,
        "other byte order": base.astype(">f4"),
        "empty": base[:0],
    }


@pytest.mark.parametrize("why", list(odd_arrays()))
def test_other_arrays_are_copied_counted_and_right(why) -> None:
    array = odd_arrays()[why]
    tensor = io.to_tensor(array)
    assert list(tensor.shape) == list(array.shape)
    assert (tensor.numpy() == array).all()
    counted = io.copies()
    assert (counted.count, counted.nbytes) == (1, array.nbytes)
    assert why in next(iter(counted.reasons))


@pytest.mark.parametrize("wrong", [[1, 2], np.array(["a"]), np.zeros(2, "uint32")])
def test_what_is_no_array_for_paddle_is_refused(wrong) -> None:
    with pytest.raises(TypeError, match="to_tensor"):
        io.to_tensor(wrong)


# -- tensors to arrays ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_are_shared(dtype) -> None:
    tensor = paddle.to_tensor(np.arange(12).reshape(3, 4).astype(dtype))
    for view in (tensor, tensor[1:], tensor.transpose([1, 0])):
        array = io.to_numpy(view)
        assert array.ctypes.data == view.data_ptr()
        assert (array == view.numpy()).all()
    assert io.copies().count == 0


def test_tensors_with_gradients_are_shared_detached() -> None:
    tensor = paddle.rand([3, 4])
    tensor.stop_gradient = False
    assert io.to_numpy(tensor * 2).shape == (3, 4)
    assert io.copies().count == 0


@pytest.mark.parametrize("kind", ["bfloat16", "empty"])
def test_other_tensors_are_copied_and_counted(kind) -> None:
    tensor = paddle.ones([4]).astype("bfloat16") if kind == "bfloat16" else paddle.ones([0, 3])
    assert io.to_numpy(tensor).shape == tuple(tensor.shape)
    assert io.copies().count == 1
    assert kind in next(iter(io.copies().reasons))


# -- lifetimes, under a pool whose free memory is NaN ---------------------------------------------


def pool_array(pool: BlockPool, count: int = 1000) -> np.ndarray:
    array = np.frombuffer(pool.allocate(4 * count).buffer(), np.float32)
    array[:] = 3.0
    return array


def test_a_tensor_keeps_the_memory_of_its_array() -> None:
    pool = BlockPool(debug=True, address_space=1 << 28)
    tensor = io.to_tensor(pool_array(pool))
    part = tensor[10:20]
    loose = io.to_numpy(part)
    del tensor, part
    gc.collect()
    assert pool.statistics().live == 1
    assert (loose == 3.0).all()
    del loose
    gc.collect()
    assert pool.statistics().live == 0
    assert pool.check() == 0


def test_a_result_outlives_everything_it_came_from() -> None:
    pool = BlockPool(debug=True, address_space=1 << 28)
    reshaped = io.to_tensor(pool_array(pool)).reshape([10, 100]).detach()
    pool.close()
    del pool
    gc.collect()
    assert (reshaped.numpy() == 3.0).all()


def test_an_array_keeps_the_memory_of_its_tensor() -> None:
    if not paddle_tensors.switch_on():
        pytest.skip(f"stock allocator: {paddle_tensors.refusal()}")
    try:
        array = io.to_numpy(paddle.full([50_000], 2.0) + 1)
        assert shared_pool().owns(array.ctypes.data)
        gc.collect()
        others = [paddle.zeros([50_000]) for _ in range(20)]
        assert (array == 3.0).all()
        assert len(others) == 20
    finally:
        paddle_tensors.switch_off()


def predictor_of(model: nn.Layer, folder, shape):
    from paddle import inference

    spec = [paddle.static.InputSpec(shape, "float32", name="x")]
    paddle.jit.save(paddle.jit.to_static(model, input_spec=spec, full_graph=True), f"{folder}/m")
    config = inference.Config(f"{folder}/m.json", f"{folder}/m.pdiparams")
    config.disable_glog_info()
    config.disable_mkldnn()
    return inference.create_predictor(config)


def test_a_predictor_keeps_its_inputs(tmp_path) -> None:
    pool = BlockPool(debug=True, address_space=1 << 28)
    model = nn.Linear(100, 3)
    model.eval()
    predictor = predictor_of(model, tmp_path, [10, 100])
    want = model(paddle.full([10, 100], 3.0)).numpy()
    io.share_input(predictor, "x", pool_array(pool).reshape(10, 100))
    gc.collect()
    assert pool.statistics().live == 1
    for _ in range(2):
        predictor.run()
        got = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
        assert np.allclose(got, want, atol=1e-5)
    assert io.copies().count == 0
    with pytest.raises(ValueError, match="no input 'y'; the predictor has x"):
        io.share_input(predictor, "y", np.zeros(3, "float32"))
    io.share_input(predictor, "x", paddle.zeros([10, 100]))
    gc.collect()
    assert pool.statistics().live == 0
    view = paddle.zeros([100, 10]).t()
    io.share_input(predictor, "x", view)
    assert io.copies().count == 1
    assert not view.is_contiguous()  # still a view of its base


# -- frame buffers --------------------------------------------------------------------------------


def test_array_and_tensor_of_a_frame_are_one_memory() -> None:
    ring = io.frame_buffer((2, 3, 8, 8), "float32", count=2)
    with ring.acquire() as frame:
        assert frame.array.shape == (2, 3, 8, 8) and frame.array.ctypes.data % 4096 == 0
        assert frame.tensor.data_ptr() == frame.array.ctypes.data
        frame.array[:] = 5
        assert float(frame.tensor.mean()) == 5.0
        assert ring.free == 1
    assert ring.free == 2
    assert io.copies().count == 0


def test_frames_go_round_and_are_never_handed_out_twice() -> None:
    ring = io.frame_buffer([4], "uint8", count=3)
    first, second, third = (ring.acquire() for _ in range(3))
    assert len({f.array.ctypes.data for f in (first, second, third)}) == 3
    with pytest.raises(TimeoutError, match=r"all 3 buffers were in use for 0.01 s"):
        ring.acquire(timeout=0.01)
    second.release()
    first.release()
    assert ring.acquire() is second and ring.acquire() is first
    with pytest.raises(ValueError, match="released twice"):
        third.release()
        third.release()


def test_a_frame_comes_back_whole_whatever_was_done_to_its_tensor() -> None:
    ring = io.frame_buffer((2, 3), count=1)
    for spoil in (
        lambda tensor: tensor.unsqueeze_(0),
        lambda tensor: tensor.add_(paddle.ones([1])),
    ):
        with ring.acquire() as frame:
            spoil(frame.tensor)
        with ring.acquire() as frame:
            assert frame.tensor.shape == [2, 3]
            assert frame.tensor.data_ptr() == frame.array.ctypes.data
            frame.array[:] = 2
            assert float(frame.tensor.sum()) == 12.0


def test_a_waiting_thread_gets_the_frame_that_is_released() -> None:
    ring = io.frame_buffer([4], count=1)
    held, got = ring.acquire(), []
    thread = threading.Thread(target=lambda: got.append(ring.acquire(timeout=30)))
    thread.start()
    time.sleep(0.02)
    held.release()
    thread.join(30)
    assert got == [held]


def test_memory_of_a_dropped_ring_goes_when_its_last_user_goes() -> None:
    gc.collect()
    before = shared_pool().statistics().live
    ring = io.frame_buffer([1000], count=2)
    frame = ring.acquire()
    frame.array[:] = 7
    tensor, gone = frame.tensor, weakref.ref(ring)
    del ring, frame
    gc.collect()
    assert gone() is None
    assert shared_pool().statistics().live == before + 1
    assert float(tensor.sum()) == 7000.0
    del tensor
    gc.collect()
    assert shared_pool().statistics().live == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(((0, 3),), "'shape' must be positive"), (((3,), "float32", 0), "'count' must be positive")],
)
def test_wrong_arguments_are_named(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        io.frame_buffer(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "argument 'shape' must be"),
        (((2.5, 3),), "argument 'shape' must be"),
        (((3,), "object"), "argument 'dtype' must be one of bool, .*, got 'object'"),
        (((3,), "nonsense"), "argument 'dtype' must be"),
        (((3,), "uint16"), "argument 'dtype' must be"),
        (((3,), paddle.float32), "argument 'dtype' must be"),
        (((3,), "float32", "two"), "argument 'count' must be"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(arguments, message) -> None:
    with pytest.raises(TypeError, match=f"frame_buffer: {message}"):
        io.frame_buffer(*arguments)


# -- the hot path ---------------------------------------------------------------------------------


def test_the_hot_path_copies_nothing() -> None:
    """Camera to compiled network to numpy: only the results themselves are allocated."""
    paddle.seed(5)
    model = nn.Sequential(nn.Conv2D(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2D(8, 4, 3))
    model.eval()
    ring = io.frame_buffer((1, 3, 32, 32))
    rng = np.random.default_rng(0)
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        net = pfb.to_static(model)
        for _ in range(6):
            with ring.acquire() as frame:
                net(frame.tensor)
        if pfb.explain(net).state != "compiled":
            pytest.skip(f"nothing to measure: {pfb.explain(net)}")
        io.reset_copies()
        allocations = 0
        for _ in range(10):
            with ring.acquire() as frame:
                frame.array[:] = rng.standard_normal(frame.array.shape)
                with paddle_tensors.watched() as traffic:
                    scores = io.to_numpy(net(frame.tensor))
                    allocations += traffic().requested_bytes
                eager = model[2](model[1](model[0](frame.tensor))).numpy()
                assert np.abs(scores - eager).max() <= 1e-4 * np.ptp(eager)
    assert io.copies() == io.Copies()
    native = any(s.engine.startswith("native") for s in pfb.explain(net).signatures)
    if native and paddle_tensors.try_out() is None:
        assert allocations <= 10 * (scores.nbytes + 256)
