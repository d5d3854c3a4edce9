"""Small JSON documents in one folder, shared by processes that know nothing of each other.

A reader takes no lock: an entry is written to a file of its own and renamed into place, so a name
holds a whole entry or none, whenever a writer is killed.  The first line of a file is the digest of
the rest: what a crash of the machine, a full disk or a stranger left behind is not read but
deleted, with a log record.  Nothing here raises: without a usable folder nothing is remembered.

Nothing read here is ever executed, and whoever uses a value still checks what it means.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..options import options

log = logging.getLogger("paddle_fluid_boost.cache")

#: Raised with every change of how an entry is written; others are foreign then.
_FORMAT = 1
_NAME = re.compile(r"([a-z]+)-([0-9a-f]{32})\.json\Z")
_TEMPORARY = re.compile(r"\.pfb-[A-Za-z0-9_]+\.tmp\Z")
#: No entry is larger (bytes); a larger file is not ours.
_LARGEST = 1 << 20
#: What a file takes on the disk is counted in blocks of so many bytes.
_BLOCK = 4096
#: A temporary file as old as this (seconds) belongs to a process that was killed.
_ABANDONED = 3600.0
#: The time of last use is noted once in so many seconds, which saves writes and is exact enough.
_TOUCH = 60.0
#: Cleaning goes on to this share of the limit, so that not every write has to clean.
_CLEAN_TO = 0.75


@dataclass(frozen=True)
class Entry:
    """One entry on the disk.

    kind: ``"choice"``, ``"probe"``, ``"tiles"``, ``"tuned"``, ``"tensorrt"``.
    key: 32 hexadecimal digits.
    nbytes: of the file.  used: when it was last used, seconds since 1970.
    about: what it was made from and for, for people; empty when the file cannot be read.
    """

    kind: str
    key: str
    nbytes: int
    used: float
    about: dict[str, Any]


def path() -> Path | None:
    """The folder of the cache, which need not exist yet; None where it is switched off or there is
    no home to put it in."""
    if not options.cache:
        return None
    if options.cache_dir:
        return Path(options.cache_dir).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # so the XDG specification wants it
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".cache")
    return Path(base) / "paddle_fluid_boost"


def read(kind: str, key: str) -> dict[str, Any] | None:
    """The value stored for ``key``, or None."""
    folder = path()
    if folder is None:
        return None
    file = folder / f"{kind}-{key}.json"
    document = _load(file)
    if document is None:
        return None
    with contextlib.suppress(OSError):  # a folder that is read only serves as well
        if time.time() - file.stat().st_mtime > _TOUCH:
            os.utime(file)
    value: dict[str, Any] = document["value"]
    return value


def write(kind: str, key: str, value: dict[str, Any], about: dict[str, Any]) -> bool:
    """Stores ``value``; False, and a log record, when that cannot be done."""
    folder = path()
    if folder is None:
        return False
    document = {"format": _FORMAT, "kind": kind, "key": key, "about": about, "value": value}
    body = json.dumps(document, sort_keys=True).encode()
    if len(body) + 65 > _LARGEST:
        log.info("not kept: %s-%s has %d bytes", kind, key, len(body))
        return False
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(folder / f"{kind}-{key}.json", _digest(body) + b"\n" + body)
        _clean(folder)
    except OSError as error:
        log.info("cannot be written: %s", error)
        return False
    return True


def entries() -> list[Entry]:
    """Every entry, the one used last first; files of others in the folder are not listed."""
    folder = path()
    found = []
    for file, status in _files(folder):
        match = _NAME.match(file.name)
        if match:
            document = _load(file)
            about = document["about"] if document is not None else {}
            found.append(Entry(match[1], match[2], status.st_size, status.st_mtime, about))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def clear() -> int:
    """Deletes every entry and what killed writers left behind; returns the number of entries.

    Files in the folder that are not of this cache stay.
    """
    cleared = 0
    for file, _ in _files(path()):
        if _remove(file) and _NAME.match(file.name):
            cleared += 1
    return cleared


# -- files ----------------------------------------------------------------------------------------


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _load(file: Path) -> dict[str, Any] | None:
    """The document in ``file``; one that is not whole, or not ours, is deleted."""
    try:
        content = _content(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.info("cannot be read: %s", error)
        return None
    document = _parse(content, file.name)
    if document is None:
        log.warning("deleted, as it is damaged or of another version: %s", file)
        _remove(file)
    return document


def _content(file: Path) -> bytes:
    """Not more than one byte too many; OSError when it cannot be read, or is not to be trusted."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(file, os.O_RDONLY | flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or _of_somebody_else(status):
            raise PermissionError(f"not a file of this user: {file}")
        with open(descriptor, "rb", closefd=False) as opened:
            return opened.read(_LARGEST + 1)
    finally:
        os.close(descriptor)


def _of_somebody_else(status: os.stat_result) -> bool:
    """Whoever may write to what we read could make a program choose slow engines."""
    return hasattr(os, "geteuid") and status.st_uid != os.geteuid()


def _parse(content: bytes, name: str) -> dict[str, Any] | None:
    digest, _, body = content.partition(b"\n")
    if len(content) > _LARGEST or digest != _digest(body):
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        return None
    if not all(isinstance(document.get(part), dict) for part in ("value", "about")):
        return None
    return document if f"{document.get('kind')}-{document.get('key')}.json" == name else None


def _replace(file: Path, content: bytes) -> None:
    """Puts ``content`` in place in one step; OSError when it cannot be done."""
    descriptor, temporary = tempfile.mkstemp(".tmp", ".pfb-", file.parent)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
        os.replace(temporary, file)
    except BaseException:
        _remove(Path(temporary))
        raise


def _files(folder: Path | None) -> Iterator[tuple[Path, os.stat_result]]:
    """Our files, temporary ones too."""
    if folder is None:
        return
    try:
        names = os.listdir(folder)
    except OSError:  # there is none yet, or it is not ours to read
        return
    for name in names:
        if _NAME.match(name) or _TEMPORARY.match(name):
            with contextlib.suppress(OSError):  # another process has just deleted it
                yield folder / name, os.lstat(folder / name)


def _clean(folder: Path) -> None:
    """Deletes what was not used for longest where there is too much, and abandoned temporaries."""
    now, found = time.time(), []
    for file, status in _files(folder):
        if _NAME.match(file.name):
            blocks = -(-status.st_size // _BLOCK)
            found.append((status.st_mtime, blocks * _BLOCK, file))
        elif now - status.st_mtime > _ABANDONED:
            _remove(file)
    limit = options.cache_mb << 20
    total = sum(size for _, size, _ in found)
    if total <= limit:
        return
    for _, size, file in sorted(found, key=lambda one: one[:2]):
        if total <= limit * _CLEAN_TO:
            break
        _remove(file)
        total -= size


def _remove(file: Path) -> bool:
    try:
        os.unlink(file)
    except FileNotFoundError:  # another process was quicker
        return False
    except OSError as error:
        log.info("cannot be deleted: %s", error)
        return False
    return True
