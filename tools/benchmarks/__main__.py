"""``tools/bench``: one sub-command for each question.  Results go to ``out/bench``."""

from __future__ import annotations

import argparse
import sys

import coverage
import engines
import memory
import overhead
import stalls
import tuner
import warm
import zoo

_COMMANDS = {
    "coverage": coverage,
    "engines": engines,
    "memory": memory,
    "overhead": overhead,
    "stalls": stalls,
    "tuner": tuner,
    "warm": warm,
    "zoo": zoo,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in _COMMANDS.items():
        summary = module.__doc__.split("\n", 1)[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=module.__doc__))
    options = parser.parse_args()
    return _COMMANDS[options.command].run(options)


if __name__ == "__main__":
    sys.exit(main())
