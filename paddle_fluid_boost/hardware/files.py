"""Reading the small files of /proc and /sys, any of which may be missing or hold anything."""

from __future__ import annotations

from pathlib import Path


def text(path: Path) -> str:
    """The stripped text of a file; "" where it is missing or not ours to read."""
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):  # a sensor that is asleep; no path at all
        return ""


def number(path: Path) -> int | None:
    """The number in a file, None where there is none."""
    content = text(path)
    try:
        return int(content) if len(content) < 20 else None
    except ValueError:
        return None


def is_number(text: str) -> bool:
    """Whether ``text`` is made of the digits 0 to 9, and of no more than any number has here."""
    return text.isascii() and text.isdigit() and len(text) < 20


def numbered(folder: Path, prefix: str) -> list[Path]:
    """Sub-folders ``<prefix><number>`` by their number; none where the folder is missing."""
    try:
        names = [path for path in folder.iterdir() if path.name.startswith(prefix)]
    except OSError:
        return []
    found = [path for path in names if is_number(path.name[len(prefix) :])]
    return sorted(found, key=lambda path: int(path.name[len(prefix) :]))
