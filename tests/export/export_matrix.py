"""The zoo of tools/benchmarks x the formats, in subprocesses; prints the table of docs/export.md.

``python tests/export/export_matrix.py [NETWORK ...]``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "tools" / "benchmarks"
#: Sizes below those of the benchmarks: what is in question is the conversion.
SMALL = ("resnet18", "resnet50", "mobilenet_v3_small", "shufflenet_v2", "densenet121")
IMAGES = dict.fromkeys(SMALL, (3, 64, 64))
#: Targets of one export with an open batch, and of one with fixed sizes.
OPEN, FIXED = ("paddle", "onnx", "bundle", "mobile"), ("mnn", "ncnn")


def network(name):
    """A network of the zoo, made in the process of the export."""
    sys.path.insert(0, str(BENCHMARKS))
    from models import build

    return build(name)[0]


def sample(name):
    """Dtype and shape of one sample of the network's input."""
    sys.path.insert(0, str(BENCHMARKS))
    from models import ZOO

    recipe = ZOO[name]
    return ("int64" if recipe.vocabulary else "float32"), IMAGES.get(name, recipe.shape)


def export(name, targets, batch, folder):
    """What the command line reports of one export, as it is printed with --json."""
    dtype, shape = sample(name)
    command = [
        sys.executable, "-m", "paddle_fluid_boost", "export", f"{__file__}:network",
        "--args", json.dumps({"name": name}),
        "--shape", f"x:{dtype}={batch},{','.join(map(str, shape))}",
        "--to", ",".join(targets), "--out", folder, "--json", "--quiet", "--keep-going",
    ]  # fmt: skip
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env={**os.environ, "PYTHONPATH": path}
    )
    return json.loads(done.stdout[done.stdout.index("{") :])


def outcomes(name, targets, batch):
    """target -> (outcome, artefact or None); see ``EXPECTED``."""
    with tempfile.TemporaryDirectory() as scratch:
        report = export(name, targets, batch, os.path.join(scratch, "out"))
    made = {one["target"]: one for one in report.get("artefacts", ())}
    failed = report.get("failures") or {target: report.get("error", "") for target in targets}
    found = {}
    for target in targets:
        one = made.get(target)
        if one is None:
            found[target] = (f"fails: {failed.get(target)}", None)
        else:
            open_batch = one["shapes"][0].split("=")[1].startswith("batch")
            whole = open_batch or batch != "batch"
            found[target] = ("ok" if whole else "batch fixed", one)
    return found


def row(name):
    """One line of the table."""
    cells = [name]
    for targets, batch in ((OPEN, "batch"), (FIXED, "1")):
        for outcome, one in outcomes(name, targets, batch).values():
            print("#", name, outcome, one and one["notes"], file=sys.stderr, flush=True)
            if one is None:
                cells.append(outcome)
                continue
            size = sum(one["files"].values()) / 1e6
            fixed = "" if outcome == "ok" else f" ({outcome})"
            error = one["accuracy"]["max_rel"]
            cells.append(f"{error:.0e}, {one['latency_ms']:.3g} ms, {size:.3g} MB{fixed}")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.path.insert(0, str(BENCHMARKS))
    from models import ZOO

    print("| | " + " | ".join((*OPEN, *FIXED)) + " |")
    for wanted in sys.argv[1:] or ZOO:
        print(row(wanted), flush=True)
