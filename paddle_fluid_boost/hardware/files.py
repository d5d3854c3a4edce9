"""Reading the small files of /proc and /sys, any of which may be missing or hold anything."""

from __future__ import annotations

from pathlib import Path


def text(path: Path) -> str:
    """The stripped text of a file; "" where it is missing or not ours to read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # also what a sensor that is asleep answers
        return ""


def number(path: Path) -> int | None:
    """The number in a file, None where there is none."""
    try:
        return int(text(path))
    except ValueError:
        return None


def numbered(folder: Path, prefix: str) -> list[Path]:
    """Sub-folders ``<prefix><number>`` by their number; none where the folder is missing."""
    try:
        names = [path for path in folder.iterdir() if path.name.startswith(prefix)]
    except OSError:
        return []
    found = [path for path in names if path.name[len(prefix) :].isdigit()]
    return sorted(found, key=lambda path: int(path.name[len(prefix) :]))
