"""The background compile thread: order, bounds, failures, exit, fork."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
from forking import in_child, needs_fork

from paddle_fluid_boost.hotspot import worker as worker_module
from paddle_fluid_boost.hotspot.worker import NICENESS, Worker
from paddle_fluid_boost.options import override

WAIT = 20.0


class Job:
    def __init__(self, key, action=lambda: None, priority=1.0):
        self.key, self.action, self.priority = key, action, priority
        self.dropped = 0

    def run(self):
        self.action()

    def abandoned(self):
        self.dropped += 1


class Gate:
    """A job that says when it runs and then waits to be let go."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self):
        self.entered.set()
        assert self.opened.wait(WAIT)


@pytest.fixture
def worker():
    made = Worker(queue_limit=3, idle_seconds=0.05)
    yield made
    made.close(WAIT)


def _blocked(worker):
    """A worker that is busy with a gated job."""
    gate = Gate()
    assert worker.submit(Job("gate", gate))
    assert gate.entered.wait(WAIT)
    return gate


def test_runs_in_another_thread(worker):
    ran = []
    assert worker.submit(Job("a", lambda: ran.append(threading.get_ident())))
    assert worker.wait_idle(WAIT)
    assert len(ran) == 1 and ran[0] != threading.get_ident()


def test_sync_runs_in_the_caller(worker):
    ran = []
    with override(sync=True):
        assert worker.submit(Job("a", lambda: ran.append(threading.get_ident())))
    assert ran == [threading.get_ident()]
    assert worker.pending() == 0


def test_highest_priority_first_as_it_is_when_picked(worker):
    gate, order = _blocked(worker), []
    jobs = [Job(name, lambda name=name: order.append(name)) for name in "abc"]
    for job, priority in zip(jobs, (1.0, 2.0, 3.0)):
        job.priority = priority
        assert worker.submit(job)
    jobs[1].priority = 9.0
    gate.opened.set()
    assert worker.wait_idle(WAIT)
    assert order == ["b", "c", "a"]


def test_same_key_is_one_job_while_it_waits_or_runs(worker):
    gate = _blocked(worker)
    assert not worker.submit(Job("gate"))
    assert worker.submit(Job("a"))
    assert not worker.submit(Job("a"))
    gate.opened.set()
    assert worker.wait_idle(WAIT)
    assert worker.submit(Job("a"))


def test_full_queue_keeps_the_valuable(worker):
    gate = _blocked(worker)
    jobs = [Job(i, priority=float(i)) for i in (3, 1, 2)]
    assert all(worker.submit(job) for job in jobs)
    assert not worker.submit(Job("low", priority=0.5))
    assert worker.submit(Job("high", priority=9.0))
    assert [job.dropped for job in jobs] == [0, 1, 0]
    assert worker.pending() == 4
    gate.opened.set()
    assert worker.wait_idle(WAIT)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_failing_job_is_logged_and_the_thread_lives(worker, caplog, error):
    def fail():
        raise error

    ran = []
    with caplog.at_level(logging.ERROR, "paddle_fluid_boost.compiles"):
        worker.submit(Job("bad", fail))
        assert worker.wait_idle(WAIT)
        worker.submit(Job("good", lambda: ran.append(1)))
        assert worker.wait_idle(WAIT)
    assert ran == [1]
    assert "compile job bad failed" in caplog.text
    assert type(error).__name__ in caplog.text


def test_sync_lets_only_ctrl_c_through(worker, caplog):
    def raising(error):
        def run():
            raise error

        return run

    interrupted = Job("c", raising(KeyboardInterrupt()))
    with override(sync=True), caplog.at_level(logging.ERROR, "paddle_fluid_boost.compiles"):
        assert worker.submit(Job("a", raising(ValueError("no"))))
        assert worker.submit(Job("b", raising(SystemExit(1))))
        with pytest.raises(KeyboardInterrupt):
            worker.submit(interrupted)
    assert interrupted.dropped == 1
    assert worker.pending() == 0
    assert caplog.text.count("failed") == 2


def test_thread_ends_when_idle_and_starts_again(worker):
    seen = []
    for key in "ab":
        worker.submit(Job(key, lambda: seen.append(threading.current_thread())))
        assert worker.wait_idle(WAIT)
        seen[-1].join(WAIT)
        assert not seen[-1].is_alive()
    assert seen[0] is not seen[1]


