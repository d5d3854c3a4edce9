"""Resident memory stays level however many shapes and functions come by."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import pytest

PROGRAM = """
import gc, json, sys
import numpy, paddle, psutil
import paddle_fluid_boost as pfb

calls, warm = int(sys.argv[1]), int(sys.argv[2])
nn = paddle.nn
net = nn.Sequential(
    nn.Conv2D(3, 16, 3, padding=1), nn.BatchNorm2D(16), nn.ReLU(),
    nn.Conv2D(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(),
    nn.Linear(16, 10),
)
net.eval()
net = pfb.to_static(net)
random = numpy.random.default_rng(0)
popular = [(32, 32), (48, 64), (64, 40)]
process = psutil.Process()
levels = []
with paddle.no_grad():
    for call in range(calls):
        shape = popular[call % 3] if call % 2 else tuple(random.integers(16, 129, 2))
        net(paddle.rand([1, 3, *map(int, shape)]))
        if call >= warm and call % ((calls - warm) // 20) == 0:
            pfb.wait(60)
            gc.collect()
            levels.append(process.memory_info().rss / 2**20)
report = pfb.explain(net)
print(json.dumps({
    "levels": levels,
    "signatures": len(report.signatures),
    "versions": pfb.stats()["versions"],
    "compiles": pfb.stats()["compiles"],
}))
"""


def run(calls: int, warm: int, timeout: float) -> dict[str, list[float]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(calls), str(warm)],
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def assert_level(outcome: dict) -> None:
    levels = outcome["levels"]
    early, late = max(levels[:5]), max(levels[-5:])
    assert late - early < 40, f"resident MiB over the run: {[round(v) for v in levels]}"
    assert outcome["compiles"] >= 1
    assert outcome["signatures"] <= 256
    assert outcome["versions"] <= 32


def test_random_shapes_short() -> None:
    assert_level(run(calls=900, warm=300, timeout=400))


@pytest.mark.long
def test_random_shapes_long() -> None:
    assert_level(run(calls=10_000, warm=1_000, timeout=3000))


def test_layers_that_are_dropped_are_freed() -> None:
    """A boosted layer and its compiled version die with the last reference to it."""
    import weakref

    import paddle

    import paddle_fluid_boost as pfb

    gc.collect()
    before = pfb.stats()["versions"]
    references = []
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        for _ in range(3):
            net = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU())
            net.eval()
            net = pfb.to_static(net)
            for _ in range(5):
                net(paddle.ones([2, 8]))
            assert pfb.explain(net).state == "compiled"
            references.append(weakref.ref(net))
        del net
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert pfb.stats()["versions"] == before
