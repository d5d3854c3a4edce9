"""Runs a check in a forked child and never waits for one that hangs."""

from __future__ import annotations

import os
import signal
import time

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
WAIT = 20.0


def in_child(check):
    """Forks; the exit status of ``check()`` in the child: 0 when it returned True."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "the child hung"
