"""What was measured on what, where results go, and child processes that hand back a result."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OUT = ROOT / "out" / "bench"


#: Mean number of running threads over the minute before we started; our own work would raise it.
_LOAD_AT_START = os.getloadavg()[0]


def threads() -> int:
    """The number of threads that every competitor gets."""
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


def facts() -> dict[str, Any]:
    """Machine and versions, to be kept beside every result."""
    versions = {}
    for package in ("paddlepaddle", "paddle-fluid-boost", "onnxruntime", "openvino", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": threads(),
        "load": _LOAD_AT_START,
        "python": platform.python_version(),
        "versions": versions,
    }


def _python_path() -> list[str]:
    """The checkout first, so that it is measured even where another version is installed."""
    return [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]


def in_child(
    module: str,
    arguments: list[str],
    timeout: float = 600,
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Runs ``child(*arguments)`` of one of our modules in a fresh process; returns its result.

    It starts cold, without the on-disk cache, unless ``environment`` says otherwise.

    A process that dies or runs out of time gives ``{"failed": reason}``: engines may crash, and the
    others should still be measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, __file__, module, str(result), *arguments]
        try:
            done = subprocess.run(
                command,
                timeout=timeout,
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    "PFB_CACHE": "0",
                    "PYTHONPATH": os.pathsep.join(_python_path()),
                    **(environment or {}),
                },
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"gave no result in {timeout:.0f} s"}
        if done.returncode != 0 or not result.exists():
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return {"failed": f"exit status {done.returncode}: {last[:200]}"}
        return json.loads(result.read_text(encoding="utf-8"))


def save(name: str, results: Any) -> Path:
    """Writes ``out/bench/<name>.json`` with the facts about the machine; returns its path."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.json"
    text = json.dumps({"machine": facts(), "results": results}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def headline() -> str:
    """What was measured on, and a warning where the figures cannot be trusted."""
    known = facts()
    versions = ", ".join(f"{name} {v}" for name, v in known["versions"].items() if v)
    line = (
        f"{known['processor']}, {known['cores']} cores, {known['threads']} threads, "
        f"Python {known['python']}, {versions}"
    )
    return f"{line}\n{busy_note(known['load'], known['cores'])}".rstrip()


def busy_note(load: float, cores: int) -> str:
    """A warning when other work competes for the cores, else nothing.

    Whoever is measured while others compute loses time at random, so ratios are off as well.
    """
    if load <= cores / 2:
        return ""
    return (
        f"NOTE: load {load:.1f} on {cores} cores before the start: other work competes, so neither "
        "times nor ratios are worth quoting"
    )


if __name__ == "__main__":
    import importlib

    answer = importlib.import_module(sys.argv[1]).child(*sys.argv[3:])
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
    # Some engines crash in their own exit handlers; the result is complete and on disk.
    sys.stdout.flush()
    os._exit(0)
