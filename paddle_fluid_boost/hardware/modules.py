"""Whether a module could be imported, and whether another Python can be started, to ask it."""

from __future__ import annotations

import importlib.util
import os
import sys


def installed(name: str) -> bool:
    """Whether ``name`` is there to be imported; it is not, but for the packages around it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # its package is missing, or somebody put a stub in place
        return False


def python() -> str | None:
    """The interpreter's own program; None in a program that embeds Python: starting that again
    would start the user's application."""
    name = os.path.basename(sys.executable or "")
    return sys.executable if name.startswith("python") else None
