"""What the plugin itself costs for one call, on functions so small that nothing else shows.

Microseconds; each figure is the least mean of several turns in one process:
plain eager; the same function refused by the plugin, so that it stays dynamic for good; a hit,
which runs the compiled version; and the computing of the call's key alone.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import machine

#: Microseconds for the key of a call with one tensor.
_KEY_BUDGET = 10.0
#: A single thread's clock and processor time differ by more only when others compete.
_BUSY = 1.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=2000, help="calls in one block")


def run(options: argparse.Namespace) -> int:
    print(machine.headline() + "\n")
    outcome = machine.in_child("overhead", [str(options.repeats)])
    if "failed" in outcome:
        print(f"failed: {outcome['failed']}")
        return 1
    times = outcome["times"]
    print(f"  {'':54}{'clock':>9}{'processor':>12}")
    for name, title in _TITLES.items():
        print(f"  {title:54}{times[name]['wall_us']:9.2f}{times[name]['cpu_us']:12.2f} µs")
    extra = times["refused"]["cpu_us"] - times["refused_eager"]["cpu_us"]
    print(f"\n  the compiled toy is: {outcome['hit']}")
    print(f"  the refused toy is: {outcome['refused']}")
    print(
        f"  a refused call costs {extra:.2f} µs of processor time more: the target of 2% is met by "
        f"calls of {extra / 0.02:.0f} µs and longer"
    )
    print(f"  a key is computed in {times['key']['cpu_us']:.2f} µs (budget: {_KEY_BUDGET:.0f} µs)")
    busy = times["eager"]["wall_us"] / times["eager"]["cpu_us"]
    if busy > _BUSY:
        print(f"  NOTE: the machine was busy (clock / processor time {busy:.1f}): measure again")
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

    x = paddle.rand([4, 8])
    y = paddle.rand([4, 8])

    def toy(a: Any, b: Any) -> Any:
        for _ in range(4):
            a = paddle.tanh(a * b + b)
        return a

    count_of_calls = [0]

    def impure(a: Any, b: Any) -> Any:
        count_of_calls[0] += 1  # a side effect that differs at each call: never compiled
        return toy(a, b)

    # The toy is too small for any engine to gain; what a hit costs should be seen all the same.
    pfb.configure(min_gain=0)
    with paddle.no_grad():
        fast, refused = pfb.to_static(toy), pfb.to_static(impure)
        for function in (fast, refused):
            pfb.warmup(function, [x, y])
        pfb.wait(60)
        calls = {
            "eager": lambda: toy(x, y),
            "hit": lambda: fast(x, y),
            "refused_eager": lambda: impure(x, y),
            "refused": lambda: refused(x, y),
            "key": lambda: key_of((x,), {}),
        }
        times = per_call_us(calls, int(repeats))
        return {
            "times": {name: dataclasses.asdict(time) for name, time in times.items()},
            "hit": _state(pfb.explain(fast)),
            "refused": _state(pfb.explain(refused)),
        }


def _state(report: Any) -> str:
    """Whether a function is compiled and, if not, the first reason."""
    reasons = "; ".join(str(refusal) for refusal in report.refusals[:1])
    return f"{report.state} ({reasons})" if reasons else report.state
