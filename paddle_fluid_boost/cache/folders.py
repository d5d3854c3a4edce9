"""Results of many or large files: a folder each, which an entry of the store names.

A folder is filled under a name of its own and never renamed, as what lies in it may hold its own
path.  It counts from the moment its entry is in place; the entry has the digest of every file, so
that what a killed writer, a full disk or a stranger left behind is not used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..options import options
from . import store

log = logging.getLogger("paddle_fluid_boost.cache")

_NAME = re.compile(r"[a-z]+\.[A-Za-z0-9_]+\.files\Z")
#: A folder without an entry that nobody has changed for so many seconds was left by a killed
#: process; making one may take many minutes.
_ABANDONED = 6 * 3600.0
_CHUNK = 4 << 20


def create(kind: str) -> Path:
    """A new folder to fill, for this user alone.

    Raises:
        OSError: the cache is off, or its folder cannot be written to.
    """
    where = store.path()
    if where is None:
        raise OSError("the on-disk cache is off (option cache)")
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(".files", f"{kind}.", where))


def keep(kind: str, key: str, folder: Path, about: dict[str, Any]) -> bool:
    """Makes ``folder`` what :func:`find` returns for ``key``; False when that cannot be done."""
    try:
        files = {str(path.relative_to(folder)): digest_of_file(path) for path in _files(folder)}
        size = sum(path.stat().st_size for path in _files(folder))
    except OSError as error:
        log.info("cannot be kept: %s", error)
        return False
    value = {"folder": folder.name, "files": files, "nbytes": size}
    done = store.write(kind, key, value, {**about, "nbytes": size})
    _clean(folder.name)
    return done


def find(kind: str, key: str) -> Path | None:
    """The folder kept for ``key``, whole and ours, or None; one that is damaged is deleted."""
    value = store.read(kind, key)
    where = store.path()
    if value is None or where is None:
        return None
    name, files = value.get("folder"), value.get("files")
    if not isinstance(name, str) or not _NAME.match(name) or not isinstance(files, dict):
        return None
    folder = where / name
    if _is_whole(folder, files):
        return folder
    log.warning("deleted, as it is damaged: %s", folder)
    discard(folder)
    return None


def discard(folder: Path) -> None:
    """Deletes a folder of :func:`create` with all in it; what cannot be deleted stays."""
    shutil.rmtree(folder, ignore_errors=True)


def clear() -> int:
    """Deletes every entry and every folder; returns the number of entries."""
    cleared = store.clear()
    for folder in _folders():
        discard(folder)
    return cleared


def _is_whole(folder: Path, files: dict[str, Any]) -> bool:
    try:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
            return False  # whoever may write here could change a file after we have looked
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            return False
        there = {str(path.relative_to(folder)): path for path in _files(folder)}
        return there.keys() == files.keys() and all(
            digest_of_file(path) == files[name] for name, path in there.items()
        )
    except OSError:
        return False


def _files(folder: Path) -> list[Path]:
    """All files below ``folder``; OSError for a link, which would lead elsewhere."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise OSError(f"a link: {path}")
        if path.is_file():
            found.append(path)
    return found


def digest_of_file(path: str | Path) -> str:
    """SHA-256 of what a file holds, in hexadecimal; read piece by piece."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def _folders() -> Iterator[Path]:
    where = store.path()
    try:
        names = os.listdir(where) if where is not None else []
    except OSError:  # there is none yet
        return
    for name in names:
        if where is not None and _NAME.match(name):
            yield where / name


def _clean(newest: str) -> None:
    """Deletes what no entry names, and beyond ``options.cache_folders_mb`` what was not used for
    longest; never ``newest``."""
    used: dict[str, tuple[float, int]] = {}
    for entry in store.entries():
        size = entry.about.get("nbytes")
        if not isinstance(size, int):
            continue  # it names no folder
        value = store.read(entry.kind, entry.key) or {}
        if isinstance(value.get("folder"), str):
            used[value["folder"]] = (entry.used, size)
    for folder in _folders():
        if folder.name not in used and folder.name != newest and _is_old(folder):
            discard(folder)
    total = sum(size for _, size in used.values())
    for name, (_, size) in sorted(used.items(), key=lambda item: item[1]):
        if total <= options.cache_folders_mb << 20 or name == newest:
            continue
        discard(Path(store.path() or "", name))
        total -= size


def _is_old(folder: Path) -> bool:
    try:
        return time.time() - folder.stat().st_mtime > _ABANDONED
    except OSError:  # another process was quicker
        return False
