"""What happens in processes with the simulated device: ``python npu_scenarios.py NAME``.

Each scenario prints facts as JSON; the tests judge them.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from simulated_npu_build import ANSWER, SimulatedNpu

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.dispatch.explanations import find_unit
from paddle_fluid_boost.engines.custom_device import CustomDevice
from paddle_fluid_boost.engines.device_memory import held_bytes, peak_bytes
from paddle_fluid_boost.errors import EngineError

NPU = SimulatedNpu()
#: Paddle 3.1 keeps what its allocator has cached of a custom device.
GIVES_BACK = hasattr(paddle.device, "empty_cache")


def empty_cache() -> None:
    if GIVES_BACK:
        paddle.device.empty_cache()


class SmallNet(nn.Layer):
    """A CNN of which the device has the additions and, where its input is there, the ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2D(8)
        self.last = nn.Linear(512, 5)

    def forward(self, x: Any) -> Any:
        return self.last(F.relu(self.norm(self.conv(x))).flatten(1))


def images() -> Any:
    return paddle.randn([2, 3, 8, 8])


def error(got: Any, want: Any) -> float:
    return float((got.cpu() - want.cpu()).abs().max())


def compiled_net() -> tuple[Any, Any]:
    """(the boosted net, the same net's plain forward), compiled at its second call or so."""
    plain = SmallNet()
    plain.eval()
    net = pfb.to_static(plain)
    for _ in range(6):
        net(images())
    return net, lambda x: SmallNet.forward(plain, x)


def version_of(net: Any) -> Any:
    """The one compiled version of ``net``, or None."""
    versions = find_unit(net).cache.all()
    return versions[0] if versions else None


def capture(call: Any, *args: Any) -> Any:
    STATIC_LOCK.open()
    return trace(call, args, {})[0]


def on_the_device() -> dict[str, Any]:
    """Paddle has put everything on the device by itself."""
    net, plain = compiled_net()
    first = version_of(net)
    executable = first.executable
    errors, places = [], set()
    for _ in range(3):
        x = images()
        got = net(x)
        places.add(str(got.place))
        errors.append(error(got, plain(x)))
    x = images()
    net(x)  # nothing is left to allocate
    before = {event: NPU.count(event) for event in ("d2h", "h2d", "kernel")}
    bytes_before = NPU.nbytes("d2h") + NPU.nbytes("h2d")
    executable([x])
    counted = {event: NPU.count(event) - before[event] for event in before}
    counted["bytes"] = NPU.nbytes("d2h") + NPU.nbytes("h2d") - bytes_before
    placement = executable.placement
    net.conv.weight.set_value(net.conv.weight * 2)
    x = images()
    stale = error(net(x), plain(x))
    withdrawn = version_of(net) is not first
    x = images()
    x[0, 0, 0, 0] = float("nan")
    nan_alike = bool(np.array_equal(net(x).numpy(), plain(x).numpy(), equal_nan=True))
    return {
        "engine": executable.engine,
        "errors": errors,
        "places": sorted(places),
        "weights": str(net.conv.weight.place),
        "counted": counted,
        "on_device": dict(placement.on_device),
        "on_cpu": dict(placement.on_cpu),
        "reasons": placement.reasons,
        "copies": dict(placement.copies),
        "copied_bytes": placement.copied_bytes,
        "shares": {name: placement.caused_share(name) for name in placement.on_cpu},
        "explained": str(pfb.explain(net)),
        "stale": stale,
        "withdrawn": withdrawn,
        "nan_alike": nan_alike,
    }


def from_the_cpu() -> dict[str, Any]:
    """The user works on the CPU and asks for the second device."""
    paddle.set_device("cpu")
    # Without engines for the CPU: the quickest serves, and nothing is quick on a simulated device.
    pfb.configure(device="npu:1", probe_in_child=False, engines="")
    net, plain = compiled_net()
    x = images()
    got = net(x)
    kernels = NPU.count("kernel")
    net(x)
    pfb.configure(device="npu:6", engines="paddle_inference")
    missing, _ = compiled_net()
    pfb.configure(device="auto")
    stays, _ = compiled_net()
    return {
        "engine": version_of(net).executable.engine,
        "place": str(got.place),
        "error": error(got, plain(x)),
        "ran_there": NPU.count("kernel") > kernels,
        "live": [NPU.live(0) > 0, NPU.live(1) > 0],
        "missing": str(pfb.explain(missing)),
        "missing_engine": version_of(missing).executable.engine,
        "auto_engine": version_of(stays).executable.engine,
        "default_device": paddle.device.get_device(),
    }


