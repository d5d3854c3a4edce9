"""The archive of a bundle: a plain zip with a manifest that names every file, its size and hash.

Files are stored uncompressed (but for JSON), so that their size is no surprise, without the weights
that an earlier file holds too (``sharing.py``), and are read into memory: nothing is ever written
under a name that comes from the archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from typing import IO, Any, BinaryIO

from ..cache.folders import digest_of_file
from ..errors import BundleError
from .output import atomic_folder
from .sharing import assembled, checked_ranges, gaps, shared_ranges

FORMAT = "paddle_fluid_boost.bundle"
VERSION = 3
#: In version 2 nothing was shared.
_READABLE = (2, 3)
#: What is put together from shared parts is no larger than so many archives.
_MOST_TIMES = 8
MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)?\.[a-z0-9]+\Z")
#: JSON is the only compressed content; all of it must not grow to more than so many bytes.
_MOST_JSON = 256 << 20
_MOST_ENTRIES = 64
#: What precedes the content of an entry: a mark, fields, the lengths of the name and of the rest.
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_STAMP = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1 << 20

#: The models in a bundle -> what they are called when they are unpacked.
_UNPACKED = {
    "paddle/model.json": "model.json",
    "paddle/model.pdiparams": "model.pdiparams",
    "onnx/model.onnx": "model.onnx",
}


def write_bundle(
    path: str, manifest: Mapping[str, Any], files: Mapping[str, str], weights: Iterable[bytes] = ()
) -> None:
    """Writes an archive.

    Args:
        manifest: what ``read_bundle`` gives back, beside ``format``, ``version`` and ``files``.
        files: name in the archive -> path of the content.
        weights: contents that several files may hold, and that are stored once then.
    """
    shared = shared_ranges(files, weights)
    listed: dict[str, dict[str, Any]] = {
        name: {"size": os.path.getsize(source), "sha256": digest_of_file(source)}
        for name, source in files.items()
    }
    for name, ranges in shared.items():
        listed[name]["shared"] = ranges
    whole = {"format": FORMAT, "version": VERSION, **manifest, "files": listed}
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        _put(archive, MANIFEST, json.dumps(whole, indent=1, ensure_ascii=False).encode())
        for name, source in files.items():
            with open(source, "rb") as file:
                if name.endswith(".json"):
                    _put(archive, name, file.read())
                    continue
                info = zipfile.ZipInfo(name, _STAMP)
                with archive.open(info, "w", force_zip64=True) as target:
                    for start, end in gaps(listed[name]["size"], shared.get(name, ())):
                        _copy(file, target, start, end)


def _copy(source: BinaryIO, target: IO[bytes], start: int, end: int) -> None:
    source.seek(start)
    while start < end and (chunk := source.read(min(_CHUNK, end - start))):
        target.write(chunk)
        start += len(chunk)


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _STAMP)
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)


def read_bundle(path: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the content of every file, all checked.

    Raises:
        BundleError: the archive is missing, truncated, changed, of another kind or version, or
            holds anything that its manifest does not name.
    """
    if not os.path.isfile(path):
        raise BundleError(f"no such file: {path}")
    try:
        with FileIO(path) as file, zipfile.ZipFile(file) as archive:
            return _read(archive, file)
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from None
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise BundleError(f"{path} is damaged or no bundle: {error}") from error
    except (RuntimeError, zipfile.LargeZipFile) as error:  # encrypted entries
        raise BundleError(f"{path} cannot be read: {error}") from error
    except Exception as error:
        if type(error).__module__ == "zlib":
            raise BundleError(f"{path} is damaged: {error}") from error
        raise


def unpack(path: str, folder: str) -> list[str]:
    """Writes the models in the bundle at ``path`` into the new ``folder``; returns their names.

    The names are ours, not the archive's; the folder appears when all is written.

    Raises:
        BundleError: the bundle is damaged.  ExportError: there is something at ``folder``.
    """
    _, contents = read_bundle(path)
    found = [(name, new) for name, new in _UNPACKED.items() if name in contents]
    with atomic_folder(folder) as made:
        for name, new in found:
            with open(os.path.join(made, new), "wb") as file:
                file.write(contents[name])
    return [new for _, new in found]


