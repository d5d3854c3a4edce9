"""Which ops of a network are native, what each costs, and how near the products come to the peak.

For each network of the zoo: the compiled version's ops with their number, time and share, and for
convolutions and matrix products the rate in GFLOP/s beside the rate of one large matrix product in
the same plan format, measured in the same process: the machine's peak, as far as anybody gets it.
"""

from __future__ import annotations

import argparse
from typing import Any

import machine
from zoo import chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default="all", help="comma separated; all: the whole zoo")
    parser.add_argument("--batch", type=int, default=1)


def run(options: argparse.Namespace) -> int:
    print(machine.headline())
    results: dict[str, Any] = {}
    for model in chosen(options.models):
        outcome = machine.in_child("coverage", [model, str(options.batch)])
        results[model] = outcome
        print(f"\n{model}: {outcome.get('failed') or outcome['text']}")
    measured = {model: r for model, r in results.items() if "native" in r}
    if measured:
        print("\nnative share of the time, and of the products' peak rate")
        for model, result in measured.items():
            print(f"  {model:22}{result['native']:8.1%}{result['of_peak']:8.0%}")
    print(f"\n{machine.save('coverage', results)}")
    return 1 if len(measured) < len(results) else 0


def child(model: str, batch: str) -> dict[str, Any]:
    """The coverage of one network, compiled in this process."""
    from dataclasses import asdict

    import models
    import paddle

    import paddle_fluid_boost as pfb
    from paddle_fluid_boost.report.explain import coverage_lines

    pfb.options.min_gain = 0  # what is native, wherever it is faster
    net, data = models.build(model, int(batch))
    fast = pfb.to_static(net)
    with paddle.no_grad():
        pfb.warmup(fast, [data])
        report = pfb.explain(fast, coverage=True)
    found = [s for s in report.signatures if s.coverage]
    if not found:
        return {"failed": f"not compiled by the native engine\n{report}"}
    shares = found[0].coverage
    peak = _peak()
    products = [share for share in shares if share.gflops]
    done = sum(share.gflops * share.microseconds for share in products)
    spent = sum(share.microseconds for share in products)
    hosts = [note for note in found[0].notes if note.startswith("host step")]
    lines = [models.ZOO[model].what, *coverage_lines(shares), f"peak {peak:.0f} GFLOP/s", *hosts]
    return {
        "text": "\n  ".join(lines),
        "native": sum(share.share for share in shares if share.native),
        "of_peak": done / spent / peak if spent else 0.0,
        "peak_gflops": peak,
        "shares": [asdict(share) for share in shares],
    }


def _peak(side: int = 1024) -> float:
    """GFLOP/s of one large matrix product, the best of many."""
    import paddle

    import paddle_fluid_boost as pfb

    layer = paddle.nn.Linear(side, side, bias_attr=False)
    layer.eval()
    fast = pfb.to_static(layer)
    with paddle.no_grad():
        pfb.warmup(fast, [paddle.randn([side, side])])
        report = pfb.explain(fast, coverage=True)
    return max(share.gflops for s in report.signatures for share in s.coverage)
