"""The benchmarks' own arithmetic: blocks, statistics, child processes."""

from __future__ import annotations

import time


def test_blocks_are_interleaved_and_never_call_by_call(bench_module):
    timing = bench_module("timing")
    calls = []
    competitors = {name: (lambda name=name: calls.append(name)) for name in ("a", "b", "c")}
    times = timing.in_blocks(competitors, rounds=4, calls=5, warm_up=2, pause=0.0)

    assert {name: len(t.samples) for name, t in times.items()} == {"a": 20, "b": 20, "c": 20}
    blocks = [calls[i : i + 7] for i in range(0, len(calls), 7)]
    assert all(len(set(block)) == 1 for block in blocks)
    rounds = ["".join(block[0] for block in blocks[i : i + 3]) for i in range(0, 12, 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len(set(rounds)) > 1, "the order never changes"


def test_timing_statistics(bench_module):
    timing = bench_module("timing").Timing((4.0, 1.0, 2.0, 3.0, 100.0))
    assert (timing.median, timing.minimum, timing.maximum) == (3.0, 1.0, 100.0)
    assert timing.as_dict()["samples"] == 5
    assert bench_module("timing").Timing((2.0,)).spread == 0.0


def test_quick_calls_take_turns(bench_module):
    turns = []
    calls = {name: (lambda name=name: turns.append(name)) for name in ("a", "b")}
    times = bench_module("timing").per_call_us(calls, repeats=10, rounds=3)
    assert "".join(turns) == ("a" * 12 + "b" * 12) * 3
    assert set(times) == {"a", "b"}
    assert all(0 < t.wall_us < float("inf") and t.cpu_us < float("inf") for t in times.values())


def test_waiting_is_clock_time_but_not_processor_time(bench_module):
    timing = bench_module("timing")
    waits = {"wait": lambda: time.sleep(0.002)}
    waiting = timing.per_call_us(waits, repeats=10, rounds=2)["wait"]
    assert waiting.wall_us >= 2000
    assert waiting.cpu_us < waiting.wall_us / 2


def test_in_child_reports_a_crash_instead_of_raising(bench_module, monkeypatch, tmp_path):
    machine = bench_module("machine")
    (tmp_path / "faulty.py").write_text(
        "import os\n"
        "def child(how):\n"
        "    if how == 'abort':\n"
        "        os.abort()\n"
        "    if how == 'raise':\n"
        "        raise ValueError('because')\n"
        "    return {'said': how}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert machine.in_child("faulty", ["hello"]) == {"said": "hello"}
    assert machine.in_child("faulty", ["raise"])["failed"].endswith("ValueError: because")
    assert machine.in_child("faulty", ["abort"])["failed"].startswith("exit status -6")


def test_a_busy_machine_is_said_to_be_busy(bench_module):
    note = bench_module("machine").busy_note
    assert note(0.3, 2) == ""
    assert "load 8.5 on 2 cores" in note(8.5, 2)
