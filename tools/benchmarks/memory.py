"""Memory over many calls of ever new shapes, and the block pool against other allocators.

Part ``soak``: every way to run a network, in a process of its own, meets the same random heights
and widths in 128..512; resident memory is noted all along.  Part ``activations``: the most that
eager holds at once at 512x512 against the memory that a compiled call works in.  Part
``allocators``: the same work under glibc, glibc told to keep all, jemalloc, tcmalloc and the pool,
in turns.  Results: tables, out/bench/memory.json and memory.png.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import allocators
import machine

_MODELS = ("resnet18", "mobilenet_v3_small", "shufflenet_v2")
_PARTS = ("soak", "activations", "allocators")
_LOW, _HIGH = 128, 512
_SAMPLES = 100
#: The share of the calls that is warm-up.
_WARM = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default=",".join(_MODELS), help="comma separated")
    parser.add_argument("--ways", default="", help=f"comma separated, of: {', '.join(WAYS)}")
    parser.add_argument("--calls", type=int, default=300, help="of the soak, for each")
    parser.add_argument("--seed", type=int, default=0, help="of the shapes")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each allocator")
    parser.add_argument(
        "--cases", default=";".join(allocators.CASES), help="of the allocators; by semicolons"
    )
    parser.add_argument("--parts", default=",".join(_PARTS), help="comma separated")


def run(options: argparse.Namespace) -> int:
    print(machine.headline())
    models, parts = options.models.split(","), options.parts.split(",")
    results: dict[str, Any] = {}
    if "soak" in parts:
        ways = options.ways.split(",") if options.ways else list(WAYS)
        results["soak"] = {model: _soak(model, ways, options) for model in models}
    if "activations" in parts:
        results["activations"] = {model: _activations(model) for model in models}
    if "allocators" in parts:
        results["allocators"] = allocators.compare(
            models[:2], options.cases.split(";"), options.rounds
        )
    print(f"\n{machine.save('memory', results)}")
    if "soak" in results:
        picture = machine.OUT / "memory.png"
        _plot(results["soak"], picture)
        print(picture)
    return 0


# -- soak -----------------------------------------------------------------------------------------


def _soak(model: str, ways: list[str], options: argparse.Namespace) -> dict[str, Any]:
    print(
        f"\n{model}, {options.calls} calls, heights and widths in {_LOW}..{_HIGH}.  MiB; 'growth' "
        f"and 'faults' (per call) after the first {_WARM:.0%} of the calls.\n"
        f"  {'':31}{'start':>8}{'end':>8}{'growth':>8}{'peak':>8}{'faults':>9}{'ms':>8}"
    )
    outcomes = {}
    for way in ways:
        arguments = [model, way, str(options.calls), str(options.seed)]
        outcome = outcomes[way] = machine.in_child("memory", arguments, timeout=7200)
        if "failed" in outcome:
            print(f"  {way:31}{outcome['failed'][:90]}")
            continue
        print(
            f"  {way:31}{outcome['start']:8.0f}{outcome['resident'][-1]:8.0f}"
            f"{outcome['growth']:8.0f}{outcome['peak']:8.0f}{outcome['faults']:9.1f}"
            f"{outcome['milliseconds']:8.1f}"
            + (f"   pool served {outcome['share']:.0%}" if "share" in outcome else "")
        )
    return outcomes


def child(model: str, way: str, calls: str, seed: str) -> dict[str, Any]:
    """One way's soak, or with the way ``activations`` that part, in this process."""
    import models

    net, _ = models.build(model)
    if way == "activations":
        return _measure_activations(net)
    return _measure_soak(WAYS[way](net), int(calls), int(seed))


