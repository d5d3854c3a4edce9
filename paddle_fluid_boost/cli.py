"""The command line ``paddle-fluid-boost``, or ``python -m paddle_fluid_boost``.

``run`` executes a script or module as ``python`` itself would, with the plugin installed first.
``export`` writes a model to verified files (``export/command.py``); ``inspect`` and ``compare``
look into models and files (``export/inspect_command.py``).
``cache`` lists or clears what is kept on disk (``cache/command.py``).
``doctor`` says what this machine and this installation offer.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import importlib.machinery
import importlib.util
import io
import os
import platform
import runpy
import sys
import types
import zipfile
from collections.abc import Sequence
from types import TracebackType

from .cache import command as cache_command
from .export import command as export_command
from .export import completion, inspect_command
from .export.targets import TARGETS, version
from .hardware.advice import accelerators_in_words, in_words
from .hardware.describe import describe as describe_machine
from .hardware.probe import ask_machine
from .options import describe, options

#: The engines there may be, and how to get what each needs.
_HOW_TO_GET = {
    "native": "reinstall with a C++17 compiler on PATH (apt-get install g++)",
    "paddle_inference": "pip install 'paddlepaddle>=3.1,<3.4'",
    "onnxruntime": "pip install 'paddle-fluid-boost[onnxruntime]'",
    "openvino": "pip install 'paddle-fluid-boost[openvino]'",
    "gpu": "install a build of Paddle with CUDA (paddlepaddle.org.cn)",
    "custom_device": "install a plug-in of PaddleCustomDevice",
}
_PACKAGES = (
    "paddlepaddle",
    "paddlepaddle-gpu",
    "numpy",
    "paddle2onnx",
    "onnx",
    "onnxruntime",
    "onnxslim",
    "openvino",
    "MNN",
    "ncnn",
    "tqdm",
)


#: Seconds that ``doctor`` waits for the tools of accelerators' makers.
_PATIENCE = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line ``arguments`` (default: ``sys.argv[1:]``); returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours, target = _split_run(given)
    parsed = _parser().parse_args(ours)
    if parsed.command == "run":
        return _run(target, as_module=parsed.module, auto=parsed.auto)
    if parsed.command == "cache":
        return cache_command.run(parsed)
    if parsed.command == "export":
        return export_command.run(parsed)
    if parsed.command == "completion":
        return completion.run(_parser(), parsed.shell)
    if parsed.command in ("inspect", "compare"):
        return inspect_command.run(parsed)
    return _doctor()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paddle_fluid_boost", description="Makes PaddlePaddle dygraph code fast."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run an unmodified script with the plugin installed",
        usage="python -m paddle_fluid_boost run [--auto] (SCRIPT | -m MODULE) [ARGUMENT ...]",
    )
    run.add_argument("--auto", action="store_true", help="watch every Layer, decorated or not")
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    run.add_argument("target", metavar="SCRIPT", help="what to run, with the arguments after it")
    export_command.add_parser(commands)
    cache_command.add_parser(commands)
    inspect_command.add_parsers(commands)
    completion.add_parser(commands)
    commands.add_parser("doctor", help="show the environment, the engines and the options")
    return parser


def _split_run(given: list[str]) -> tuple[list[str], list[str]]:
    """Splits the arguments of ``run`` into ours, target included, and the target's own argv.

    argparse cannot: it would take ``--auto`` or ``-h`` out of the script's own arguments.
    """
    if not given or given[0] != "run":
        return given, []
    at = next((i for i, word in enumerate(given[1:], 1) if not word.startswith("-")), len(given))
    return given[: at + 1], given[at:]


# -- run ------------------------------------------------------------------------------------------


def _run(argv: list[str], *, as_module: bool, auto: bool) -> int:
    """Runs ``argv[0]`` as ``__main__``; 1 when it raised, else 0 (SystemExit passes through)."""
    import paddle_fluid_boost

    target = argv[0]
    if not as_module and not os.path.exists(target):
        print(f"paddle_fluid_boost run: no such file: {target}", file=sys.stderr)
        return 2
    paddle_fluid_boost.install(auto=auto)
    sys.argv = argv
    main_module = _fresh_main()
    try:
        # What the interpreter itself calls for "-m", a folder and a zip file: runpy's public
        # functions take their module away again at its end, but threads, atexit handlers and
        # multiprocessing look into sys.modules["__main__"] after that.  (Checked on 3.9 - 3.13.)
        if as_module:
            _first_on_path(os.getcwd())
            runpy._run_module_as_main(target, alter_argv=True)  # type: ignore[attr-defined]
        elif os.path.isdir(target) or zipfile.is_zipfile(target):
            sys.path[0] = os.path.abspath(target)
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        else:
            _first_on_path(os.path.dirname(os.path.realpath(target)))
            _run_file(target, main_module)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        # As the interpreter reports it, without the lines of this file and of runpy above it.
        error.__traceback__ = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _fresh_main() -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module


def _first_on_path(folder: str) -> None:
    """Puts ``folder`` where the interpreter put ours, unless it was told (-P) to put none."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _run_file(path: str, main_module: types.ModuleType) -> None:
    """Executes the source file ``path`` in ``main_module``."""
    full_path = os.path.join(os.getcwd(), path)
    main_module.__dict__.update(
        __file__=full_path,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", full_path),
    )
    with io.open_code(full_path) as file:
        code = compile(file.read(), full_path, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and (
        trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__)
        or trace.tb_frame.f_code.co_filename == "<frozen runpy>"
    ):
        trace = trace.tb_next
    return trace


