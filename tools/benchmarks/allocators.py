"""The block pool against other allocators: the same work in one process each, in turns.

Each allocator has a process that loads the network once and then waits; the parent lets one after
the other run a block of calls, several rounds, in an order that changes.  So a slow phase of the
machine meets all of them.  Libraries that are not installed are left out with a word.
"""

from __future__ import annotations

import glob
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

import machine

_FOLDERS = ("/usr/lib/*", "/usr/lib64", "/usr/local/lib")
#: Case -> (shape of the input, threads that call at once, calls of a block).
CASES = {
    "1x224": ((1, 3, 224, 224), 1, 10),
    "1x1080p": ((1, 3, 1080, 1920), 1, 2),
    "16x224": ((16, 3, 224, 224), 1, 2),
    "two threads, 1x224": ((1, 3, 224, 224), 2, 10),
}
WAYS = ("eager", "compiled")


def compare(models: list[str], cases: list[str], rounds: int) -> dict[str, Any]:
    """Prints a table for each network, way and case; returns all figures."""
    results: dict[str, Any] = {}
    for model in models:
        for way in WAYS:
            for case in cases:
                name = f"{model}, {way}, {case}"
                results[name] = _compare_one(model, way, case, rounds)
                _print_case(name, results[name])
    return results


def _environments() -> dict[str, dict[str, str]]:
    """Allocator -> what must be in the environment for it."""
    found = {
        "glibc": {},
        "glibc, keeps all": {
            "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        },
    }
    for name, pattern in (("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc*.so.4")):
        paths = [
            path
            for folder in _FOLDERS
            for path in sorted(glob.glob(f"{folder}/{pattern}"))
            if "debug" not in path
        ]
        if paths:
            found[name] = {"LD_PRELOAD": paths[0]}
        else:
            print(f"(left out: {name} is not installed)")
    found["pool"] = {"PFB_POOL": "1"}
    return found


class _Worker:
    """A process that runs blocks of calls when told to."""

    def __init__(self, environment: dict[str, str], arguments: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": os.pathsep.join([str(machine.ROOT), str(machine.HERE)]),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self) -> dict[str, Any]:
        """Lets it run one block; raises EOFError when it has died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise EOFError

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _compare_one(model: str, way: str, case: str, rounds: int) -> dict[str, Any]:
    workers = {
        name: _Worker(environment, [model, way, case])
        for name, environment in _environments().items()
    }
    blocks: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    try:
        for number in range(rounds + 1):  # the first warms up, and compiles
            order = list(workers)
            random.Random(number).shuffle(order)
            for name in order:
                try:
                    blocks[name].append(workers[name].ask())
                except EOFError:
                    blocks[name].append({"failed": True})
    finally:
        for worker in workers.values():
            worker.close()
    return {name: _summary(measured[1:]) for name, measured in blocks.items()}


def _summary(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    if any("failed" in block for block in blocks):
        return {"failed": "the process died"}
    times = sorted(time for block in blocks for time in block["times"])
    return {
        "milliseconds": times[len(times) // 2] * 1e3,
        "least": times[0] * 1e3,
        "processor": sum(block["processor"] for block in blocks) / len(times) * 1e3,
        "resident": blocks[-1]["resident"],
        "peak": blocks[-1]["peak"],
        "faults": sum(block["faults"] for block in blocks) / len(times),
        "state": blocks[-1]["state"],
    }


def _print_case(name: str, rows: dict[str, Any]) -> None:
    state = next((row["state"] for row in rows.values() if "state" in row), "")
    print(
        f"\n{name}{f' ({state})' if state else ''}\n  {'':18}{'ms':>9}{'least':>9}{'CPU ms':>9}"
        f"{'resident':>10}{'peak':>8}  MiB{'faults':>10} per call"
    )
    for allocator, row in rows.items():
        if "failed" in row:
            print(f"  {allocator:18}{row['failed']}")
            continue
        print(
            f"  {allocator:18}{row['milliseconds']:9.2f}{row['least']:9.2f}{row['processor']:9.1f}"
            f"{row['resident']:10.0f}{row['peak']:8.0f}{row['faults']:15.1f}"
        )


def _serve(model: str, way: str, case: str) -> None:
    """The worker's own loop."""
    from concurrent.futures import ThreadPoolExecutor

    import models
    import paddle
    from footprint import footprint

    import paddle_fluid_boost as pfb

    pfb.install()  # the option pool holds while the plugin is in
    shape, callers, calls = CASES[case]
    net, _ = models.build(model)
    data = paddle.ones(shape)
    if way == "compiled":
        net = pfb.to_static(net)

    def call(_: object = None) -> float:
        begun = time.perf_counter()
        with paddle.no_grad():
            net(data).numpy()
        return time.perf_counter() - begun

    state = ""
    if way == "compiled":
        import competitors

        competitors.until_settled(call, calls=60)
        state = pfb.explain(net).state
    for _ in sys.stdin:
        before, processor = footprint(), time.process_time()
        if callers == 1:
            times = [call() for _ in range(calls)]
        else:
            with ThreadPoolExecutor(callers) as pool:
                times = list(pool.map(call, range(calls * callers)))
        after = footprint()
        answer = {
            "times": times,
            "processor": time.process_time() - processor,
            "resident": after.resident,
            "peak": after.peak,
            "faults": after.faults - before.faults,
            "state": state,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
