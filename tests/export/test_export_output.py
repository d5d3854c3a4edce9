"""The output folder is there whole, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paddle_fluid_boost.errors import ExportError
from paddle_fluid_boost.export.output import REPORT, atomic_folder


def fill(folder, content="new"):
    for name in (REPORT, "model"):
        with open(os.path.join(folder, name), "w") as file:
            file.write(content)


def test_it_appears_only_at_the_end(tmp_path):
    target = tmp_path / "deep" / "out"
    with atomic_folder(str(target)) as work:
        fill(work)
        assert not target.exists()
    assert sorted(os.listdir(target)) == [REPORT, "model"]
    assert os.listdir(target.parent) == ["out"]


def test_nothing_is_left_when_it_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_folder(str(tmp_path / "out")) as work:
        fill(work)
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_an_earlier_export_stays_when_the_next_fails(tmp_path):
    target = str(tmp_path / "out")
    with atomic_folder(target) as work:
        fill(work, "old")
    with pytest.raises(ZeroDivisionError), atomic_folder(target, replace=True) as work:
        raise ZeroDivisionError
    assert (tmp_path / "out" / "model").read_text() == "old"
    with atomic_folder(target, replace=True) as work:
        fill(work, "new")
    assert (tmp_path / "out" / "model").read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_only_exports_are_replaced(tmp_path):
    mine = tmp_path / "precious"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(ExportError, match="earlier"), atomic_folder(str(mine), replace=True):
        pytest.fail("must not get here")
    (mine / REPORT).write_text("{}")
    with pytest.raises(ExportError, match="--force"), atomic_folder(str(mine)):
        pytest.fail("must not get here")
    assert (mine / "thesis.txt").exists()


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from paddle_fluid_boost.export.output import atomic_folder\n"
        "with atomic_folder(sys.argv[1]) as work:\n"
        "    open(os.path.join(work, 'half'), 'w').close()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    target = str(tmp_path / "out")
    done = subprocess.run([sys.executable, "-c", code, target], check=False, env=environment())
    assert done.returncode == -9
    assert not os.path.exists(target)
    assert len(os.listdir(tmp_path)) == 1  # the hidden folder
    with atomic_folder(target) as work:
        fill(work)
    assert os.listdir(tmp_path) == ["out"]


def environment():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return {**os.environ, "PYTHONPATH": root}
