"""Breaks every graph pass in several ways and says which breakages no quick test notices.

    python tools/mutate_passes.py COPY [--most N] [PASS ...]

``COPY`` is a scratch copy of the checkout, whose files are changed and put back.  A mutation drops
one check of a pass, changes a number, turns round the operands of a node, or leaves a pass out of
the pipeline; of each module at most N, spread over it.  Prints one line for each, and those that
survived at the end.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import paddle  # noqa: F401 - once, before all the children
import pytest

#: (what was changed, the changed source)
Mutation = tuple[str, str]


def mutations(path: Path) -> Iterator[Mutation]:
    """The ways to break the module at ``path``, one at a time."""
    source = path.read_text()
    changes = [change for node in ast.walk(ast.parse(source)) for change in _changes(source, node)]
    for what, node, text in sorted(changes, key=lambda c: (c[1].lineno, c[1].col_offset)):
        begin, end = _span(source, node)
        yield f"line {node.lineno}: {what}", source[:begin] + text + source[end:]


def _changes(source: str, node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Return, ast.Continue)):
        reason = ast.get_source_segment(source, node.body[-1]) or ""
        yield f"drops the check before {' '.join(reason.split())[:60]}", node.test, "False"
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load):
        parts = [ast.get_source_segment(source, part) or "" for part in node.elts]
        if len(parts) == 2 and all(isinstance(e, (ast.Name, ast.Attribute)) for e in node.elts):
            yield f"turns round {parts}", node, "[" + ", ".join(reversed(parts)) + "]"
    if (
        isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and node.value not in (0, 1)
    ):
        yield f"changes {node.value}", node, repr(node.value + 1)


def _span(source: str, node: ast.expr) -> tuple[int, int]:
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None and node.end_col_offset is not None
    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


def left_out(pipeline: Path) -> Iterator[Mutation]:
    """The pipeline without one of its passes (all of its places at once)."""
    source = pipeline.read_text()
    entries = {
        line for line in source.splitlines() if line.startswith("    ") and line.endswith("(),")
    }
    for entry in sorted(entries):
        yield f"without {entry.strip()}", source.replace(entry + "\n", "")


def caught(copy: Path) -> bool:
    """Whether the quick tests of the passes fail, in a child."""
    child = os.fork()
    if not child:
        sys.path.insert(0, str(copy))
        os.chdir(copy)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        arguments = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not long", "tests/passes"]
        os._exit(0 if pytest.main(arguments) == 0 else 1)
    return os.waitpid(child, 0)[1] != 0


def spread(made: list[Mutation], most: int) -> list[Mutation]:
    """At most ``most`` of them, evenly."""
    return [made[i * len(made) // most] for i in range(most)] if len(made) > most else made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("copy", type=Path)
    parser.add_argument("passes", nargs="*")
    parser.add_argument("--most", type=int, default=1000)
    options = parser.parse_args()
    copy = options.copy.resolve()
    passes = copy / "paddle_fluid_boost" / "passes"
    sys.dont_write_bytecode = True
    if caught(copy):
        sys.exit("the tests fail already, with nothing broken")
    names = options.passes or [path.stem for path in sorted(passes.glob("*.py"))]
    survivors = []
    for name in names:
        path = passes / f"{name}.py"
        made = left_out(path) if name == "pipeline" else mutations(path)
        original = path.read_text()
        for what, source in spread(list(made), options.most):
            path.write_text(source)
            verdict = "caught" if caught(copy) else "SURVIVED"
            path.write_text(original)
            print(f"{name}: {what}: {verdict}", flush=True)
            if verdict != "caught":
                survivors.append(f"{name}: {what}")
    print(f"\n{len(survivors)} survived", *survivors, sep="\n  ")


if __name__ == "__main__":
    main()
