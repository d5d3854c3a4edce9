"""How soon a fresh process runs at full speed, with an empty on-disk cache and with a full one.

Each run is a process of its own: the network is built, called once eagerly as any program would,
and then called without a pause until its compiled version serves.  Cold and warm take turns; every
cold process starts with an empty cache and leaves the one that the next warm process starts with.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from typing import Any

import machine

_MODELS = ("resnet50", "mobilenet_v3_small", "encoder12")
_PHASES = ("trace", "import", "passes", "plan", "verify", "time")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default=",".join(_MODELS), help="comma separated")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of processes, cold and warm")


def run(options: argparse.Namespace) -> int:
    print(machine.headline())
    print("Median of the processes (least - most).  hot: seconds from the first call under")
    print("to_static until the compiled version serves; calls: how many were eager until then;")
    print("worker: seconds of processor time of the compile; then its parts.\n")
    results: dict[str, Any] = {}
    for model in options.models.split(","):
        results[model] = {"cold": [], "warm": []}
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                environment = {"PFB_CACHE": "1", "PFB_CACHE_DIR": folder}
                for state in ("cold", "warm"):
                    outcome = machine.in_child("warm", [model], environment=environment)
                    results[model][state].append(outcome)
        print(model)
        for state, outcomes in results[model].items():
            print(f"  {state:5} {_summary(outcomes)}", flush=True)
    print(f"\n{machine.save('warm', results)}")
    return 0


def child(model: str) -> dict[str, Any]:
    """One process: ``hot_s``, ``calls``, ``worker_s``, ``phases`` (processor seconds)."""
    import time

    import models
    import paddle

    import paddle_fluid_boost as pfb
    from paddle_fluid_boost.dispatch.unit import all_units

    spent = _watch_phases()
    net, data = models.build(model)
    with paddle.no_grad():
        net(data)
        fast = pfb.to_static(net)
        started, calls = time.perf_counter(), 0
        while not any(unit.cache.versions for unit in all_units()):
            fast(data)
            calls += 1
            if time.perf_counter() - started > 120:
                raise RuntimeError(f"not compiled within two minutes: {pfb.explain(net)}")
        hot = time.perf_counter() - started
        pfb.wait(10)
    phases = {name: sum(spent.get(name, [])) for name in _PHASES}
    phases["verify"] -= phases["plan"] + phases["import"] + phases["passes"]
    return {
        "hot_s": hot,
        "calls": calls,
        "worker_s": sum(spent["job"]),
        "phases": phases,
        "builds": len(spent["verify"]),
    }


def _watch_phases() -> dict[str, list[float]]:
    """Lists, filled by and by, of the processor seconds of this thread in each phase.

    "verify" is what a candidate takes in all: its building, its first run and the comparison.
    """
    from paddle_fluid_boost.dispatch import compile as compiling
    from paddle_fluid_boost.engines import select
    from paddle_fluid_boost.engines.native import engine

    spent: dict[str, list[float]] = {}
    for owner, name, phase in (
        (compiling.CompileJob, "run", "job"),
        (compiling, "trace", "trace"),
        (engine, "import_program", "import"),
        (engine, "optimise", "passes"),
        (engine, "build_plan", "plan"),
        (select, "build_right", "verify"),
        (select, "_time", "time"),
    ):
        setattr(owner, name, _timed(getattr(owner, name), spent.setdefault(phase, [])))
    return spent


def _timed(function: Any, times: list[float]) -> Any:
    import time

    def measured(*arguments: Any, **named: Any) -> Any:
        started = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            times.append(time.thread_time() - started)

    return measured


def _summary(outcomes: list[dict[str, Any]]) -> str:
    good = [one for one in outcomes if "failed" not in one]
    if not good:
        return f"failed: {outcomes[0]['failed']}"
    hot = [one["hot_s"] for one in good]
    calls = statistics.median(one["calls"] for one in good)
    worker = statistics.median(one["worker_s"] for one in good)
    builds = statistics.median(one["builds"] for one in good)
    parts = ", ".join(
        f"{name} {statistics.median(one['phases'][name] for one in good):.2f}" for name in _PHASES
    )
    return (
        f"hot {statistics.median(hot):6.2f} s ({min(hot):.2f} - {max(hot):.2f}), "
        f"{calls:.0f} calls; worker {worker:.2f} s, {builds:.0f} built: {parts}"
    )
