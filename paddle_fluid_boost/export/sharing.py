"""Weights that several files of a bundle hold are stored once: others refer to where they are.

The Paddle model, the ONNX model and the native engine's constants are mostly the same numbers.
A file is stored without what an earlier one holds too, and is put together again when it is read;
its size and hash are those of the whole.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: (where it belongs, bytes, the file that holds it, where it is there).
Range = tuple[int, int, str, int]
#: Smaller ones are not worth an entry.
SMALLEST = 4096


def shared_ranges(files: Mapping[str, str], weights: Iterable[bytes]) -> dict[str, list[Range]]:
    """What each file shares with an earlier one, ascending and without overlaps.

    Args:
        files: name -> path; JSON is left out.
        weights: contents to look for.
    """
    names = [n for n, p in files.items() if not n.endswith(".json") and os.path.getsize(p)]
    found: dict[str, list[Range]] = {name: [] for name in names}
    mapped: dict[str, mmap.mmap] = {}
    try:
        for name in names:
            with open(files[name], "rb") as file:
                mapped[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for weight in weights:
            if len(weight) < SMALLEST:
                continue
            home: tuple[str, int] | None = None
            for name in names:
                at = mapped[name].find(weight)
                if at < 0:
                    continue
                if home is None:
                    home = name, at
                else:
                    found[name].append((at, len(weight), *home))
    finally:
        for one in mapped.values():
            one.close()
    return {name: kept for name, ranges in found.items() if (kept := _apart(ranges))}


def _apart(ranges: Sequence[Range]) -> list[Range]:
    kept: list[Range] = []
    for one in sorted(ranges, key=lambda r: (r[0], -r[1])):
        if not kept or one[0] >= kept[-1][0] + kept[-1][1]:
            kept.append(one)
    return kept


def gaps(size: int, ranges: Sequence[Range]) -> list[tuple[int, int]]:
    """(start, end) of what a file of ``size`` bytes holds beside ``ranges``, in order."""
    starts = [0, *(at + count for at, count, _, _ in ranges)]
    return list(zip(starts, [*(at for at, _, _, _ in ranges), size]))


def checked_ranges(stored: Any, size: int) -> list[Range]:
    """``stored`` (from a manifest) as ranges of a file of ``size`` bytes; ValueError otherwise."""
    ranges: list[Range] = []
    end = 0
    if not isinstance(stored, (list, tuple)) or not all(
        isinstance(one, (list, tuple)) and len(one) == 4 for one in stored
    ):
        raise ValueError(f"not a list of shared ranges: {stored!r}")
    for at, count, name, source in stored:
        numbers = all(type(n) is int and n >= 0 for n in (at, count, source))
        if not numbers or not isinstance(name, str) or at < end or at + count > size:
            raise ValueError(f"not a shared range: {[at, count, name, source]!r}")
        ranges.append((at, count, name, source))
        end = at + count
    return ranges


def assembled(
    stored: bytes, size: int, ranges: Sequence[Range], earlier: Mapping[str, bytes]
) -> bytes:
    """The whole of a file from what is stored of it and from earlier files.

    Raises:
        ValueError: a range points to what is not there.
    """
    whole = bytearray(size)
    own = memoryview(stored)
    for start, end in gaps(size, ranges):
        whole[start:end] = own[: end - start]
        own = own[end - start :]
    for at, count, name, source in ranges:
        part = memoryview(earlier.get(name, b""))[source : source + count]
        if len(part) != count:
            raise ValueError(f"a shared range points outside of '{name}'")
        whole[at : at + count] = part
    return bytes(whole)