# -- doctor ---------------------------------------------------------------------------------------


def _doctor() -> int:
    print("Environment")
    print(f"  python            {platform.python_version()} on {platform.platform()}")
    print(
        f"  OMP_NUM_THREADS   {os.environ['OMP_NUM_THREADS']} (Paddle sets 1 where it is not set)"
    )
    for package in _PACKAGES:
        print(f"  {package:17} {version(package) or 'not installed'}")
    print("\nMachine")
    machine = ask_machine(child_seconds=_PATIENCE)
    for what, words in describe_machine(machine):
        print(f"  {what:17} {words}")
    print(f"  {'library':17} {in_words()}")
    for what, words in accelerators_in_words(machine):
        print(f"  {'library: ' + what:17} {words}")
    print("\nEngines")
    usable = 0
    names = [name.strip() for name in options.engines.split(",") if name.strip()]
    for name in dict.fromkeys([*names, *_HOW_TO_GET]):
        fault = _engine_fault(name)
        usable += fault is None
        print(f"  {name:17} {'available' if fault is None else f'missing: {fault}'}")
        if fault is not None and name in _HOW_TO_GET and "no engine of that name" not in fault:
            print(f"  {'':17} to get it: {_HOW_TO_GET[name]}")
    print("\nMemory")
    for what, fault in _memory_faults().items():
        print(f"  {what:17} {'available' if fault is None else f'missing: {fault}'}")
    print("\nExport targets (python -m paddle_fluid_boost export --to ...)")
    for target in TARGETS:
        missing = target.missing()
        state = f"missing: {', '.join(missing)}" if missing else "available"
        print(f"  {target.name:17} {state}")
        if missing:
            print(f"  {'':17} to get it: {target.how}")
    print("\nOptions (pfb.configure(name=value), or PFB_NAME in the environment)")
    for name, value, default, help_text in describe():
        changed = "" if value == default else f"  [default {default!r}]"
        print(f"  {name:24} {value!r:12}{changed} {help_text}")
    return 0 if usable else 1


def _memory_faults() -> dict[str, str | None]:
    """What the block pool can do here, each with the reason where it cannot."""
    from .memory import library, paddle_tensors

    return {"block pool": library.missing(), "option pool": paddle_tensors.try_out()}


def _engine_fault(name: str) -> str | None:
    """Why engine ``name`` cannot be used here, or None when it can."""
    from .engines.registry import make_engine

    try:
        return make_engine(name).unavailable()
    except KeyError:
        return "this version has no engine of that name"
    except ImportError as error:
        return str(error)
