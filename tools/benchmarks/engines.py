"""Every engine on every network: how long a call takes, and how long it is built.

All are built from the same captured program with the same number of threads, must agree with eager,
and are timed in interleaved blocks.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import machine
from zoo import chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default="all", help="comma separated; all: the whole zoo")
    parser.add_argument("--rounds", type=int, default=6, help="blocks of ten calls for each")
    parser.add_argument("--engines", default="native,paddle_inference,onnxruntime,openvino")


def run(options: argparse.Namespace) -> int:
    names = options.engines.split(",")
    print(machine.headline())
    print("median ms of a call (seconds to build); the best is marked with *\n")
    print(f"{'':20}" + "".join(f"{name:>22}" for name in names))
    results: dict[str, Any] = {}
    for model in chosen(options.models):
        results[model] = machine.in_child("engines", [model, str(options.rounds), options.engines])
        print(f"{model:20}" + _row(results[model], names), flush=True)
    print(f"\n{machine.save('engines', results)}")
    return 0


def _row(outcome: dict[str, Any], names: list[str]) -> str:
    if "failed" in outcome:
        return f"  failed: {outcome['failed']}"
    medians = {n: outcome[n]["median_ms"] for n in names if "median_ms" in outcome[n]}
    best = min(medians, key=medians.__getitem__, default="")
    cells = [
        f"{medians[n]:.3f} ({outcome[n]['build_s']:.2f}){'*' if n == best else ' '}"
        if n in medians
        else "none "
        for n in names
    ]
    return "".join(f"{cell:>22}" for cell in cells)


def child(model: str, rounds: str, engines: str) -> dict[str, Any]:
    """All engines on one network, in this process; why, where one has no right candidate."""
    import models
    import paddle
    import timing

    import paddle_fluid_boost as pfb
    from paddle_fluid_boost.capture.trace import trace
    from paddle_fluid_boost.engines.registry import make_engine
    from paddle_fluid_boost.engines.select import build_right

    pfb.install()  # a capture needs its hooks
    net, data = models.build(model)
    with paddle.no_grad():
        captured, _ = trace(net, (data,), {})
        result = net(data)
    want = list(result) if isinstance(result, (list, tuple)) else [result]
    outcome: dict[str, Any] = {}
    calls: dict[str, Any] = {}
    for name in engines.split(","):
        engine = make_engine(name)
        reason = engine.unavailable()
        outcome[name] = {"none": reason}
        for settings in () if reason else engine.candidates(captured):
            started = time.perf_counter()
            made = build_right(engine, captured, settings, [data], want)
            if isinstance(made, str):
                outcome[name] = {"none": made}
                continue
            outcome[name] = {"build_s": time.perf_counter() - started, "settings": settings}
            calls[name] = lambda made=made: made([data])
            break
    for name, times in timing.in_blocks(calls, rounds=int(rounds)).items():
        outcome[name].update(times.as_dict())
    return outcome