def failures() -> dict[str, Any]:
    """Runs fail on the device; every call must be answered all the same."""
    pfb.configure(device="npu", probe_in_child=False, engines="")
    paddle.set_device("cpu")
    facts: dict[str, Any] = {"gives_back": GIVES_BACK}
    for event in ("allocate", "h2d", "d2h", "synchronize")[not GIVES_BACK :]:
        net, plain = compiled_net()
        x = images()
        was_there = "npu" in version_of(net).executable.engine
        if event == "allocate":  # the first size that the device has not met
            empty_cache()
        live = NPU.live()
        NPU.fail(event)
        wrong = error(net(x), plain(x))
        again = error(net(x), plain(x))
        NPU.fail(event, -1)
        facts[event] = {
            "was_there": was_there,
            "wrong": max(wrong, again),
            "withdrawn": version_of(net) is None,
            "explained": str(pfb.explain(net)),
            "held": held_bytes("npu:0"),
            "given_back": live - NPU.live(),
        }
    return facts


def failures_at_any_moment() -> dict[str, Any]:
    """The device fails at the n-th event, wherever that is: in a build, a check, a timed run, a
    user's call.  What the calls gave, and what is held in the end."""
    pfb.configure(device="npu", probe_in_child=False, engines="paddle_inference")
    paddle.set_device("cpu")
    wrong, held = [], []
    for event in ("allocate", "h2d", "d2h", "synchronize"):
        for after in (0, 2, 5, 11, 23):
            empty_cache()
            plain = SmallNet()
            plain.eval()
            net = pfb.to_static(plain)
            NPU.fail(event, after)
            for _ in range(6):
                x = images()
                off = error(net(x), SmallNet.forward(plain, x))
                if not off < 1e-4:
                    wrong.append([event, after, off])
            NPU.fail(event, -1)
            for version in find_unit(net).cache.all():
                find_unit(net).withdraw(version, "the scenario is over")
            if held_bytes("npu:0"):
                held.append([event, after, held_bytes("npu:0")])
    return {"wrong": wrong, "held": held}


def engine_rules() -> dict[str, Any]:
    """What the engine itself refuses, and how it counts memory."""
    engine = CustomDevice()
    net = SmallNet()
    net.eval()
    pfb.configure(probe_in_child=False)
    wide = nn.Linear(400, 400)
    wide.eval()
    x, flat = images(), paddle.randn([1, 400])
    captured, wide_captured = capture(net, x), capture(wide, flat)
    net(x)
    settings = {"device": "npu:0"}
    facts: dict[str, Any] = {"candidates": engine.candidates(captured), "gives_back": GIVES_BACK}

    def refusal(call: Any, *args: Any) -> str:
        try:
            call(*args)
        except EngineError as error:
            return str(error)
        return "accepted"

    empty_cache()
    before = NPU.live()
    executable = engine.build(captured, settings)
    executable([x])
    facts["used"] = NPU.live() - before
    facts["held"] = held_bytes("npu:0")
    facts["peak"] = peak_bytes(captured)
    facts["parameters"] = sum(p.size * 4 for p in captured.parameters.values())
    facts["other_shape"] = refusal(executable, [paddle.randn([3, 3, 8, 8])])
    facts["still_runs"] = error(executable([x])[0], net(x))
    facts["from_cpu"] = error(executable([x.cpu()])[0], net(x))
    facts["strided"] = error(
        executable([x.transpose([0, 1, 3, 2])])[0], net(x.transpose([0, 1, 3, 2]))
    )

    results: list[float] = []
    want = net(x)
    work = lambda: results.extend(error(executable([x])[0], want) for _ in range(5))  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    facts["threads"] = [len(results), max(results)]

    child = os.fork()
    if child == 0:
        os._exit(0 if "after a fork" in refusal(executable, [x]) else 1)
    facts["fork"] = os.waitpid(child, 0)[1]

    # What it holds leaves no room for another under the limit, until it is closed.
    pfb.configure(device_memory_mb=1)
    one = engine.build(wide_captured, settings)
    facts["no_room"] = refusal(engine.build, wide_captured, settings)
    one.close()
    one.close()
    engine.build(wide_captured, settings).close()
    executable.close()
    facts["closed"] = refusal(executable, [x])
    facts["left"] = held_bytes("npu:0")
    gc.collect()  # errors that were caught hold frames, and so tensors, in cycles
    empty_cache()
    facts["kept"] = NPU.live() - before

    facts["unknown_device"] = refusal(engine.build, captured, {"device": "npu:9"})
    facts["unknown_kind"] = refusal(engine.build, captured, {"device": "tpu"})
    facts["wrong_settings"] = refusal(engine.build, captured, {"threads": 1})
    if GIVES_BACK:
        NPU.fail("allocate")
        empty_cache()
        facts["no_memory"] = refusal(engine.build, captured, settings)
        NPU.fail("allocate", -1)
    facts["after_no_memory"] = held_bytes("npu:0")
    engine.build(captured, settings).close()
    return facts


