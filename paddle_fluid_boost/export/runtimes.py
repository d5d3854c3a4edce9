"""Running an artefact in its target's own runtime: always in a child process, which may crash."""

from __future__ import annotations

import errno
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ExportError
from ..hardware.cores import usable_cores
from ..options import options

_START = os.path.join(os.path.dirname(__file__), "child.py")
_CHILD = os.path.join(os.path.dirname(__file__), "child_run.py")
_BUNDLE_CHILD = os.path.join(os.path.dirname(__file__), "child_bundle.py")
_TIMEOUT_S = 600.0
_REPEATS = 10


@dataclass
class RuntimeResult:
    """outputs: per case, the arrays that came out.

    latency_ms: of the first case, the median of some calls; first_ms: of its very first call;
    rested_ms: of a later one after a pause.
    """

    outputs: list[list[np.ndarray]]
    latency_ms: float | None
    load_ms: float
    first_ms: float = 0.0
    rested_ms: float = 0.0


def run_in_child(
    runtime: str,
    model: str,
    *,
    cases: Sequence[Sequence[np.ndarray]],
    names: Sequence[str],
    params: str = "",
    settings: dict[str, Any] | None = None,
    timed: bool = False,
    scratch: str | None = None,
) -> RuntimeResult:
    """Loads ``model`` in ``runtime`` and runs every case.

    Args:
        runtime: ``"paddle"``, ``"onnx"``, ``"mnn"`` or ``"ncnn"``.
        names: of the inputs, parallel to the arrays of a case.
        settings: for ``"paddle"``, ``onednn`` (default False: only the plain path is exact on every
            model).
        timed: measure calls of the first case, too.
        scratch: folder for temporary files; by default the system's.

    Raises:
        ExportError: it could not be loaded or run, or it took the whole process down.
    """
    request = {
        "runtime": runtime,
        "model": os.path.abspath(model),
        "params": os.path.abspath(params) if params else "",
        "settings": {"threads": _threads(), "onednn": False, **(settings or {})},
        "names": list(names),
        "repeats": _REPEATS if timed else 0,
    }
    return _ask(_CHILD, f"{runtime} runtime", request, cases, scratch)


def run_bundle(
    path: str, cases: Sequence[Sequence[np.ndarray]], scratch: str | None = None
) -> RuntimeResult:
    """Loads a bundle in a fresh process and runs every case; see :func:`run_in_child`."""
    request = {
        "root": os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        "bundle": os.path.abspath(path),
        "repeats": _REPEATS,
    }
    return _ask(_BUNDLE_CHILD, "pfb.load", request, cases, scratch)


def _threads() -> int:
    return options.threads or usable_cores()


def _ask(
    script: str,
    about: str,
    request: dict[str, Any],
    cases: Sequence[Sequence[np.ndarray]],
    scratch: str | None,
) -> RuntimeResult:
    """What a child process that runs ``script`` answers to ``request`` for ``cases``."""
    with tempfile.TemporaryDirectory(prefix="pfb-run-", dir=scratch) as folder:
        request["cases"] = [_store(case, folder, number) for number, case in enumerate(cases)]
        request["folder"] = folder
        path = os.path.join(folder, "request.json")
        with open(path, "w") as file:
            json.dump(request, file)
        call_child([script, path], about=about, threads=_threads(), scratch=scratch)
        return _answer(folder)


def _answer(folder: str) -> RuntimeResult:
    with open(os.path.join(folder, "answer.json")) as file:
        answer = json.load(file)
    outputs = [
        [np.load(os.path.join(folder, f"out{number}_{position}.npy")) for position in range(count)]
        for number, count in enumerate(answer["counts"])
    ]
    times = answer["times_s"]
    latency = statistics.median(times) * 1e3 if times else None
    first, rested = (answer.get(name, 0.0) * 1e3 for name in ("first_s", "rested_s"))
    return RuntimeResult(outputs, latency, answer["load_s"] * 1e3, first, rested)


def _store(arrays: Sequence[np.ndarray], folder: str, number: int) -> list[str]:
    files = []
    for position, array in enumerate(arrays):
        files.append(os.path.join(folder, f"in{number}_{position}.npy"))
        np.save(files[-1], np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return files


def call_child(
    arguments: Sequence[str], *, about: str, threads: int = 1, scratch: str | None = None
) -> str:
    """Runs a Python script, which dies with this process; returns what it printed.

    Args:
        scratch: folder for temporary files of its own; by default the system's.

    Raises:
        ExportError: it failed; the message holds the line that says why, or the signal's name.
        OSError: it found no space left on the disk, whatever it was asked to do.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOG_v": "0"}
    if scratch is not None:
        environment["TMPDIR"] = scratch
    try:
        done = subprocess.run(
            [sys.executable, _START, str(os.getpid()), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ExportError(f"{about}: no answer after {_TIMEOUT_S:.0f} s") from None
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode and os.strerror(errno.ENOSPC) in said:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), scratch)
    if done.returncode:
        raise ExportError(f"{about}: {_reason(done.returncode, said)}")
    return said


def _reason(status: int, said: str) -> str:
    how = f"exit status {status}"
    if status < 0:
        try:
            how = f"crashed with {signal.Signals(-status).name}"
        except ValueError:
            how = f"crashed with signal {-status}"
    line = _telling_line(said)
    return f"{how}: {line}" if line else how


#: What marks the line that says what went wrong, the better first.
_MARKS = (
    "Op Not Support",
    "not exists or registered",
    "load_param ",
    "[ERROR]",
    "Error: ",
    "error:",
    "Exception",
    "what():",
    "Error",
)
#: What Paddle prints about every crash; it tells nothing.
_SAYS_NOTHING = ("is detected by the operating system", "Error Message Summary")


def _telling_line(said: str) -> str:
    lines = [
        line.strip()
        for line in said.splitlines()
        if line.strip() and not any(phrase in line for phrase in _SAYS_NOTHING)
    ]
    for mark in _MARKS:
        for line in reversed(lines):
            if mark in line:
                return line[-300:]
    return lines[-1][-300:] if lines else ""
