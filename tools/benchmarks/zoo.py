"""Every way to run a network, on several networks, timed in interleaved blocks.

Each network has a process of its own in which all competitors live; `timing.py` says how they
take turns.  Results: a table, out/bench/zoo.json and out/bench/zoo.png.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import machine

_MODELS = ("resnet18", "resnet50", "mobilenet_v3_small", "encoder4", "encoder12", "lstm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models", default=",".join(_MODELS), help="comma separated; all: the whole zoo"
    )
    parser.add_argument(
        "--ways", default="all", help="who competes, as in the table, comma separated; eager always"
    )
    parser.add_argument("--batch", default="1", help="batch sizes, comma separated")
    parser.add_argument("--rounds", type=int, default=6, help="blocks of ten calls for each")
    parser.add_argument(
        "--memory", action="store_true", help="also the memory of each, in a process of its own"
    )


def chosen(models: str) -> list[str]:
    """The networks that the option ``--models`` names."""
    if models != "all":
        return models.split(",")
    from models import ZOO  # imports Paddle, which this process otherwise does without

    return list(ZOO)


def run(options: argparse.Namespace) -> int:
    print(machine.headline())
    print("Milliseconds for one inference: median (least; quartile distance), gain over eager,")
    print("seconds until ready, largest error against eager relative to the output's range,")
    print("with --memory the MiB that its process grew by: at the end (at the peak).\n")
    results: dict[str, Any] = {}
    models = chosen(options.models)
    for model in models:
        for batch in options.batch.split(","):
            outcome = machine.in_child(
                "zoo", [model, batch, str(options.rounds), options.ways], timeout=1200
            )
            name = model if batch == "1" else f"{model} x{batch}"
            results[name] = outcome
            if options.memory:
                _add_memory(outcome, model, batch)
            _print_table(name, outcome)
    _print_summary(results)
    print(f"\n{machine.save('zoo', results)}")
    picture = machine.OUT / "zoo.png"
    _plot(results, picture)
    print(picture)
    return 1 if any("failed" in outcome for outcome in results.values()) else 0


def child(model: str, batch: str, rounds: str, ways: str) -> dict[str, Any]:
    """Times all competitors on one network, in this process."""
    import time

    import competitors
    import models
    import numpy as np
    import timing

    net, data = models.build(model, int(batch))
    calls: dict[str, competitors.Call] = {}
    rows: dict[str, dict[str, Any]] = {}
    wanted = competitors.eager(net, data, model)()
    for name in _competing(ways):
        prepare = competitors.ALL[name]
        started = time.perf_counter()
        try:
            call = prepare(net, data, model)
            got = call()
        except Exception as error:  # kept in the table: one that cannot run is a result too
            rows[name] = {"failed": f"{type(error).__name__}: {str(error).strip()[:160]}"}
            continue
        calls[name] = call
        rows[name] = {"ready_s": time.perf_counter() - started}
        if name not in competitors.OTHER_WEIGHTS:
            rows[name]["error"] = float(np.abs(got - wanted).max() / max(np.ptp(wanted), 1e-12))
    for name, times in timing.in_blocks(calls, rounds=int(rounds)).items():
        rows[name].update(times.as_dict())
    return {"description": models.ZOO[model].what, "rows": rows}


def _competing(ways: str) -> list[str]:
    """The names that the option ``--ways`` gives, eager first."""
    import competitors

    names = list(competitors.ALL) if ways == "all" else ["eager", *ways.split(",")]
    unknown = [name for name in names if name not in competitors.ALL]
    if unknown:
        raise ValueError(f"--ways: {unknown[0]!r} is none of {', '.join(competitors.ALL)}")
    return names


def _add_memory(outcome: dict[str, Any], model: str, batch: str) -> None:
    """Runs each competitor that could be timed once more, alone, and adds what it took."""
    for name, row in outcome.get("rows", {}).items():
        if "failed" in row:
            continue
        grown = machine.in_child("zoo_memory", [model, batch, name], timeout=300)
        row.update({"memory_failed": grown["failed"]} if "failed" in grown else grown)


def _print_table(model: str, outcome: dict[str, Any]) -> None:
    print(f"{model}: {outcome.get('description', '')}")
    if "failed" in outcome:
        print(f"  failed: {outcome['failed']}")
        return
    eager = outcome["rows"]["eager"]["median_ms"]
    for name, row in outcome["rows"].items():
        if "failed" in row:
            print(f"  {name:27} {row['failed']}")
            continue
        print(
            f"  {name:27}{row['median_ms']:9.2f} ({row['minimum_ms']:.2f}; {row['spread']:.0%})"
            f"{eager / row['median_ms']:9.2f}x{row['ready_s']:8.2f} s"
            + (f"   {row['error']:.0e}" if "error" in row else "")
            + (f"{row['grown_mib']:8.0f} ({row['peak_mib']:.0f}) MiB" if "peak_mib" in row else "")
        )


def _print_summary(results: dict[str, Any]) -> None:
    """Ours against eager and against the best of the others, each network once."""
    gains, leads = [], []
    print("\nours: gain over eager, lead over the best of the others (below 1: a loss)")
    for model, outcome in results.items():
        medians = {
            n: r["median_ms"] for n, r in outcome.get("rows", {}).items() if "median_ms" in r
        }
        ours = medians.pop("paddle_fluid_boost", None)
        if ours is None:
            continue
        best = min(medians, key=medians.__getitem__)
        gains.append(medians["eager"] / ours)
        leads.append(medians[best] / ours)
        print(f"  {model:27}{gains[-1]:8.2f}x{leads[-1]:8.2f}x  ({best})")
    if gains:
        mean, lead = (math.exp(sum(map(math.log, v)) / len(v)) for v in (gains, leads))
        print(f"  {'geometric mean':27}{mean:8.2f}x{lead:8.2f}x")


def _plot(results: dict[str, Any], path: Path) -> None:
    """Bars of the gain over eager, with the quartile distance as whiskers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    measured = {model: r["rows"] for model, r in results.items() if "rows" in r}
    names = list(dict.fromkeys(name for rows in measured.values() for name in rows))
    figure, axes = pyplot.subplots(figsize=(1.9 * len(measured) + 3, 4.5))
    width = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        places, gains, whiskers = [], [], []
        for place, rows in enumerate(measured.values()):
            if "median_ms" in rows.get(name, {}):
                gain = rows["eager"]["median_ms"] / rows[name]["median_ms"]
                places.append(place + (index - len(names) / 2 + 0.5) * width)
                gains.append(gain)
                whiskers.append(gain * rows[name]["spread"] / 2)
        axes.bar(places, gains, width, yerr=whiskers, label=name, error_kw={"linewidth": 0.8})
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(measured)), list(measured))
    axes.set_ylabel("times as fast as eager")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