def _read(archive: zipfile.ZipFile, file: FileIO) -> tuple[dict[str, Any], dict[str, bytes]]:
    length = os.fstat(file.fileno()).st_size
    entries = _entries(archive, length)
    if MANIFEST not in entries:
        raise BundleError("it has no manifest.json: not a bundle of paddle_fluid_boost")
    manifest = _manifest(archive.read(MANIFEST))
    listed = manifest["files"]
    foreign = sorted(entries.keys() - listed.keys() - {MANIFEST})
    missing = sorted(listed.keys() - entries.keys())
    if foreign or missing:
        raise BundleError(
            f"it holds files that its manifest does not name: {foreign}"
            if foreign
            else f"files are missing: {missing}"
        )
    if sum(one["size"] for one in listed.values()) > _MOST_TIMES * length + _MOST_JSON:
        raise BundleError("its files claim to be far larger than the archive")
    contents: dict[str, bytes] = {}
    with ThreadPoolExecutor() as workers:  # hashing frees the interpreter
        hashes = {}
        for name, expected in listed.items():
            ranges = checked_ranges(expected.get("shared", ()), expected["size"])
            stored = expected["size"] - sum(count for _, count, _, _ in ranges)
            if entries[name].file_size != stored:
                raise BundleError(f"'{name}' has {entries[name].file_size} bytes, not as listed")
            contents[name] = _content(archive, file, entries[name])
            if ranges:
                contents[name] = assembled(contents[name], expected["size"], ranges, contents)
            hashes[name] = workers.submit(hashlib.sha256, contents[name])
        for name, expected in listed.items():
            if hashes[name].result().hexdigest() != expected["sha256"]:
                raise BundleError(f"'{name}' was changed: its hash is not the one in the manifest")
    return manifest, contents


def _content(archive: zipfile.ZipFile, file: FileIO, info: zipfile.ZipInfo) -> bytes:
    """What an entry holds; of one stored as it is without zip's own check sum, a hash follows."""
    if info.compress_type != zipfile.ZIP_STORED:
        return archive.read(info)
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) != _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
        raise BundleError(f"'{info.filename}' is not where the archive says")
    file.seek(sum(_LOCAL_HEADER.unpack(header)[1:]), os.SEEK_CUR)
    parts, left = [], info.file_size
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    if left:
        raise BundleError(f"'{info.filename}' is cut off")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _entries(archive: zipfile.ZipFile, length: int) -> dict[str, zipfile.ZipInfo]:
    """The entries by name, none of which can surprise: together no larger than the archive."""
    entries: dict[str, zipfile.ZipInfo] = {}
    stored = unpacked = 0
    for info in archive.infolist():
        _check_entry(info)
        if info.filename in entries:
            raise BundleError(f"'{info.filename}' is there twice")
        entries[info.filename] = info
        if info.compress_type == zipfile.ZIP_STORED:
            stored += info.file_size
        else:
            unpacked += info.file_size
    if len(entries) > _MOST_ENTRIES:
        raise BundleError(f"it has {len(entries)} entries, no bundle has more than {_MOST_ENTRIES}")
    if stored > length:
        raise BundleError("its entries claim to be larger than the archive")
    if unpacked > _MOST_JSON:
        raise BundleError(f"its JSON would unpack to {unpacked} bytes")
    return entries


def _check_entry(info: zipfile.ZipInfo) -> None:
    name = info.filename
    if not _NAME.match(name):
        raise BundleError(f"an entry has a name that no bundle uses: {name!r}")
    kind = info.external_attr >> 28
    if kind not in (0, 0o10):  # 8: a regular file; links and devices have other numbers
        raise BundleError(f"'{name}' is not a regular file")
    if info.flag_bits & 1:
        raise BundleError(f"'{name}' is encrypted")
    if info.compress_type == zipfile.ZIP_STORED:
        if info.file_size != info.compress_size:
            raise BundleError(f"'{name}' claims another size than it has")
    elif info.compress_type != zipfile.ZIP_DEFLATED or not name.endswith(".json"):
        raise BundleError(f"'{name}' is compressed in a way that no bundle uses")


def _manifest(content: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"manifest.json is no JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError("manifest.json is not one of paddle_fluid_boost")
    if manifest.get("version") not in _READABLE:
        raise BundleError(
            f"it is of version {manifest.get('version')!r}, this package reads version {VERSION}; "
            "export it again, or install the package that made it"
        )
    files = manifest.get("files")
    well_formed = isinstance(files, dict) and all(
        isinstance(one, dict) and _is_size(one.get("size")) and "sha256" in one
        for one in files.values()
    )
    if not well_formed:
        raise BundleError("manifest.json does not list its files")
    return manifest


def _is_size(size: Any) -> bool:
    return type(size) is int and size >= 0
