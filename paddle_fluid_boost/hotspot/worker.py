"""The thread that compiles: one at a time, the most valuable first, never in anybody's way.

It starts when there is something to do, ends after some idle seconds and starts again on demand.
On Linux it runs at a lower priority than the threads it serves (``NICENESS``), and so do threads
that libraries start from inside a job, which matters only on a machine that is busy.
A job that fails is a log record on ``paddle_fluid_boost.compiles``; it never takes the thread down.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Hashable
from time import monotonic
from typing import Protocol

from ..options import options

#: Jobs that may wait.  With more, the least valuable one is abandoned: its signature is asked about
#: again if it stays hot, and by then its priority says more.
QUEUE_LIMIT = 64

#: Seconds without a job after which the thread ends.
IDLE_SECONDS = 10.0

#: Seconds that the exit of the interpreter waits for a running job.  A job looks at :func:`exiting`
#: all the time; only a single long call into C++ can take more than an instant, and to leave it
#: running would crash the process (see ``capture/yielding.py``).
EXIT_SECONDS = 5.0

#: Added to the niceness of the compile thread, on Linux.  Measured beside a busy main thread: with
#: 10 a Paddle loop is slowed 1.4 times where it was 3.9 times with 0 (docs/policy.md).
NICENESS = 10

log = logging.getLogger("paddle_fluid_boost.compiles")


class Job(Protocol):
    """One compile.

    key: jobs with the same key are one job; the second is refused while the first waits or runs.
    priority: expected saving per second of wall time; the highest is taken first.  Read when a
        job is picked, so it may change while it waits.
    """

    key: Hashable

    @property
    def priority(self) -> float: ...

    def run(self) -> None:
        """Does the work and publishes the result.  Whatever it raises is logged."""

    def abandoned(self) -> None:
        """It was dropped and will not be run (queue full, fork, exit, Ctrl-C); it may be submitted
        again.  Must not take a lock that another thread may hold: it is called in forked children.
        """


class Worker:
    """Runs jobs in a daemon thread of its own; every method may be called from any thread."""

    def __init__(self, queue_limit: int = QUEUE_LIMIT, idle_seconds: float = IDLE_SECONDS) -> None:
        if queue_limit < 1:
            raise ValueError(f"queue_limit must be at least 1, got {queue_limit!r}")
        self.queue_limit = queue_limit
        self.idle_seconds = idle_seconds
        #: Set by :meth:`close`: no more jobs are taken.
        self.stopping = False
        self._waiting: dict[Hashable, Job] = {}
        self._running: dict[Hashable, Job] = {}
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        _workers.add(self)

    # -- for those who have work -------------------------------------------------------------------

    def submit(self, job: Job) -> bool:
        """Queues ``job``, or runs it here and now when ``options.sync``.

        Returns False, and does nothing more, when a job of that key already waits or runs, when
        the queue is full of more valuable ones, or when the interpreter exits.
        """
        if options.sync:
            return self._run_here(job)
        with self._changed:
            if self._refuses(job):
                return False
            dropped = self._make_room(job)
            if dropped is job:
                return False
            self._waiting[job.key] = job
            if not self._started():
                del self._waiting[job.key]
                return False
            self._changed.notify_all()
        if dropped is not None:
            log.info("queue full, dropped %s", dropped.key)
            dropped.abandoned()
        return True

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Waits until nothing waits or runs; False when ``timeout`` seconds were not enough."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "wait_idle was called from a compile job, which would wait for itself"
            )
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._running), timeout)

    def pending(self) -> int:
        """Jobs that wait or run."""
        return len(self._waiting) + len(self._running)

    def close(self, timeout: float = EXIT_SECONDS) -> bool:
        """Takes no more jobs, abandons those that wait, gives a running one ``timeout`` seconds.

        True when nothing runs any more.
        """
        with self._changed:
            self.stopping = True
            dropped = list(self._waiting.values())
            self._waiting.clear()
            self._changed.notify_all()
        for job in dropped:
            job.abandoned()
        if threading.current_thread() is self._thread:
            return False
        return self.wait_idle(timeout)

    # -- the queue; the lock is held ---------------------------------------------------------------

    def _refuses(self, job: Job) -> bool:
        return self.stopping or job.key in self._waiting or job.key in self._running

    def _make_room(self, job: Job) -> Job | None:
        """The job that must go so that ``job`` fits: None, a waiting one, or ``job`` itself."""
        if len(self._waiting) < self.queue_limit:
            return None
        least = min(self._waiting.values(), key=lambda waiting: waiting.priority)
        if least.priority >= job.priority:
            return job
        return self._waiting.pop(least.key)

    def _started(self) -> bool:
        """True when there is a thread, started now if need be; False when the system has none."""
        if self._thread is None:
            thread = threading.Thread(target=self._loop, name="pfb-compile", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # out of threads, or the interpreter is going down
                log.warning("no compile thread: %s", error)
                return False
            self._thread = thread
        return True

    # -- running -----------------------------------------------------------------------------------

    def _loop(self) -> None:
        me = threading.current_thread()
        _lower_priority()
        while (job := self._take(me)) is not None:
            _run_logged(job)
            if self._thread is not me:  # the job forked, and this is the child: not our queue
                return
            self._finished(job)
            del job  # it may hold a copy of a model, and the wait for the next is long

    def _take(self, me: threading.Thread) -> Job | None:
        """The most valuable job; None when the thread should end, which is then settled."""
        with self._changed:
            if self._thread is not me:
                return None
            woken = self._changed.wait_for(
                lambda: self._waiting or self.stopping, self.idle_seconds
            )
            if not woken or not self._waiting:
                self._thread = None
                return None
            job = max(self._waiting.values(), key=lambda waiting: waiting.priority)
            self._running[job.key] = self._waiting.pop(job.key)
            return job

    def _finished(self, job: Job) -> None:
        with self._changed:
            self._running.pop(job.key, None)
            self._changed.notify_all()

    def _run_here(self, job: Job) -> bool:
        """The synchronous way.  Ctrl-C belongs to the user and goes through."""
        with self._changed:
            if self._refuses(job):
                return False
            self._running[job.key] = job
        try:
            _run_logged(job, through=KeyboardInterrupt)
        except KeyboardInterrupt:
            job.abandoned()
            raise
        finally:
            self._finished(job)
        return True

    # -- fork --------------------------------------------------------------------------------------

    def _after_fork_in_child(self) -> None:
        """The thread was not copied: starts empty, and tells the jobs that are lost."""
        lost = [*self._waiting.values(), *self._running.values()]
        self._waiting, self._running = {}, {}
        self._thread = None
        self._changed = threading.Condition()
        for job in lost:
            job.abandoned()


def _lower_priority() -> None:
    """Lets the threads that wait for nobody go first; on Linux a thread has its own niceness."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    try:
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICENESS
        os.setpriority(os.PRIO_PROCESS, thread, min(niceness, 19))
    except OSError as error:  # a sandbox may forbid it; it only costs some smoothness
        log.debug("the compile thread keeps its priority: %s", error)


