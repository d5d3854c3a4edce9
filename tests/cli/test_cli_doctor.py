"""``doctor``: says what is there and how to get what is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paddle_fluid_boost import cli
from paddle_fluid_boost.options import describe, override

ROOT = Path(__file__).resolve().parents[2]


def test_doctor_names_engines_versions_and_every_option(capsys):
    status = cli.main(["doctor"])
    said = capsys.readouterr().out
    assert status == 0
    assert "paddlepaddle" in said
    assert "paddle_inference  available" in said
    assert "\nMachine\n  processor         " in said and "\n  memory            " in said
    assert "\n  library           " in said
    assert "\n  block pool        " in said and "\n  option pool       " in said
    for name, *_ in describe():
        assert f"\n  {name} " in said


def test_doctor_marks_changed_options(capsys):
    with override(hot_calls=7):
        cli.main(["doctor"])
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("  hot_calls"))
    assert "7" in line
    assert "[default 0]" in line


def test_doctor_names_a_wrong_file_of_the_hardware_library(capsys, tmp_path):
    (tmp_path / "mine.toml").write_text('kind = "tpu"\n', encoding="utf-8")
    with override(hardware_dir=str(tmp_path)):
        assert cli.main(["doctor"]) == 0
    assert "library           goes without your files: mine.toml: family" in capsys.readouterr().out


def test_doctor_says_how_to_get_a_missing_engine(capsys, monkeypatch):
    monkeypatch.setattr(cli, "_engine_fault", lambda name: f"{name} is absent")
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "onnxruntime is absent" in said
    assert "pip install 'paddle-fluid-boost[onnxruntime]'" in said


def test_missing_paddle_is_said_in_one_sentence(tmp_path):
    """With Paddle hidden, importing the package says what to install."""
    hide = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'paddle':\n"
        "            raise ModuleNotFoundError(f\"No module named '{name}'\", name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import paddle_fluid_boost as pfb\n"
        "pfb.install()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("paddle_fluid_boost.errors.UnsupportedPaddleError: "), done.stderr
    assert "pip install" in last
