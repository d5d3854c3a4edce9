"""The torture program of the block pool, as a test; tools/sanitize runs it for longer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("sanitizer", ["none", "address", "undefined", "thread"])
def test_torture(sanitizer) -> None:
    done = subprocess.run(
        [str(ROOT / "tools" / "sanitize"), sanitizer],
        env={**os.environ, "SECONDS_EACH": "9"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = done.stdout + done.stderr
    if "cannot find" in said and "san" in said:
        pytest.skip(f"no library of the {sanitizer} sanitizer")
    assert done.returncode == 0, said[-3000:]
    assert "passed" in done.stdout