def _measure_soak(call: Callable[[Any], object], calls: int, seed: int) -> dict[str, Any]:
    import numpy as np
    from footprint import footprint

    from paddle_fluid_boost.memory import paddle_tensors

    random = np.random.default_rng(seed)
    pixels = random.standard_normal(3 * _HIGH * _HIGH).astype("float32")
    start, warm = footprint(), int(calls * _WARM)
    resident, times, served = [], [], paddle_tensors.traffic()
    faults = start.faults
    for number in range(calls):
        height, width = (int(size) for size in random.integers(_LOW, _HIGH + 1, 2))
        data = pixels[: 3 * height * width].reshape(1, 3, height, width)
        begun = time.perf_counter()
        call(data)
        times.append(time.perf_counter() - begun)
        if number == warm:
            faults = footprint().faults
        if number % max(1, calls // _SAMPLES) == 0:
            resident.append(footprint().resident)
    end = footprint()
    tail = resident[int(len(resident) * _WARM) :]
    half = max(1, len(tail) // 2)
    outcome = {
        "start": start.resident,
        "resident": [*resident, end.resident],
        "growth": max(tail[half:] or tail) - max(tail[:half]),
        # The kernel notes a thread's pages in batches, its high-water mark may lag behind.
        "peak": max(end.peak, start.resident, *resident),
        "faults": (end.faults - faults) / max(1, calls - warm),
        "milliseconds": statistics.median(times[warm:]) * 1e3,
    }
    if paddle_tensors.is_on():
        now = paddle_tensors.traffic()
        outcome["share"] = (now.served - served.served) / max(1, now.requests - served.requests)
    return outcome


# -- ways -----------------------------------------------------------------------------------------


def _dygraph(net: Any) -> Callable[[Any], object]:
    import paddle

    def call(data: Any) -> object:
        with paddle.no_grad():
            return net(paddle.to_tensor(data)).numpy()

    return call


def _pool_on() -> None:
    import paddle_fluid_boost as pfb
    from paddle_fluid_boost.memory import paddle_tensors

    pfb.configure(pool=True)
    pfb.install()
    if not paddle_tensors.is_on():
        raise RuntimeError(f"no pool: {paddle_tensors.refusal()}")


def _eager_pool(net: Any) -> Callable[[Any], object]:
    _pool_on()
    return _dygraph(net)


def _to_static(net: Any) -> Callable[[Any], object]:
    import paddle

    spec = [paddle.static.InputSpec([1, 3, None, None], "float32")]
    return _dygraph(paddle.jit.to_static(net, input_spec=spec, full_graph=True))


def _inference(net: Any, onednn: bool) -> Callable[[Any], object]:
    import competitors

    predictor, source, target = competitors.open_predictor(_saved(net), onednn)

    def call(data: Any) -> object:
        source.copy_from_cpu(data)
        predictor.run()
        return target.copy_to_cpu()

    return call


def _inference_pool(net: Any, onednn: bool) -> Callable[[Any], object]:
    _pool_on()
    return _inference(net, onednn)


def _onnxruntime(net: Any, arena: bool) -> Callable[[Any], object]:
    import competitors

    session = competitors.open_session(competitors.to_onnx(_saved(net)), arena)
    name = session.get_inputs()[0].name
    return lambda data: session.run(None, {name: data})[0]


def _boosted(net: Any) -> Callable[[Any], object]:
    import paddle_fluid_boost as pfb

    return _dygraph(pfb.to_static(net))


def _boosted_pool(net: Any) -> Callable[[Any], object]:
    _pool_on()
    return _boosted(net)


WAYS: dict[str, Callable[[Any], Callable[[Any], object]]] = {
    "eager": _dygraph,
    "eager + pool": _eager_pool,
    "to_static": _to_static,
    "Paddle Inference": lambda net: _inference(net, False),
    "Paddle Inference + pool": lambda net: _inference_pool(net, False),
    "Paddle Inference + oneDNN": lambda net: _inference(net, True),
    "ONNX Runtime": lambda net: _onnxruntime(net, True),
    "ONNX Runtime without arena": lambda net: _onnxruntime(net, False),
    "paddle_fluid_boost": _boosted,
    "paddle_fluid_boost + pool": _boosted_pool,
}


def _saved(net: Any) -> str:
    """The network saved for any height and width; the prefix of its files."""
    import competitors

    return competitors.saved(net, [1, 3, None, None], "float32")


# -- activations ----------------------------------------------------------------------------------


def _activations(model: str) -> dict[str, Any]:
    outcome = machine.in_child("memory", [model, "activations", "0", "0"])
    if "failed" in outcome:
        print(f"\n{model}: activations: {outcome['failed']}")
    else:
        eager, plan = outcome["eager"], outcome["plan"]
        print(
            f"\n{model}, 1x3x{_HIGH}x{_HIGH}: at most {eager:.1f} MiB of activations in eager, "
            f"{plan:.1f} MiB in the compiled plan ({plan / eager:.2f}x)"
        )
    return outcome


def _measure_activations(net: Any) -> dict[str, Any]:
    """Beside the input: eager's peak by Paddle's own count; the arena and results of a plan."""
    import paddle

    from paddle_fluid_boost.capture.lock import STATIC_LOCK
    from paddle_fluid_boost.capture.trace import trace
    from paddle_fluid_boost.engines.native import NativeEngine

    count = paddle.base.core
    data = paddle.ones([1, 3, _HIGH, _HIGH])
    before = count.host_memory_stat_current_value("Allocated", 0)
    with paddle.no_grad():
        result = net(data)
        eager = count.host_memory_stat_peak_value("Allocated", 0) - before
        STATIC_LOCK.open()
        captured, _ = trace(net, [data], {})
    executable = NativeEngine().build(captured, {"threads": machine.threads()})
    # Of two plans (for one thread and for all) a call runs one.
    arena = max(plan.arena_bytes for plan in executable._held[0])
    plan = arena + result.size * result.element_size()
    return {"eager": eager / 2**20, "plan": plan / 2**20}


def _plot(soak: dict[str, Any], path: Path) -> None:
    """Resident memory over the calls, one picture for each network."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(soak), figsize=(6 * len(soak), 4.5), squeeze=False)
    for place, (model, outcomes) in zip(axes[0], soak.items()):
        for way, outcome in outcomes.items():
            if "failed" in outcome:
                continue
            levels = outcome["resident"]
            steps = [100 * i / max(1, len(levels) - 1) for i in range(len(levels))]
            place.plot(steps, levels, label=way, linestyle="--" if "pool" in way else "-")
        place.set_title(model)
        place.set_xlabel("calls, %")
        place.set_ylabel("resident, MiB")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
