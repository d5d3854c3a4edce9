"""The output folder is there whole, or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddle_fluid_boost.errors import ExportError
from paddle_fluid_boost.export.output import REPORT, atomic_folder, scratch_folder

ROOT = Path(__file__).resolve().parents[2]
NETS = str(Path(__file__).with_name("export_nets.py"))


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


def test_what_another_export_is_making_is_left_alone(tmp_path):
    target = str(tmp_path / "out")
    with atomic_folder(target) as first:
        with atomic_folder(target) as second:
            fill(second)
        assert os.path.isdir(first)
        with pytest.raises(ExportError, match="--force"), atomic_folder(target):
            pytest.fail("must not get here")
        assert os.path.isdir(scratch_folder(first))
        os.unlink(os.path.join(target, REPORT))
        os.unlink(os.path.join(target, "model"))
        fill(first, "first")
    assert (tmp_path / "out" / "model").read_text() == "first"
    assert os.listdir(tmp_path) == ["out"]


def test_an_earlier_export_that_a_kill_moved_away_comes_back(tmp_path):
    """As on a file system that cannot swap two folders at one stroke."""
    old = tmp_path / ".out.pfb-killed" / "old"
    old.mkdir(parents=True)
    fill(old, "old")
    with pytest.raises(ZeroDivisionError), atomic_folder(str(tmp_path / "out")):
        raise ZeroDivisionError
    assert (tmp_path / "out" / "model").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_place_that_cannot_be_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place, says in (
        (tmp_path / "file", "not an earlier export"),
        (tmp_path / "file" / "out", "is not a folder"),
        (tmp_path / "file" / "a" / "b", "is not a folder"),
        ("/proc", "mount point"),
        ("/proc/out", "cannot write"),
    ):
        with pytest.raises(ExportError, match=says), atomic_folder(str(place)):
            pytest.fail("must not get here")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_fault_of_the_file_system_is_an_error_of_ours(tmp_path):
    with pytest.raises(ExportError, match=r"cannot write .*model: No space left"):  # noqa: SIM117
        with atomic_folder(str(tmp_path / "a" / "b" / "out")) as work:
            fill(work)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.path.join(work, "model"))
    assert os.listdir(tmp_path) == [], "not even the folders on the way"


def test_a_link_to_an_empty_folder_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(str(tmp_path / "link")) as work:
        fill(work)
    assert sorted(os.listdir(tmp_path / "real")) == [REPORT, "model"]
    assert (tmp_path / "link").is_symlink()


# -- whole exports --------------------------------------------------------------------------------


def export_of_square(tmp_path, **options):
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "paddle_fluid_boost", "export", f"{NETS}:square"]
    return subprocess.Popen(
        [*command, "--shape", "x=2,3", "--out", str(place / "out")],
        env=environment(TMPDIR=str(tmp_path / "tmp"), LC_ALL="C"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def processes_in(folder):
    """Processes whose environment names ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # another user's, or gone
                continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_export_killed_while_its_child_runs_leaves_no_file(tmp_path, number):
    export = export_of_square(
        # The shell that started the tests may have told us to ignore interrupts.
        tmp_path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    )  # fmt: skip
    for line in export.stderr:
        if "run it in its own runtime" in line:
            break
    export.send_signal(number)
    said = export.communicate(timeout=120)[1]
    assert export.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in said
    left = os.listdir(tmp_path / "place")
    assert "out" not in left
    assert len(left) == (number == signal.SIGKILL), "at most the hidden folder"
    assert os.listdir(tmp_path / "tmp") == []
    deadline = time.monotonic() + 60
    while processes_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_in(tmp_path) == [], "children die with it"
    with atomic_folder(str(tmp_path / "place" / "out")) as work:
        fill(work)
    assert os.listdir(tmp_path / "place") == ["out"]


def test_a_file_that_cannot_be_written_fails_the_export(tmp_path):
    """A limit on the size of files is met where a full disk would be."""
    export = export_of_square(
        tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
    )
    said = export.communicate(timeout=120)[1]
    assert export.returncode == 1
    assert "Traceback" not in said
    assert "cannot write" in said
    assert "nothing was written" in said
    assert os.listdir(tmp_path / "place") == []


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}
