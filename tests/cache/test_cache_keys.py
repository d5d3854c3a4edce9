"""What an entry depends on: all that may make it wrong, nothing that varies for no reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import paddle
import pytest

import paddle_fluid_boost as pfb
from paddle_fluid_boost.cache import surroundings as around
from paddle_fluid_boost.cache.programs import program_key
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.options import override

ROOT = Path(__file__).resolve().parents[2]

NAME_AND_FEATURES = around._processor()

ALLOWED = "from paddle_fluid_boost.capture.lock import STATIC_LOCK; STATIC_LOCK.open()"

MODEL = """
import paddle
from paddle_fluid_boost.cache.programs import program_key
from paddle_fluid_boost.capture.trace import trace
from paddle_fluid_boost.cache.surroundings import key, surroundings

net = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 2))
with paddle.no_grad():
    captured, _ = trace(net, (paddle.ones([1, 4]),), {})
name = program_key(captured)
"""


def key_of(function, *shape, dtype="float32"):
    with paddle.no_grad():
        captured, _ = trace(function, (paddle.ones(shape, dtype),), {})
    return program_key(captured)


def test_one_program_has_one_name_in_every_process():
    code = f"{ALLOWED}{MODEL}print(name, key(surroundings()))"
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    here: dict[str, str] = {}
    paddle.nn.Linear(2, 2)  # layers are counted: the names of the next ones differ
    exec(MODEL, here)
    assert there.split() == [here["name"], around.key(around.surroundings())]


def test_weights_do_not_change_the_name():
    one, other = paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3)
    assert key_of(one, 2, 3) == key_of(other, 2, 3)


def test_a_tied_weight_is_not_two():
    tied, apart = paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3)
    assert key_of(lambda x: tied(tied(x)), 2, 3) != key_of(lambda x: tied(apart(x)), 2, 3)


@pytest.mark.parametrize(
    "function, shape, dtype",
    [
        (lambda x: paddle.nn.functional.softmax(x, 0), [2, 3], "float32"),
        (lambda x: paddle.nn.functional.log_softmax(x, 1), [2, 3], "float32"),
        (lambda x: paddle.nn.functional.softmax(x, 1), [2, 4], "float32"),
        (lambda x: paddle.nn.functional.softmax(x, 1), [2, 3], "float64"),
        (lambda x: (paddle.nn.functional.softmax(x, 1), x + 1), [2, 3], "float32"),
    ],
    ids=["attribute", "op", "shape", "dtype", "outputs"],
)
def test_another_program_has_another_name(function, shape, dtype):
    first = key_of(lambda x: paddle.nn.functional.softmax(x, 1), 2, 3)
    assert key_of(function, *shape, dtype=dtype) != first


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.setattr(pfb, "__version__", "0.0.0"),
        lambda m: m.setattr(around, "source_hash", lambda: "changed"),
        lambda m: m.setattr(paddle, "__version__", "3.9.9"),
        lambda m: m.setattr(paddle.version, "commit", "0" * 40),
        lambda m: m.setattr(around, "_processor", lambda: ("another", NAME_AND_FEATURES[1])),
        lambda m: m.setattr(around, "usable_cores", lambda: 97),
        lambda m: m.setattr(around, "_processor", lambda: (NAME_AND_FEATURES[0], "another")),
        lambda m: m.setattr(around.platform, "machine", lambda: "riscv64"),
        lambda m: m.setenv("OMP_NUM_THREADS", "97"),
        lambda m: m.setenv("ONEDNN_MAX_CPU_ISA", "SSE41"),
        lambda m: m.setenv("FLAGS_use_mkldnn", "1"),
        lambda m: m.setattr(pfb.options, "threads", 97),
        lambda m: m.setattr(pfb.options, "rtol", 0.5),
        lambda m: m.setattr(pfb.options, "engines", "native"),
    ],
    ids=[
        *("package", "sources", "paddle", "paddle-commit", "processor", "cores", "features"),
        *("architecture", "omp", "onednn", "flags", "threads", "rtol", "engines"),
    ],
)
def test_every_part_of_the_surroundings_counts(monkeypatch, change):
    before = around.key(around.surroundings())
    assert around.key(around.surroundings()) == before
    change(monkeypatch)
    assert around.key(around.surroundings()) != before


def test_the_processor_has_a_name_and_features():
    name, features = NAME_AND_FEATURES
    assert name == around.processor_name()
    assert features == around._processor_features()


def test_options_of_the_cache_itself_do_not_count(tmp_path):
    before = around.key(around.surroundings())
    with override(cache_dir=str(tmp_path), cache_mb=3):
        assert around.key(around.surroundings()) == before


def test_the_sources_are_those_that_build_versions(tmp_path):
    for room in around._ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "one.py").write_text("1")
    seen = {around.source_hash.__wrapped__(tmp_path)}
    for file in ("passes/one.py", "engines/new.py", "_native.so", "ir/one.py"):
        (tmp_path / file).write_text("2")
        seen.add(around.source_hash.__wrapped__(tmp_path))
    (tmp_path / "report.py").write_text("of no account")
    assert around.source_hash.__wrapped__(tmp_path) in seen
    assert len(seen) == 5
    assert around.source_hash() != around.source_hash.__wrapped__(tmp_path)
