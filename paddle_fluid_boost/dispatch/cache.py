"""The compiled versions of one unit, bounded per unit and for the whole process.

Readers take ``versions`` without a lock: it is replaced as a whole, never changed in place.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable

from ..options import options
from .version import Version

#: Versions of one signature for different Python state (a flag toggled between calls).
VERSIONS_PER_SIGNATURE = 4

_caches: weakref.WeakSet[VersionCache] = weakref.WeakSet()
_lock = threading.Lock()


def _fresh_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


class VersionCache:
    """versions: signature key -> its versions, the newest first.

    evicted: called with a version that had to make room, after it is out.
    """

    def __init__(self, evicted: Callable[[Version], None]) -> None:
        self.versions: dict[Hashable, tuple[Version, ...]] = {}
        self._evicted = evicted
        _caches.add(self)

    def __len__(self) -> int:
        return sum(map(len, self.versions.values()))

    def all(self) -> list[Version]:
        """Every version, in no particular order."""
        return [version for versions in self.versions.values() for version in versions]

    def add(self, version: Version) -> None:
        """Puts a version in use, then evicts those that save least until all bounds hold."""
        with _lock:
            held = self.versions.get(version.key, ())
            self.versions = {**self.versions, version.key: (version, *held)}
        for old in held[VERSIONS_PER_SIGNATURE - 1 :]:
            self._evict(old)
        while len(self) > options.max_versions:
            self._evict(_least_valuable(self.all(), keep=version))
        while _too_many([v for cache in list(_caches) for v in cache.all()]):
            everywhere = [(v, cache) for cache in list(_caches) for v in cache.all()]
            least = _least_valuable([v for v, _ in everywhere], keep=version)
            next(cache for v, cache in everywhere if v is least)._evict(least)

    def drop(self, version: Version) -> bool:
        """Takes a version out and closes it; False when it was out already."""
        with _lock:
            held = self.versions.get(version.key, ())
            if version not in held:
                return False
            rest = tuple(other for other in held if other is not version)
            versions = {key: vs for key, vs in self.versions.items() if key != version.key}
            self.versions = {**versions, version.key: rest} if rest else versions
        version.close()
        return True

    def replace(self, old: Version, new: Version) -> bool:
        """Puts one version in the place of another, which is not closed; False when that one was
        out already."""
        with _lock:
            held = self.versions.get(old.key, ())
            if old not in held:
                return False
            kept = tuple(new if version is old else version for version in held)
            self.versions = {**self.versions, old.key: kept}
            return True

    def forget(self) -> None:
        """Lets go of all versions; each is freed with the last call that runs it."""
        self.versions = {}

    def _evict(self, version: Version) -> None:
        if self.drop(version):
            self._evicted(version)


def _too_many(versions: list[Version]) -> bool:
    """True while the versions of the process are more, or hold more, than they may; a single one
    may always stay."""
    held = sum(version.executable.nbytes for version in versions)
    return len(versions) > 1 and (
        len(versions) > options.max_total_versions or held > options.max_version_mb << 20
    )


def _least_valuable(versions: list[Version], keep: Version) -> Version:
    """The version that has saved least time; ``keep`` only when it is alone."""
    others = [version for version in versions if version is not keep] or versions
    return min(others, key=lambda version: version.stats.saved_seconds())


def total_versions() -> int:
    """Versions in use in the whole process."""
    return sum(map(len, list(_caches)))