def _run_logged(job: Job, through: type[BaseException] | tuple[()] = ()) -> None:
    """Runs a job; every exception but those of type ``through`` ends as a log record.

    SystemExit too: user code that runs while it is captured may call ``sys.exit``, and that must
    end neither the thread nor, in the synchronous way, a program whose eager call did not exit.
    """
    try:
        job.run()
    except through:
        raise
    except BaseException:
        log.exception("compile job %s failed", job.key)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


#: Held from before a fork until after it, as two threads may fork at once.
_forking = threading.Lock()
_held: list[Worker] = []


def _before_fork() -> None:
    """Forks only between two changes of a queue, so that the child sees a whole one."""
    _forking.acquire()
    _held.extend(_workers)
    for worker in _held:
        worker._changed.acquire()


def _after_fork_in_parent() -> None:
    for worker in _held:
        worker._changed.release()
    _held.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.Lock()
    lost = list(_held)
    _held.clear()
    for worker in lost:
        worker._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


_exiting = False


def exiting() -> bool:
    """True once the interpreter has begun to exit: running jobs should end at once."""
    return _exiting


@atexit.register
def _at_exit() -> None:
    """One moment for all workers together, then the interpreter goes on."""
    global _exiting
    _exiting = True
    deadline = monotonic() + EXIT_SECONDS
    for worker in list(_workers):
        worker.close(max(deadline - monotonic(), 0.0))
