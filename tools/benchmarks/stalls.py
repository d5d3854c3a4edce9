"""How long the main thread is held up while something compiles.

For each network, in fresh processes: the longest eager call when nothing compiles; the longest call
seen by the main thread from the first call until the plugin's compiled version is in use; and the
first call of Paddle's own ways, which compile before they answer.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import machine

_MODELS = ("resnet50", "mobilenet_v3_small", "encoder12")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default=",".join(_MODELS), help="comma separated")
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes for each figure")


def run(options: argparse.Namespace) -> int:
    print(machine.headline())
    print("Milliseconds; the longest call: median of the processes (and each process).\n")
    results: dict[str, Any] = {}
    for model in options.models.split(","):
        results[model] = {}
        print(model)
        for way, title in _TITLES.items():
            outcomes = [machine.in_child("stalls", [way, model]) for _ in range(options.repeats)]
            results[model][way] = outcomes
            print(f"  {title:50} {_summary(outcomes)}", flush=True)
        ratio = _ratio(results[model])
        if ratio is not None:
            print(f"  {'longest call while compiling / longest eager call':50} {ratio:.2f}")
    print(f"\n{machine.save('stalls', results)}")
    return 0


def child(way: str, model: str) -> dict[str, Any]:
    """One figure in this process: ``longest_ms`` and what led to it."""
    import models
    import paddle

    net, data = models.build(model)
    with paddle.no_grad():
        return _WAYS[way](net, data)


def _eager(net: Any, data: Any) -> dict[str, Any]:
    from timing import timed

    net(data)  # the first call pays for loading kernels, whoever makes it
    times = [timed(lambda: net(data)) for _ in range(60)]
    return {"longest_ms": max(times), "calls": len(times)}


def _boosted(net: Any, data: Any) -> dict[str, Any]:
    """Calls without a pause until no compile is under way and calls have become faster."""
    import time

    from timing import timed

    import paddle_fluid_boost as pfb

    net(data)  # as for eager
    fast = pfb.to_static(net)
    times = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        times.append(timed(lambda: fast(data)))
        if len(times) % 10 == 0 and len(times) >= 60 and pfb.wait(0):
            break
    return {"longest_ms": max(times), "calls": len(times), "last_ms": times[-1]}


def _stock(full_graph: bool) -> Any:
    def measure(net: Any, data: Any) -> dict[str, Any]:
        import paddle
        from timing import timed

        net(data)
        static = paddle.jit.to_static(net, full_graph=full_graph)
        return {"longest_ms": timed(lambda: static(data))}

    return measure


def _jit_inference(net: Any, data: Any) -> dict[str, Any]:
    import paddle
    from timing import timed

    net(data)
    decorated = paddle.incubate.jit.inference(net)
    return {"longest_ms": timed(lambda: decorated(data))}


_TITLES = {
    "eager": "eager, nothing compiles",
    "boosted": "paddle_fluid_boost, while it compiles",
    "stock": "to_static, first call",
    "stock_full_graph": "to_static(full_graph=True), first call",
    "jit_inference": "paddle.incubate.jit.inference, first call",
}
_WAYS = {
    "eager": _eager,
    "boosted": _boosted,
    "stock": _stock(full_graph=False),
    "stock_full_graph": _stock(full_graph=True),
    "jit_inference": _jit_inference,
}


def _summary(outcomes: list[dict[str, Any]]) -> str:
    good = [one["longest_ms"] for one in outcomes if "failed" not in one]
    if not good:
        return f"failed: {outcomes[0]['failed']}"
    return f"{statistics.median(good):9.1f}   ({', '.join(f'{value:.1f}' for value in good)})"


def _ratio(ways: dict[str, list[dict[str, Any]]]) -> float | None:
    longest = {
        way: [one["longest_ms"] for one in ways[way] if "failed" not in one]
        for way in ("eager", "boosted")
    }
    if not all(longest.values()):
        return None
    return statistics.median(longest["boosted"]) / statistics.median(longest["eager"])
