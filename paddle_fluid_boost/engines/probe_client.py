"""Asks the probe child; starts it when needed, and survives whatever happens to it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from ..hardware.modules import python
from .probe_child import ANSWER


class ProbeUnavailable(Exception):
    """No child process can be started here; the message says why."""


class ProbeClient:
    """One child process, started on demand and used by one caller at a time.

    waited: seconds that callers have waited for answers, all together.
    """

    def __init__(self) -> None:
        self.waited = 0.0
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], timeout: float) -> str | None:
        """What the predictor of ``request`` does wrong, as the end of a sentence, or None.

        Args:
            request: see :func:`probe_child.probe`.
            timeout: seconds to wait, the child's start included, before it is killed.

        Raises:
            ProbeUnavailable: no child can be started.
        """
        line = json.dumps(request).encode() + b"\n"
        started = time.monotonic()
        try:
            return self._ask(line, timeout)
        finally:
            self.waited += time.monotonic() - started

    def _ask(self, line: bytes, timeout: float) -> str | None:
        with self._lock:
            deadline = time.monotonic() + timeout
            for _ in range(2):
                child = self._running_child()
                answer = self._exchange(child, line, deadline)
                if answer is not None:
                    return answer["wrong"] if answer else None
                code = self._bury()
                if code != 0:
                    return _cause_of_death(code)
                # It left after its idle minute just as we asked: ask a new one.
            return "leaves without an answer"

    def _exchange(
        self, child: subprocess.Popen[bytes], line: bytes, deadline: float
    ) -> dict[str, Any] | None:
        """The child's answer, or None when it died or had to be killed."""
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(line)
            child.stdin.flush()
        except BrokenPipeError:
            return None
        received = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                self._kill()
                return {"wrong": "gives no answer in time"}
            piece = os.read(child.stdout.fileno(), 65536)
            if not piece:
                return None
            received += piece
            for text in received.decode(errors="replace").splitlines(keepends=True):
                if text.startswith(ANSWER) and text.endswith("\n"):
                    answer: dict[str, Any] = json.loads(text[len(ANSWER) :])
                    return answer

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self._bury()
        if self._child is None:
            self._child = _start()
        return self._child

    def _bury(self) -> int:
        """Waits for a child that has closed its output; its exit status."""
        child, self._child = self._child, None
        assert child is not None
        try:
            code = child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        _close_pipes(child)
        return code

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._bury()

    def close(self) -> None:
        """Ends the child, if any, also under somebody who waits for its answer.  The client can be
        used again."""
        child = self._child
        if child is not None:
            child.kill()
        with self._lock:
            self._kill()

    def forget(self) -> None:
        """In a forked process: the child is the parent's."""
        self._lock = threading.Lock()
        if self._child is not None:
            _close_pipes(self._child)
            self._child.returncode = 0  # not ours to wait for
            self._child = None


def _start() -> subprocess.Popen[bytes]:
    """A new child; Python finds in it what it finds here."""
    if os.name != "posix":
        raise ProbeUnavailable("probing needs a POSIX system")
    interpreter = python()
    if interpreter is None:
        raise ProbeUnavailable(f"sys.executable is {sys.executable!r}, not a Python interpreter")
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    environment.setdefault("GLOG_minloglevel", "3")
    return subprocess.Popen(
        [interpreter, "-m", f"{__package__}.probe_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # an interrupt typed at the user's terminal is not for it
    )


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _cause_of_death(code: int) -> str:
    if code >= 0:
        return f"ends the process (exit status {code})"
    try:
        return f"crashes the process ({signal.Signals(-code).name})"
    except ValueError:
        return f"crashes the process (signal {-code})"


#: The one client of this process.
PROBE = ProbeClient()
atexit.register(PROBE.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROBE.forget)
