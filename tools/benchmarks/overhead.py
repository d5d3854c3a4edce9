"""What the plugin itself costs for one call, on functions so small that nothing else shows.

Microseconds; each figure is the least mean of several blocks of calls in one process:
plain eager; the same function refused by the plugin, so that it stays dynamic for good; a hit,
which runs the compiled version; and the computing of the call's key alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import machine

_BUDGETS = {"key": 10.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=2000, help="calls in one block")


def run(options: argparse.Namespace) -> int:
    print(machine.headline() + "\n")
    outcome = machine.in_child("overhead", [str(options.repeats)])
    if "failed" in outcome:
        print(f"failed: {outcome['failed']}")
        return 1
    for name, title in _TITLES.items():
        print(f"  {title:54}{outcome[name]:9.2f} µs")
    refused = outcome["refused"] / outcome["refused_eager"] - 1
    print(f"\n  a refused function costs {refused:+.1%} over plain eager (target: at most 2%)")
    print(f"  computing a key: {outcome['key']:.2f} µs (budget: {_BUDGETS['key']:.0f} µs)")
    print(f"\n{machine.save('overhead', outcome)}")
    return 0


_TITLES = {
    "eager": "toy of 12 operations, plain eager",
    "hit": "the same, compiled",
    "refused_eager": "toy with a side effect, plain eager",
    "refused": "the same, refused by the plugin",
    "key": "key of a call with one tensor",
}


def child(repeats: str) -> dict[str, Any]:
    """All figures, in this process."""
    import paddle
    from timing import per_call_us

    import paddle_fluid_boost as pfb
    from paddle_fluid_boost.dispatch.signature import key_of

    count = int(repeats)
    x = paddle.rand([4, 8])
    y = paddle.rand([4, 8])

    def toy(a: Any, b: Any) -> Any:
        for _ in range(4):
            a = paddle.tanh(a * b + b)
        return a

    seen: list[int] = []

    def impure(a: Any, b: Any) -> Any:
        seen[:] = [1]  # a side effect, so this can never be compiled
        return toy(a, b)

    with paddle.no_grad():
        fast, refused = pfb.to_static(toy), pfb.to_static(impure)
        for function in (fast, refused):
            pfb.warmup(function, [x, y])
        pfb.wait(60)
        return {
            "eager": per_call_us(lambda: toy(x, y), count),
            "hit": per_call_us(lambda: fast(x, y), count),
            "refused_eager": per_call_us(lambda: impure(x, y), count),
            "refused": per_call_us(lambda: refused(x, y), count),
            "key": per_call_us(lambda: key_of((x,), {}), count),
            "explain": [pfb.explain(fast).to_dict(), pfb.explain(refused).to_dict()],
        }
