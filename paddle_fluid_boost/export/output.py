"""The folder an export leaves: whole, or not at all.

Everything is written into a hidden folder beside the final one, which is renamed at the end.  A
killed export leaves only that hidden folder; the next export to the same place removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

from ..errors import ExportError

#: The report in every export's folder; a folder without it is not replaced.
REPORT = "export.json"


@contextlib.contextmanager
def atomic_folder(path: str, *, replace: bool = False) -> Iterator[str]:
    """Yields an empty folder that becomes ``path`` when the block ends without an exception.

    Args:
        replace: an earlier export at ``path`` may be replaced.

    Raises:
        ExportError: there is something at ``path`` that must not be replaced, or no folder can be
            made there.
    """
    path = os.path.abspath(path)
    parent, name = os.path.split(path)
    _check_free(path, replace)
    try:
        os.makedirs(parent, exist_ok=True)
        _remove_left_behind(parent, name)
        work = tempfile.mkdtemp(prefix=f".{name}.pfb-{os.getpid()}-", dir=parent)
    except OSError as error:
        raise ExportError(f"--out: cannot write to {parent}: {error.strerror}") from error
    try:
        os.chmod(work, 0o777 & ~_umask())
        yield work
        _put_in_place(work, path, replace)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check_free(path: str, replace: bool) -> None:
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


def _put_in_place(work: str, path: str, replace: bool) -> None:
    _check_free(path, replace)  # it may have changed meanwhile
    if not os.path.isdir(path) or not os.listdir(path):
        os.rename(work, path)
        return
    parent, name = os.path.split(path)
    old = tempfile.mkdtemp(prefix=f".{name}.pfb-{os.getpid()}-", dir=parent)
    os.rename(path, os.path.join(old, "old"))
    try:
        os.rename(work, path)
    except OSError:
        os.rename(os.path.join(old, "old"), path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _remove_left_behind(parent: str, name: str) -> None:
    """Removes what exports to this place left that were killed."""
    pattern = re.compile(re.escape(f".{name}.pfb-") + r"(\d+)-\w+\Z")
    for entry in os.listdir(parent):
        found = pattern.match(entry)
        if found and not _alive(int(found[1])):
            shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
