"""Runs a script that dies with its parent: ``python child.py PARENT SCRIPT ARGUMENT ...``.

PARENT is the process id of who asks.  This folder is not on the script's path: its files have names
that other packages use too.  This file imports nothing of the package.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: str, script: str, *arguments: str) -> None:
    """Runs ``script`` as ``python script arguments...`` does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("who asked for this is gone")
    del sys.path[0]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
