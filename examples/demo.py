"""The demonstration behind ``tools/demo``: real input, four ways to run the same networks.

For each network and each way a fresh process calls the network over and over, as a camera or a
scanner would, and writes down how long each call took.  Then this file prints the comparison, what
the boosted process says about itself, and draws latency over calls.

    python examples/demo.py [--out FOLDER] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent

#: Title of each network, and how many calls one process makes.
NETWORKS = {
    "mobilenet_v3_small": ("MobileNetV3-small on photographs (random weights)", 120),
    "resnet50": ("ResNet-50 on photographs (random weights)", 40),
    "text": ("PP-OCRv5 recogniser on a page of text (trained weights)", 56),
}
WAYS = {
    "eager": "eager",
    "stock": "to_static",
    "stock_full_graph": "to_static(full_graph=True)",
    "boosted": "paddle_fluid_boost",
}


# -- in the child: one network, one way -----------------------------------------------------------


def prepare(network: str):
    """The network, its inputs, and a function from outputs to text (None: outputs say nothing)."""
    import photographs
    import read_page

    if network != "text":
        frames = [photographs.to_input(picture) for picture in photographs.photographs().values()]
        return photographs.network(network), frames, None
    net, characters = read_page.load_recognizer()
    return net, read_page.page_inputs(), lambda out: read_page.decode(out, characters)


def wrapped(net, way: str):
    """``net`` as it is called in this ``way``: the one line that differs."""
    if way == "eager":
        return net
    if way == "boosted":
        import paddle_fluid_boost as pfb

        return pfb.to_static(net)
    import paddle

    return paddle.jit.to_static(net, full_graph=way == "stock_full_graph")


def stream(net, inputs, calls: int, show: bool) -> list[float]:
    """Milliseconds of each of ``calls`` calls, over the inputs again and again."""
    times = []
    for number in range(calls):
        start = time.perf_counter()
        net(inputs[number % len(inputs)])
        times.append((time.perf_counter() - start) * 1e3)
        if show and (number + 1 in (1, 2, 4, 8, 16, 32) or (number + 1) % 40 == 0):
            recent = statistics.median(times[-min(len(times), 8) :])
            print(f"    call {number + 1:4}: {times[-1]:8.1f} ms   (recent median {recent:.1f})")
    return times


def child(network: str, way: str, calls: int, result: Path) -> None:
    """Runs one stream and writes its times, outputs and explanation to ``result``."""
    import paddle

    net, inputs, to_text = prepare(network)
    net = wrapped(net, way)
    explanation, waited = "", 0.0
    with paddle.no_grad():
        times = stream(net, inputs, calls, show=way == "boosted")
        if way == "boosted":
            import paddle_fluid_boost as pfb

            start = time.perf_counter()
            pfb.wait(60)  # a slow machine may not be done compiling: the last calls should be hot
            waited = time.perf_counter() - start
        times += stream(net, inputs, max(20, len(inputs)), show=False)
        outputs = [net(one) for one in inputs]
        if way == "boosted":
            explanation = str(pfb.explain(net))
    record = {
        "times": times,
        "waited": waited,
        "text": [to_text(out) for out in outputs] if to_text else None,
        "explanation": explanation,
    }
    np.savez(result.with_suffix(".npz"), *[out.numpy() for out in outputs])
    result.write_text(json.dumps(record), encoding="utf-8")


# -- in the parent --------------------------------------------------------------------------------


def run_child(network: str, way: str, calls: int, folder: Path) -> dict | None:
    """The record of one stream, or None when its process failed (which is said)."""
    result = folder / f"{network}-{way}.json"
    command = [sys.executable, __file__, "--child", network, way, str(calls), str(result)]
    finished = subprocess.run(command, timeout=600)
    if finished.returncode != 0:
        print(f"    {WAYS[way]} failed with exit status {finished.returncode}")
        return None
    record = json.loads(result.read_text(encoding="utf-8"))
    with np.load(result.with_suffix(".npz")) as outputs:
        record["outputs"] = [outputs[name] for name in outputs.files]
    return record


def difference(record: dict, eager: dict) -> float:
    """Largest difference of any output from eager's, relative to the output's range."""
    return max(
        float(np.abs(got - want).max() / max(np.ptp(want), 1e-12))
        for got, want in zip(record["outputs"], eager["outputs"])
    )


def comparison(records: dict[str, dict]) -> list[str]:
    """The table for one network, one line for each way."""
    titles = ("first call", "worst later", "settled", "gain", "error")
    lines = ["    {:28}{:>12}{:>13}{:>11}{:>8}{:>10}".format("", *titles)]
    eager = records["eager"]
    settled_eager = statistics.median(eager["times"][-20:])
    for way, record in records.items():
        times = record["times"]
        settled = statistics.median(times[-20:])
        lines.append(
            f"    {WAYS[way]:28}{times[0]:9.1f} ms{max(times[1:]):10.1f} ms{settled:8.1f} ms"
            f"{settled_eager / settled:7.2f}x{difference(record, eager):10.1e}"
        )
    return lines


def plot(all_records: dict[str, dict[str, dict]], path: Path) -> None:
    """Latency over calls, one panel for each network, as a PNG."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # Paddle turned INFO on for all
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, panels = pyplot.subplots(1, len(all_records), figsize=(5.2 * len(all_records), 4.2))
    for panel, (network, records) in zip(np.atleast_1d(panels), all_records.items()):
        for way, record in records.items():
            times = record["times"]
            panel.plot(range(1, len(times) + 1), times, label=WAYS[way], linewidth=1.2)
        panel.set(title=NETWORKS[network][0].replace(" on ", "\non "), xlabel="call", yscale="log")
        panel.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        panel.yaxis.set_minor_formatter(ticker.NullFormatter())
        panel.grid(True, which="both", alpha=0.25)
    np.atleast_1d(panels)[0].set_ylabel("milliseconds for one call")
    np.atleast_1d(panels)[-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description="Real input, four ways to run the same networks.")
    parser.add_argument("--out", type=Path, default=HERE.parent / "out", help="where results go")
    parser.add_argument("--quick", action="store_true", help="a third of the calls")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        network, way, calls, result = options.child
        child(network, way, int(calls), Path(result))
        return 0

    streams = options.out / "streams"
    streams.mkdir(parents=True, exist_ok=True)
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    print(f"Each way runs in its own process, with {threads} threads; times are for one call.")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 1.5 * cores:  # more than the installation just before leaves behind
        print(f"NOTE: load {load:.1f} on {cores} cores: other work distorts all times and gains.")
    all_records: dict[str, dict[str, dict]] = {}
    for network, (title, calls) in NETWORKS.items():
        calls = calls // 3 if options.quick else calls
        print(f"\n{title}")
        records = {}
        for way in WAYS:
            print(f"  {WAYS[way]} ...", flush=True)
            record = run_child(network, way, calls, streams)
            if record is not None:
                records[way] = record
            elif way == "eager":
                return 1  # nothing to compare with, and the same fault would stop the others
        all_records[network] = records
        print("\n".join(["", *comparison(records)]))
        if "boosted" in records:
            if records["boosted"]["waited"] > 0.5:
                print(f"    (waited {records['boosted']['waited']:.1f} s for the compile to end)")
            print("\n" + records["boosted"]["explanation"])
    show_text(all_records["text"])
    picture = options.out / "latency.png"
    plot(all_records, picture)
    print(f"\nLatency over calls: {picture}")
    return 0 if all("boosted" in records for records in all_records.values()) else 1


def show_text(records: dict[str, dict]) -> None:
    """What the recogniser read, and how much of it is right."""
    import read_page

    read = records.get("boosted", records["eager"])["text"]
    print("\nThe page says:")
    print("\n".join(f"    {line}" for line in read))
    same = read == records["eager"]["text"]
    print(f"  {read_page.agreement(read):.1%} of the characters are right; ", end="")
    print("eager reads the same." if same else "EAGER READS SOMETHING ELSE.")


if __name__ == "__main__":
    sys.exit(main())
