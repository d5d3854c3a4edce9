"""The shell scripts: how an interpreter is chosen, and what is said when none will do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def bash(script: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs ``script`` with tools/venv.sh sourced, in a bare environment."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment}
    return subprocess.run(
        ["bash", "-c", f'. "{TOOLS}/venv.sh"\n{script}'],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def interpreter(folder: Path, name: str, version: str, venv: bool = True) -> Path:
    """A program that answers the scripts' question as a Python of that version would."""
    answer = f"it is Python {version}, and PaddlePaddle 3.x needs 3.9 to 3.13"
    if (3, 9) <= tuple(int(part) for part in version.split(".")) <= (3, 13):
        answer = (
            ""
            if venv
            else f"its venv module is not installed: apt-get install python{version}-venv"
        )
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n" if answer else "#!/bin/sh\n:\n")
    path.chmod(0o755)
    return path


def test_real_interpreter_passes_the_check():
    assert bash('python_fault "$0x"; python_fault "$PY"', PY=sys.executable).stdout == (
        "it does not run\n"
    )


@pytest.mark.parametrize("script", ["test", "demo", "bench", "sanitize", "venv.sh", "../.ci/run"])
def test_scripts_are_valid_bash(script):
    checked = subprocess.run(["bash", "-n", str(TOOLS / script)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_named_interpreter_is_used_or_refused(tmp_path):
    old = interpreter(tmp_path, "old", "3.8")
    done = bash("find_python", PYTHON=str(old))
    assert done.returncode == 2
    assert f"PYTHON={old} cannot be used: it is Python 3.8" in done.stderr

    good = bash('find_python; echo "$BASE_PYTHON"', PYTHON=sys.executable)
    assert good.stdout.strip() == sys.executable


def test_first_usable_interpreter_wins(tmp_path):
    interpreter(tmp_path, "python3.11", "3.11", venv=False)
    interpreter(tmp_path, "python3.12", "3.12")
    done = bash('find_python; echo "$BASE_PYTHON"', PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.stdout.strip() == "python3.12"


def test_every_fault_is_listed_when_none_will_do(tmp_path):
    for name, version, venv in (("python3.11", "3.11", False), ("python3", "3.14", True)):
        interpreter(tmp_path, name, version, venv=venv)
    for tool in ("bash", "dirname", "nproc", "cat"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = bash("find_python", PATH=str(tmp_path))
    assert done.returncode == 2
    assert "apt-get install python3.11-venv" in done.stderr
    assert "python3: it is Python 3.14" in done.stderr


def test_stamp_follows_what_decides_the_installation():
    script = 'install_stamp "cpu" "py"; install_stamp "cpu" "py"; install_stamp "cpu,demo" "py"'
    first, again, other = bash(script).stdout.split()
    assert first == again != other


def test_import_noise_alone_is_dropped():
    script = (
        "quietly bash -c '"
        'echo "WARNING: OMP_NUM_THREADS set to 2, not 1." >&2; echo real >&2; echo out; exit 3\''
        ' || echo "status $?"'
    )
    done = bash(script)
    assert done.stdout == "out\nstatus 3\n"
    assert done.stderr == "real\n"
