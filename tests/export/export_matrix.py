"""The export matrix: networks x formats, each export in a process of its own.

``matrix.toml`` says what becomes of each; ``test_export_matrix.py`` compares.  By itself this
prints what becomes of them now, as lines for that file, and the table of ``docs/export.md``:

    python tests/export/export_matrix.py [--table] [NETWORK ...]

An outcome is ``"ok"``, ``"ok, LOSS, ..."`` or ``"fails: WHY"``:

* ``fixed NAME``: that size could not stay open;
* ``no ONNX``, ``no plan``: what a bundle lacks;
* ``not baked``: the Paddle model is as it was captured, without our passes;
* ``oneDNN``: the Paddle model is right only with oneDNN switched off;
* ``not simplified``: onnxslim would have broken it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Targets of one export with open sizes, and of one with all fixed.
OPEN, FIXED = ("paddle", "onnx", "bundle", "mobile"), ("mnn", "ncnn")
TARGETS = (*OPEN, *FIXED)
MATRIX = tomllib.loads((HERE / "matrix.toml").read_text(encoding="utf-8"))
#: How the notes of an artefact say what was lost.
_LOSSES = {
    "holds no ONNX model": "no ONNX",
    "our passes are not baked in": "not baked",
    "oneDNN, which": "oneDNN",
    "not simplified: with": "not simplified",
}


def export(name, targets, folder):
    """The report of one export as the command line prints it with --json."""
    entry = MATRIX[name]
    ranges = entry.get("ranges", [])
    shapes = entry["inputs"]
    if targets[0] in FIXED:
        first = dict(re.match(r"(\w+)=(\d+)", text).groups() for text in ranges)
        shapes = [_with_sizes(text, {"batch": "1", **first}) for text in shapes]
        ranges = []
    command = [
        sys.executable, "-m", "paddle_fluid_boost", "export", f"{HERE / 'matrix_nets.py'}:network",
        "--args", json.dumps({"name": name}), "--to", ",".join(targets), "--out", folder,
        "--json", "--quiet", "--keep-going",
    ]  # fmt: skip
    command += [word for text in shapes for word in ("--shape", text)]
    command += [word for text in ranges for word in ("--range", text)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "LC_ALL": "C"},
    )
    try:
        return json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        raise AssertionError(f"{name}: exit status {done.returncode}\n{done.stderr}") from None


def _with_sizes(text, sizes):
    name, _, dims = text.partition("=")
    return f"{name}={','.join(sizes.get(dim, dim) for dim in dims.split(','))}"


def outcomes(name, targets=TARGETS):
    """target -> (outcome, the artefact or None)."""
    found = {}
    # One export each for fixed sizes: where all targets of one fail, it reports no single reasons.
    for group in (OPEN, *((target,) for target in FIXED)):
        wanted = tuple(target for target in group if target in targets)
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            report = export(name, wanted, os.path.join(scratch, "out"))
        made = {one["target"]: one for one in report.get("artefacts", ())}
        failed = report.get("failures") or dict.fromkeys(wanted, report.get("error", ""))
        for target in wanted:
            one = made.get(target)
            if one is None:
                found[target] = (f"fails: {failed.get(target)}", None)
            else:
                losses = _losses(name, one)
                found[target] = (", ".join(["ok", *losses]), one)
    return found


def _losses(name, artefact):
    losses = []
    if artefact["target"] in OPEN:
        asked = [dim for text in MATRIX[name]["inputs"] for dim in text.split("=")[1].split(",")]
        left = [dim for text in artefact["shapes"] for dim in text.split("=")[1].split(",")]
        names = dict.fromkeys(dim for dim in asked if not dim.isdigit())
        losses += [f"fixed {dim}" for dim in names if dim not in left]
    notes = artefact["notes"]
    losses += [loss for says, loss in _LOSSES.items() if any(n.startswith(says) for n in notes)]
    if artefact["target"] == "bundle" and not any(n.startswith("native plan") for n in notes):
        losses.append("no plan")
    return losses


def agrees(outcome, expected):
    """Whether an outcome is the one written down; of a failure, the telling words are."""
    for kind in ("refused: ", "fails: "):
        if expected.startswith(kind):
            return outcome.startswith("fails: ") and expected[len(kind) :] in outcome
    return outcome == expected


def line(name, found):
    """One row of the table in ``docs/export.md``."""
    cells = [name]
    for outcome, one in found.values():
        if one is None:
            cells.append("no")
        else:
            losses = outcome[len("ok") :].lstrip(", ")
            cells.append(f"{one['accuracy']['max_rel']:.0e}" + (f" ({losses})" if losses else ""))
    return "| " + " | ".join(cells) + " |"


def main(arguments):
    """Prints outcomes as TOML, or with --table as lines of a table with their errors."""
    table = "--table" in arguments
    names = [one for one in arguments if one != "--table"] or list(MATRIX)
    for name in names:
        found = outcomes(name)
        if table:
            print(line(name, found), flush=True)
            continue
        print(f"[{name}]")
        for target, (outcome, one) in found.items():
            if not agrees(outcome, MATRIX[name].get(target, "ok")):
                print("# UNEXPECTED")
            print(f"{target} = {json.dumps(outcome)}")
            if one is not None:
                print(f"#   {one['accuracy']['max_rel']:.1e}", *one["notes"], sep="\n#   ")
        print(line(name, found).replace("| ", "#| ", 1), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
