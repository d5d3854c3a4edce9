"""A Paddle that lacks a private name we need is refused by a clear message, and left as it is."""

import os
import subprocess
import sys

import paddle
import pytest

from paddle_fluid_boost.capture import _paddle

#: (module, name): each gone in turn.
NAMES = [
    ("paddle.base.framework", "global_var"),
    ("paddle.base.dygraph.base", "to_static_mode_guard"),
    ("paddle.jit.dy2static.program_translator", "StaticFunction"),
    ("paddle.jit.dy2static.program_translator", "SymbolicStaticFunction"),
    ("paddle.pir.core", "_convert_into_value"),
    ("paddle.pir.core", "static_op_arg_cast_guard"),
    ("paddle.pir", "Value"),
]

SCRIPT = """
import importlib, sys
import paddle
for line in sys.stdin.read().split():
    module, name = line.split(":")
    owner = importlib.import_module(module)
    value = getattr(owner, name)
    delattr(owner, name)
    try:
        import paddle_fluid_boost
        print("imported without", name)
    except ImportError as error:
        print(type(error).__name__, name, error)
    setattr(owner, name, value)
import paddle_fluid_boost
print("imported")
"""


@pytest.fixture(scope="module")
def answers():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(f"{module}:{name}" for module, name in NAMES),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("index", range(len(NAMES)), ids=[name for _, name in NAMES])
def test_missing_name(answers, index):
    name = NAMES[index][1]
    said = answers[index]
    assert said.startswith(f"UnsupportedPaddleError {name} PaddlePaddle {paddle.__version__} lacks")
    assert f"'{name}'" in said and "Supported: 3.1 to 3.3" in said


def test_import_works_once_the_name_is_back(answers):
    assert answers[-1] == "imported"


def test_methods_to_patch_exist():
    for find in (
        _paddle.static_builders,
        _paddle.optimizer_methods,
        _paddle.methods_that_change_anything,
    ):
        found = find()
        assert found
        assert all(callable(getattr(cls, name)) for cls, name in found)
    names = {(cls.__name__, name) for cls, name in _paddle.static_builders()}
    assert {("ProgramCache", "_build_once"), ("OpcodeExecutorCache", "translate")} <= names
    assert ("Optimizer", "_apply_optimize") in {
        (cls.__name__, name) for cls, name in _paddle.optimizer_methods()
    }
