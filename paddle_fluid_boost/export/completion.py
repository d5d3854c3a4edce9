"""``completion SHELL``: the script that makes a shell complete our command line, by shtab."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .messages import say

SHELLS = ("bash", "zsh", "tcsh")
_HELP = """\
Prints the script that completes the command paddle-fluid-boost in a shell.

  bash  paddle-fluid-boost completion bash > ~/.local/share/bash-completion/completions/paddle-fluid-boost
  zsh   paddle-fluid-boost completion zsh > a folder of $fpath, as _paddle-fluid-boost
  tcsh  paddle-fluid-boost completion tcsh > /etc/profile.d/paddle-fluid-boost.completion.csh

Needs shtab: pip install 'paddle-fluid-boost[completion]'
"""  # noqa: E501 - to be copied as it is
#: Arguments whose values are files.
_FILES = ("model", "a", "b", "weights", "target")
_FOLDERS = ("out", "samples", "extract")


def add_parser(commands: Any) -> None:
    """Adds ``completion`` to the subparsers of the command line."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)


def run(parser: argparse.ArgumentParser, shell: str) -> int:
    """Prints the script for ``shell`` of the whole command line ``parser``."""
    try:
        import shtab
    except ImportError:
        print(f"{say('error')}: {say('completion.missing')}", file=sys.stderr)
        return 1
    _mark_files(parser, shtab)
    parser.prog = "paddle-fluid-boost"
    print(shtab.complete(parser, shell))
    return 0


def _mark_files(parser: argparse.ArgumentParser, shtab: Any) -> None:
    """Says which arguments are files and folders, of ``parser`` and its subparsers."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_files(command, shtab)
        elif action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
