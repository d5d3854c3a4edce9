"""The behaviour cases: each a small program in a process of its own that ends in OK or WRONG.

They were collected from public reports (``INDEX.tsv`` names the source of each) of what compilers
for eager frameworks get wrong.  Eager passes all of them, and so must we, however early and
whichever way the code is compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = sorted(path.name for path in HERE.glob("[0-9][0-9]_*.py"))

#: Setting -> environment.  "forced" compiles everything that can be, worth it or not.
SETTINGS = {
    "forced": {"PFB_SYNC": "1", "PFB_HOT_CALLS": "1", "PFB_MIN_GAIN": "0", "PFB_WARM": "6"},
    "background": {"PFB_HOT_CALLS": "2", "PFB_MIN_GAIN": "0", "PFB_WARM": "20"},
    "at once": {"PFB_SYNC": "1", "PFB_HOT_CALLS": "1", "PFB_WARM": "6"},
    "default": {"PFB_WARM": "10"},
    "whole graph": {
        "PFB_SYNC": "1",
        "PFB_HOT_CALLS": "1",
        "PFB_MIN_GAIN": "0",
        "PFB_WARM": "6",
        "PFB_DECORATOR": "decorators:whole_graph",
    },
    "auto": {
        "PFB_SYNC": "1",
        "PFB_HOT_CALLS": "1",
        "PFB_MIN_GAIN": "0",
        "PFB_WARM": "6",
        "PFB_DECORATOR": "decorators:watched_only",
    },
}
IN_CI = ("forced", "background")


def run_case(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs one case; its last line of output says OK or WRONG and what."""
    return subprocess.run(
        [sys.executable, name],
        cwd=HERE,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOG_minloglevel": "3",
            "PFB_DECORATOR": "paddle_fluid_boost:to_static",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "setting",
    [pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.long]) for name in SETTINGS],
)
def test_case(setting: str, case: str) -> None:
    done = run_case(case, SETTINGS[setting])
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def test_cases_are_there() -> None:
    assert len(CASES) >= 48
