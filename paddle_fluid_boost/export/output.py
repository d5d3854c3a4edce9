"""The folder an export leaves: whole, or not at all.

Everything is written into a hidden folder beside the final one, scratch files too; what was made is
renamed at the end, in one step even where an earlier export is replaced.  A killed export leaves
only that hidden folder.  Who works in one holds a lock on it, which ends with the process: the next
export to the same place removes those that nobody holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

from ..errors import ExportError

#: The report in every export's folder; a folder without it is not replaced.
REPORT = "export.json"
_MADE, _SCRATCH, _OLD = "made", "scratch", "old"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: With less space left than this, in bytes, a failure is the disk's.
_FULL = 1 << 20


@contextlib.contextmanager
def atomic_folder(path: str, *, replace: bool = False) -> Iterator[str]:
    """Yields an empty folder that becomes ``path`` when the block ends without an exception.

    Args:
        replace: an earlier export at ``path`` may be replaced.

    Raises:
        ExportError: there is something at ``path`` that must not be replaced, or the block or the
            renaming met an error of the file system.
    """
    path = os.path.realpath(path)
    parent, name = os.path.split(path)
    _check_free(path, replace)
    created = _absent_parents(parent)
    nearest = os.path.dirname(created[-1]) if created else parent
    if not os.path.isdir(nearest):
        raise ExportError(f"--out: {nearest} is not a folder", usage=True)
    done = False
    try:
        os.makedirs(parent, exist_ok=True)
        _remove_left_behind(parent, name)
        with _hidden_folder(parent, name) as hidden:
            made = os.path.join(hidden, _MADE)
            os.mkdir(made)
            yield made
            _put_in_place(made, path, replace)
            done = True
    except OSError as error:
        where = error.filename or path
        raise ExportError(f"--out: cannot write {where}: {error.strerror or error}") from error
    finally:
        for folder in [] if done else created:
            with contextlib.suppress(OSError):  # another export may use it by now
                os.rmdir(folder)


def scratch_folder(made: str) -> str:
    """A folder for what is not kept, beside the one that :func:`atomic_folder` gave."""
    scratch = os.path.join(os.path.dirname(made), _SCRATCH)
    os.makedirs(scratch, exist_ok=True)
    return scratch


def check_space(folder: str) -> None:
    """Raises ExportError where the disk of ``folder`` is full, which explains other failures."""
    if shutil.disk_usage(folder).free < _FULL:
        raise ExportError(f"--out: the disk that holds {folder} is full")


def _check_free(path: str, replace: bool) -> None:
    if os.path.ismount(path):
        raise ExportError(
            f"--out: {path} is a mount point and cannot be replaced; choose a folder in it",
            usage=True,
        )
    if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
        return
    if not os.path.isdir(path) or not os.path.exists(os.path.join(path, REPORT)):
        raise ExportError(
            f"--out: {path} exists and is not an earlier export; choose another place", usage=True
        )
    if not replace:
        raise ExportError(
            f"--out: {path} holds an earlier export; add --force to replace it", usage=True
        )


def _absent_parents(parent: str) -> list[str]:
    """Folders that making ``parent`` makes, the innermost first."""
    absent = []
    while not os.path.lexists(parent):
        absent.append(parent)
        parent = os.path.dirname(parent)
    return absent


@contextlib.contextmanager
def _hidden_folder(parent: str, name: str) -> Iterator[str]:
    hidden, lock = _locked_folder(parent, name)
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        os.close(lock)


def _locked_folder(parent: str, name: str) -> tuple[str, int]:
    while True:
        hidden = tempfile.mkdtemp(prefix=f".{name}.pfb-", dir=parent)
        lock = os.open(hidden, os.O_RDONLY)
        with contextlib.suppress(OSError):  # no locks on this file system: nothing is removed there
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(hidden):
            return hidden, lock
        os.close(lock)  # another export cleaned up before the lock was taken


def _put_in_place(made: str, path: str, replace: bool) -> None:
    _check_free(path, replace)  # it may have changed meanwhile
    if os.path.isdir(path) and os.listdir(path):
        _exchange(made, path)
    else:
        os.rename(made, path)


def _exchange(made: str, path: str) -> None:
    """Swaps two folders at one stroke; in two where the file system cannot."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "renameat2"):
        names = os.fsencode(made), os.fsencode(path)
        if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
    old = os.path.join(os.path.dirname(made), _OLD)
    os.rename(path, old)
    try:
        os.rename(made, path)
    except OSError:
        os.rename(old, path)
        raise


def _remove_left_behind(parent: str, name: str) -> None:
    """Removes what exports to this place left that were killed."""
    pattern = re.compile(re.escape(f".{name}.pfb-") + r"[\w-]+\Z")
    for hidden in (os.path.join(parent, n) for n in os.listdir(parent) if pattern.match(n)):
        with contextlib.suppress(OSError):  # in use, or gone meanwhile
            lock = os.open(hidden, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _restore(os.path.join(hidden, _OLD), os.path.join(parent, name))
                shutil.rmtree(hidden, ignore_errors=True)
            finally:
                os.close(lock)


def _restore(old: str, path: str) -> None:
    """An earlier export that a kill caught between the two strokes goes back to its place."""
    if os.path.isdir(old) and not os.path.lexists(path):
        os.rename(old, path)
