"""``pfb.cache``: what a process has learned about this machine, kept on disk for the next one.

``docs/cache.md`` says what is kept, what each entry depends on, and what it is good for.
"""

from __future__ import annotations

from .folders import clear
from .store import Entry, entries, path

__all__ = ["Entry", "clear", "entries", "path"]