def test_finished_job_is_not_kept_alive():
    worker = Worker(idle_seconds=3600.0)
    job = Job("a")
    ref = weakref.ref(job)
    worker.submit(job)
    del job
    assert worker.wait_idle(WAIT)
    deadline = time.monotonic() + 2.0
    while ref() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert ref() is None
    worker.close(WAIT)


def test_wait_idle_times_out_and_refuses_its_own_thread(worker):
    gate = _blocked(worker)
    assert not worker.wait_idle(0.01)
    gate.opened.set()
    errors = []

    def wait_inside():
        try:
            worker.wait_idle(1.0)
        except RuntimeError as error:
            errors.append(str(error))

    worker.submit(Job("inside", wait_inside))
    assert worker.wait_idle(WAIT)
    assert len(errors) == 1 and "wait for itself" in errors[0]


def test_close_abandons_and_refuses(worker):
    gate, waiting = _blocked(worker), Job("a")
    worker.submit(waiting)
    assert not worker.close(0.01)
    assert waiting.dropped == 1
    assert not worker.submit(Job("b"))
    assert worker.stopping
    gate.opened.set()
    assert worker.wait_idle(WAIT)


def test_many_threads_submit_and_every_job_runs_once():
    worker, ran, refused = Worker(queue_limit=10_000, idle_seconds=0.001), [], []

    def submit(thread):
        for i in range(200):
            key = (thread, i)
            if not worker.submit(Job(key, lambda key=key: ran.append(key))):
                refused.append(key)

    threads = [threading.Thread(target=submit, args=(t,)) for t in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert worker.wait_idle(WAIT)
    assert not refused
    assert len(ran) == 1200 and len(set(ran)) == 1200


@pytest.mark.skipif(sys.platform != "linux", reason="thread niceness is Linux's")
def test_compile_thread_is_nicer_than_its_caller(worker):
    seen = []
    before = os.getpriority(os.PRIO_PROCESS, 0)

    def look():
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    worker.submit(Job("a", look))
    assert worker.wait_idle(WAIT)
    assert seen == [min(before + NICENESS, 19)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_no_thread_to_be_had_is_a_refusal(worker, monkeypatch, caplog):
    def no_thread(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with caplog.at_level(logging.WARNING, "paddle_fluid_boost.compiles"):
        assert not worker.submit(Job("a"))
    assert "can't start new thread" in caplog.text
    monkeypatch.undo()
    assert worker.pending() == 0
    assert worker.submit(Job("a"))
    assert worker.wait_idle(WAIT)


def test_queue_limit_is_checked():
    with pytest.raises(ValueError, match="queue_limit must be at least 1, got 0"):
        Worker(queue_limit=0)


@needs_fork
def test_fork_with_a_busy_worker(worker):
    gate, waiting = _blocked(worker), Job("waiting")
    worker.submit(waiting)

    def child():
        ran = []
        lost = waiting.dropped == 1 and worker.pending() == 0
        again = worker.submit(Job("waiting", lambda: ran.append(1)))
        return lost and again and worker.wait_idle(5.0) and ran == [1]

    assert in_child(child) == 0
    assert waiting.dropped == 0
    gate.opened.set()
    assert worker.wait_idle(WAIT)


@needs_fork
def test_fork_from_inside_a_job(worker):
    results = []
    worker.submit(Job("forks", lambda: results.append(in_child(lambda: worker.submit(Job("x"))))))
    assert worker.wait_idle(WAIT)
    assert results == [0]
    assert worker.submit(Job("after"))
    assert worker.wait_idle(WAIT)


@needs_fork
def test_forks_from_several_threads_while_jobs_come(worker):
    results = []

    def fork_some():
        for _ in range(5):
            results.append(in_child(lambda: worker.submit(Job("c")) and worker.wait_idle(5.0)))

    threads = [threading.Thread(target=fork_some) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(200):
        worker.submit(Job(i))
    for thread in threads:
        thread.join(60.0)
    assert results == [0] * 15
    assert not worker_module._held
    assert worker.wait_idle(WAIT)


def test_exit_does_not_wait_for_a_long_job():
    script = (
        "import time, threading\n"
        "from paddle_fluid_boost.hotspot.worker import Worker\n"
        "entered = threading.Event()\n"
        "class Job:\n"
        "    key, priority = 'long', 1.0\n"
        "    def run(self): entered.set(); time.sleep(60)\n"
        "    def abandoned(self): pass\n"
        "w = Worker(); w.submit(Job()); assert entered.wait(20)\n"
        "print('main done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0
    assert done.stdout == "main done\n"
    assert "Traceback" not in done.stderr and "Fatal" not in done.stderr
