"""The command ``cache``: what is kept on disk, and to be rid of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import Any

from . import folders, store

_EXAMPLES = """examples:
  python -m paddle_fluid_boost cache list
  python -m paddle_fluid_boost cache list --json
  python -m paddle_fluid_boost cache clear
"""


def add_parser(commands: Any) -> None:
    """Adds ``cache`` to the command line."""
    parser = commands.add_parser(
        "cache",
        help="list or clear what is kept on disk for the next process",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("list", "clear"))
    parser.add_argument("--json", action="store_true", help="for programs to read")


def run(parsed: argparse.Namespace) -> int:
    """Returns the exit status: 1 where entries could not be deleted, else 0."""
    folder = store.path()
    if folder is None:
        print("the cache is off (option cache), or there is no home folder", file=sys.stderr)
        return 0
    if parsed.action == "clear":
        return _clear(folder, as_json=parsed.json)
    found = store.entries()
    if parsed.json:
        print(json.dumps({"path": str(folder), "entries": [asdict(one) for one in found]}))
        return 0
    for entry in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(
            f"{entry.kind:7} {entry.key[:12]} {entry.nbytes:7} bytes, used {used}  {_what(entry)}"
        )
    total = sum(entry.nbytes for entry in found)
    print(f"{len(found)} entries, {total} bytes in {folder}")
    return 0


def _clear(folder: Any, *, as_json: bool) -> int:
    cleared, left = folders.clear(), len(store.entries())
    if as_json:
        print(json.dumps({"path": str(folder), "cleared": cleared, "left": left}))
    else:
        print(f"{cleared} entries deleted from {folder}")
        if left:
            print(f"{left} entries cannot be deleted", file=sys.stderr)
    return 1 if left else 0


def _what(entry: store.Entry) -> str:
    """The gist of an entry in one line."""
    about = entry.about
    if entry.kind == "choice" and "best" in about:
        speed = f"{about.get('compiled_ms')} ms against {about.get('eager_ms')} eager"
        return f"{', '.join(about.get('inputs', []))}: {about['best']}, {speed}"
    if entry.kind == "probe" and "inputs" in about:
        return f"{', '.join(about['inputs'])}: {about.get('wrong') or 'does no harm'}"
    if entry.kind == "tiles" and "convolutions" in about:
        return f"{about['convolutions']} convolutions"
    return ""
