"""The library of chips: what each family of processors is good at, read from ``features/*.toml``.

A file says what machines it is for (``[match]``), what it builds upon (``extends``) and what it
states.  The most special file that fits a machine counts, with those below it.  Users add files, or
replace one of ours by another of the same name, in the folder that the option ``hardware_dir``
names.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LibraryError
from . import schema

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OURS = Path(__file__).parent / "features"


@dataclass(frozen=True)
class Fault:
    """A known fault of an engine.

    when: the setting with which it happens, e.g. ``"onednn"``.
    paddle: the versions that have it, e.g. ``">=3.0,<3.4"``.
    ops: a program with any of them meets it.
    leave_out: a pass whose absence cures it, else "".
    probe: try such a program in a child process first.  avoid: do not use the engine so at all.
    """

    engine: str
    when: str
    paddle: str
    ops: tuple[str, ...]
    does: str
    leave_out: str = ""
    probe: bool = False
    avoid: bool = False

    def in_version(self, version: str) -> bool:
        """Whether Paddle ``version`` has it; a development build (0.0.0) counts as the newest."""
        have = _numbers(version)
        if not any(have):
            have = (999,)
        for part in self.paddle.split(","):
            sign = part.rstrip("0123456789.")
            limit = _numbers(part[len(sign) :])
            # 3.3.1 is of the series 3.3: only as many numbers count as the limit has.
            mine = have[: len(limit)]
            fits = {
                ">=": mine >= limit,
                ">": mine > limit,
                "<=": mine <= limit,
                "<": mine < limit,
                "==": mine == limit,
            }
            if not fits[sign]:
                return False
        return True


@dataclass(frozen=True)
class Family:
    """One file.  file: its name.  content: as it was read, checked."""

    file: str
    content: dict[str, Any]

    @property
    def name(self) -> str:
        """What it calls itself."""
        return str(self.content["family"])

    @property
    def kind(self) -> str:
        """cpu, gpu or npu."""
        return str(self.content["kind"])

    def fits(self, facts: dict[str, Any]) -> bool:
        """Whether every condition of its ``[match]`` holds for ``facts`` (keys as there)."""
        return all(_holds(key, want, facts) for key, want in self.content["match"].items())

    def faults(self) -> list[Fault]:
        """The faults that this file itself names."""
        return [
            Fault(
                **{key: f[key] for key in ("engine", "when", "paddle", "does")},
                ops=tuple(f["ops"]),
                **f["cure"],
            )
            for f in self.content.get("fault", ())
        ]


class Library:
    """All families, by the name of their file without ``.toml``."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = {family.file.rpartition(".")[0]: family for family in families}
        for family in self._families.values():
            self.chain(family)  # raises where one extends what is not there

    def __iter__(self) -> Any:
        return iter(self._families.values())

    def chain(self, family: Family) -> list[Family]:
        """The family with all that it extends, the most general first."""
        chain = [family]
        while "extends" in chain[0].content:
            current, base = chain[0], chain[0].content["extends"]
            if base not in self._families:
                known = ", ".join(sorted(self._families))
                raise LibraryError(f"{current.file}: extends: got {base!r}, needs one of {known}")
            if self._families[base] in chain:
                raise LibraryError(
                    f"{current.file}: extends: got {base!r}, which extends this file itself, "
                    "needs a chain that ends"
                )
            if self._families[base].kind != family.kind:
                raise LibraryError(
                    f"{current.file}: extends: got {base!r}, which is for a "
                    f"{self._families[base].kind}, needs one for a {family.kind}"
                )
            chain.insert(0, self._families[base])
        return chain

    def best(self, kind: str, facts: dict[str, Any]) -> list[Family]:
        """The chain of the most special family of ``kind`` that fits; empty where none does.

        Of two that are as deep, the one with more conditions.
        """
        fitting = [self.chain(f) for f in self if f.kind == kind and f.fits(facts)]
        return max(fitting, key=lambda chain: (len(chain), _conditions(chain[-1])), default=[])


def load(folder: str = "", *, ours: Path = OURS) -> Library:
    """Our files and those of the user's ``folder``.

    Raises:
        LibraryError: a file is wrong, or the folder is not there.
    """
    paths = {path.name: path for path in sorted(ours.glob("*.toml"))}
    if not paths:
        raise LibraryError(f"{ours}: got no *.toml, needs the files of the hardware library")
    theirs = set()
    if folder:
        if not Path(folder).is_dir():
            raise LibraryError(f"hardware_dir: got {folder!r}, needs a folder")
        found = {path.name: path for path in sorted(Path(folder).glob("*.toml"))}
        theirs = set(found)
        paths.update(found)
    return Library(_read(path, sourced=name not in theirs) for name, path in paths.items())


def _read(path: Path, *, sourced: bool) -> Family:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # no text, no TOML, nested too deep
        raise LibraryError(f"{path.name}: got what is not TOML ({error}), needs TOML") from error
    schema.check(path.name, content, sourced=sourced)
    return Family(path.name, content)


def _holds(key: str, want: Any, facts: dict[str, Any]) -> bool:
    have = facts.get(key)
    if have is None:
        return False
    if key == "features":
        return set(want) <= set(have)
    if key == "capability":
        return tuple(have) >= tuple(want)
    return any(fnmatch.fnmatchcase(str(have), pattern) for pattern in want)


def _conditions(family: Family) -> tuple[Any, ...]:
    match = family.content["match"]
    return (len(match.get("features", ())), tuple(match.get("capability", ())), len(match))


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
