"""``python -m paddle_fluid_boost run`` must be ``python`` itself, but for the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A script that says all it can see of how it was started.
PROBE = """
import atexit, json, pickle, sys

class Thing:
    pass

SEEN = {
    "argv": sys.argv,
    "path0": sys.path[0],
    "globals": sorted(set(globals()) - {"__annotations__"}),
    "name": __name__,
    "file": __file__,
    "package": __package__,
    "spec": None if __spec__ is None else __spec__.name,
    "loader": type(__loader__).__name__,
}

def at_exit():
    import __main__
    SEEN["is_main"] = __main__.__dict__ is globals()
    SEEN["pickled"] = isinstance(pickle.loads(pickle.dumps(Thing())), Thing)
    print(json.dumps(SEEN))

atexit.register(at_exit)
"""


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    environment.pop("OMP_NUM_THREADS", None)  # Paddle prints a warning about it
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def both(*arguments: str, cwd: Path) -> tuple:
    """(what plain ``python`` does, what ``run`` does) with the same arguments."""
    return (
        python(*arguments, cwd=cwd),
        python("-m", "paddle_fluid_boost", "run", *arguments, cwd=cwd),
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "probe.py").write_text(PROBE)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "__main__.py").write_text(PROBE)
    return tmp_path


@pytest.mark.parametrize(
    "start",
    [
        ["sub/probe.py", "one", "--auto", "-h", "-m", "--", ""],
        ["sub/../sub/probe.py"],
        ["-m", "sub.probe", "--auto", "x"],
        ["-m", "pack", "-m"],
        ["pack", "as a folder"],
    ],
    ids=lambda start: " ".join(start),
)
def test_a_script_sees_what_it_would_see(folder, start):
    plain, ours = both(*start, cwd=folder)
    assert plain.returncode == 0, plain.stderr
    assert ours.returncode == 0, ours.stderr
    assert json.loads(ours.stdout) == json.loads(plain.stdout)


def test_script_through_a_link_finds_its_neighbours(folder):
    (folder / "sub" / "neighbour.py").write_text("VALUE = 7\n")
    (folder / "sub" / "real.py").write_text("import neighbour; print(neighbour.VALUE)\n")
    (folder / "link.py").symlink_to(folder / "sub" / "real.py")
    plain, ours = both("link.py", cwd=folder)
    assert ours.stdout == plain.stdout == "7\n"


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit(5)",
        "import sys; sys.exit('said why')",
        "raise SystemExit",
        "def f():\n    raise ValueError('inside')\nf()",
        "def broken(:\n    pass",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('second') from e",
    ],
)
def test_exit_status_and_traceback(folder, code):
    (folder / "ends.py").write_text(code)
    plain, ours = both("ends.py", cwd=folder)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )


def test_plugin_is_installed_before_the_first_line(folder):
    (folder / "early.py").write_text("import paddle_fluid_boost as b; print(b.installed())\n")
    ours = python("-m", "paddle_fluid_boost", "run", "early.py", cwd=folder)
    assert ours.stdout == "True\n", ours.stderr


def test_auto_is_passed_on(folder):
    probe = "import paddle; f = paddle.nn.Layer.__call__; print(f.__code__.co_filename)\n"
    (folder / "early.py").write_text(probe)
    plain, ours = both("early.py", cwd=folder)
    watched = python("-m", "paddle_fluid_boost", "run", "--auto", "early.py", cwd=folder)
    assert ours.stdout == plain.stdout
    assert watched.stdout != plain.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no_such.py"], "no such file: no_such.py"),
        (["run"], "required: SCRIPT"),
        (["run", "--wrong", "x.py"], "unrecognized arguments: --wrong"),
        (["wrong"], "invalid choice: 'wrong'"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_use_is_one_clear_error(tmp_path, arguments, message):
    ours = python("-m", "paddle_fluid_boost", *arguments, cwd=tmp_path)
    assert ours.returncode == 2
    assert message in ours.stderr
    assert "Traceback" not in ours.stderr


def test_auto_module_installs(tmp_path):
    code = "import paddle_fluid_boost.auto; print(paddle_fluid_boost.installed())"
    ours = python("-c", code, cwd=tmp_path)
    assert ours.stdout == "True\n", ours.stderr
