"""What a compile must leave alone, and what must hold around it: threads, forks, memory, modes.

Each scenario runs in a process of its own (``process_scenarios.py``): a fault here may crash or
hang, and the state of the process is what is looked at.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from process_scenarios import SCENARIOS

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("way", ["to_static", "auto"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_process(name: str, way: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "GLOG_minloglevel": "3"}
    done = subprocess.run(
        [sys.executable, str(_HERE / "process_scenarios.py"), name, way],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-2000:]
