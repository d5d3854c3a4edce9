"""Whether the tuner takes the best: its choice beside an exhaustive sweep of all candidates.

For each network of the zoo the tuner chooses under its usual time budget.  Then every candidate of
every engine, with every number of threads worth measuring, is timed in interleaved blocks, far
longer than the tuner may.  Told: what the tuner took, what was best, and how much slower the one is
than the other.  Both times are lower quartiles of the calls in the sweep: on a machine with other
guests medians of the same executable differ by more than what is to be shown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import machine
from zoo import chosen

#: The choice may be this much slower than the best.
TARGET = 1.03


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default="all", help="comma separated; all: the whole zoo")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of ten calls for each")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds; 0: the default")
    parser.add_argument("--engines", default="", help="comma separated; default: the option's")


def run(options: argparse.Namespace) -> int:
    print(machine.headline())
    print(
        "ms: lower quartile of all calls in the sweep; work: seconds that the tuner built and ran\n"
    )
    results: dict[str, Any] = {}
    for model in chosen(options.models):
        outcome = machine.in_child(
            "tuner", [model, str(options.rounds), str(options.budget), options.engines]
        )
        results[model] = outcome
        if "failed" in outcome:
            print(f"{model:20} failed: {outcome['failed']}")
            continue
        mark = "" if outcome["ratio"] <= TARGET else "  <-- misses the target"
        print(
            f"{model:20}{outcome['chosen_ms']:8.3f} ms {outcome['chosen']:58} best "
            f"{outcome['best_ms']:8.3f} ms {outcome['best']:58}{outcome['ratio']:7.3f}x "
            f"of {outcome['candidates']}, work {outcome['work']:.1f} s{mark}",
            flush=True,
        )
    ratios = [outcome["ratio"] for outcome in results.values() if "ratio" in outcome]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        hits = sum(ratio <= TARGET for ratio in ratios)
        print(f"\n{hits} of {len(results)} within 3% of the best; geometric mean {mean:.3f}x")
    print(f"\n{machine.save('tuner', results)}")
    return 1 if len(ratios) < len(results) else 0


def child(model: str, rounds: str, budget: str, engines: str) -> dict[str, Any]:
    """The tuner and the sweep on one network, in this process."""
    import models
    import paddle
    import timing

    import paddle_fluid_boost as pfb
    from paddle_fluid_boost.capture.trace import trace
    from paddle_fluid_boost.engines import openmp, select, tuner
    from paddle_fluid_boost.engines.registry import make_engine
    from paddle_fluid_boost.hardware.advice import thread_counts

    if engines:
        pfb.configure(engines=engines)
    pfb.install()  # a capture needs its hooks
    net, data = models.build(model)
    with paddle.no_grad():
        captured, _ = trace(net, (data,), {})
        result = net(data)
    want = list(result) if isinstance(result, (list, tuple)) else [result]
    inputs = [data]

    spent: list[float] = []
    with openmp.sleeping_team():
        choice = tuner.tune(
            captured,
            inputs,
            want,
            1.0,
            spent.append,
            budget=float(budget) or pfb.options.tune_seconds,
            memory=tuner.Remembering(on_disk=False),
        )
    if choice.executable is None:
        return {"failed": f"nothing is right: {choice.tried}"}
    chosen_label = choice.tried[-1][0]
    choice.executable.close()

    calls: dict[str, Any] = {}
    for name, settings in select.offers(captured, []):
        engine = make_engine(name)
        for count in thread_counts() if "threads" in settings else (0,):
            full = {**settings, "threads": count} if count else settings
            made = select.build_right(engine, captured, full, inputs, want)
            if not isinstance(made, str):
                label = f"{engine.name} {full}" if full else engine.name
                calls[label] = lambda made=made: made(inputs)
    quick = timing.in_blocks(calls, rounds=1, calls=3)
    best = min(t.median for t in quick.values())
    near = {n: c for n, c in calls.items() if quick[n].median < 2 * best or n == chosen_label}
    swept = timing.in_blocks(near, rounds=int(rounds))
    medians = {name: _undisturbed(times.samples) for name, times in swept.items()}
    winner = min(medians, key=medians.__getitem__)
    return {
        "chosen": chosen_label,
        "chosen_ms": medians[chosen_label],
        "best": winner,
        "best_ms": medians[winner],
        "ratio": medians[chosen_label] / medians[winner],
        "candidates": len(calls),
        "work": sum(spent),
        "sweep_ms": medians,
        "tried": choice.tried,
    }


def _undisturbed(samples: Sequence[float]) -> float:
    """The lower quartile: what a call takes that little disturbs."""
    return sorted(samples)[len(samples) // 4]