def first_run() -> dict[str, Any]:
    """The device compiles kernels in the first run of a shape: SIMULATED_NPU_COMPILE_MS."""
    pfb.configure(probe_in_child=False, hot_calls=0)
    function = pfb.to_static(lambda x: F.relu(x + x))
    x = paddle.randn([7, 11])
    compiles = NPU.count("compile")
    for _ in range(3):
        function(x)
    stats = next(iter(find_unit(function).stats.signatures.values()))
    facts = {
        "compiles": NPU.count("compile") - compiles,
        "calls": stats.calls,
        "warm_up_calls": stats.warm_up_calls,
        "warm_up_s": stats.warm_up_seconds,
        "eager_calls": stats.eager_calls,
    }
    engine = CustomDevice()
    executable = engine.build(
        capture(lambda x: F.relu(x + x), paddle.randn([5, 13])), {"device": "npu:0"}
    )
    executable([paddle.randn([5, 13])])
    facts["first_s"] = executable.first_seconds
    facts["notes"] = executable.notes
    return facts


def bundle() -> dict[str, Any]:
    """A bundle made on the CPU, loaded and called where Paddle computes on the device."""
    paddle.set_device("cpu")
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    net.eval()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        pfb.export(net, out, to="bundle", shapes="x=batch,6")
        path = os.path.join(out, "model.pfb")
        x = paddle.randn([2, 6])
        want = net(x)
        paddle.set_device("npu:0")
        model = pfb.load(path)
        there = paddle.to_tensor(x.numpy())
        facts = {"place": str(there.place), "error": error(model(there), want)}
        facts["here"] = str(model(there).place)

        on_device = pfb.load(path, device="npu:1")
        got = on_device(there)
        facts["device_place"] = str(got.place)
        facts["device_error"] = max(error(got, want), error(on_device(x.numpy()), want))
        larger = paddle.randn([5, 6])
        facts["larger_error"] = error(on_device(larger), net(larger.cpu()))
        facts["notes"] = on_device.notes
        facts["held"] = held_bytes("npu:1")
        NPU.fail("h2d")
        try:
            on_device(x.numpy())
        except EngineError as failure:
            facts["failure"] = str(failure)
        facts["held_after_failure"] = held_bytes("npu:1")
        NPU.fail("h2d", -1)
        facts["again"] = error(on_device(there), want)
        on_device.close()
        facts["left"] = held_bytes("npu:1")
        try:
            pfb.load(path, device="npu:9")
        except EngineError as failure:
            facts["missing"] = str(failure)
        return facts


def uploads_beside_compute() -> dict[str, Any]:
    """The network waits, inside its call, for the upload of the next frame."""
    frames = [np.full([2, 3], i, "float32") for i in range(5)]
    begun = NPU.count("h2d")
    waited = []

    def net(x: Any) -> Any:
        number = len(waited) + 1
        due = time.monotonic() + 60
        while NPU.count("h2d") - begun < min(number + 1, len(frames)) and time.monotonic() < due:
            time.sleep(0.001)
        waited.append(time.monotonic() < due)
        return x

    got = [float(y.cpu().max()) for y in pfb.pipeline(net, frames, depth=2)]
    places = {str(y.place) for y in pfb.pipeline(lambda x: x, frames)}
    return {"got": got, "waited": waited, "places": sorted(places)}


def aborts() -> dict[str, Any]:
    """The driver aborts a process that runs our predictor: that must be the probe child."""
    paddle.set_device("cpu")
    pfb.configure(device="npu")
    os.environ["SIMULATED_NPU_ABORT"] = "kernel"  # the child's driver reads it, ours is past that
    net, plain = compiled_net()
    x = images()
    return {
        "error": error(net(x), plain(x)),
        "engine": version_of(net).executable.engine,
        "explained": str(pfb.explain(net)),
    }


def main(name: str) -> None:
    pfb.configure(sync=True, min_gain=0.0, hot_calls=1, compile_timeout_s=500.0, cache=False)
    paddle.seed(3)
    with paddle.no_grad():
        facts = globals()[name]()
    print(ANSWER + json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
