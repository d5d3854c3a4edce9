"""What a file of the hardware library may say (docs/hardware.md describes each key)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import LibraryError

KINDS = ("cpu", "gpu", "npu")
VERDICTS = ("pays", "works", "slow", "no")
THREAD_RULES = ("usable", "physical", "big")
PRECISIONS = ("float32", "float16", "bfloat16", "int8", "float8", "float4")
#: What engines there may be; the registry makes those that are built in.
ENGINES = ("native", "paddle_inference", "onnxruntime", "openvino")

#: ``(value) -> what is needed``, "" for a value that is right.
_Check = Callable[[Any], str]


def _one_of(*allowed: str) -> _Check:
    return lambda value: "" if value in allowed else f"one of {', '.join(allowed)}"


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value else "a text"


def _count(value: Any) -> str:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    return "" if right else "a number, at least 0"


def _at_least_one(value: Any) -> str:
    return "" if type(value) is int and value >= 1 else "a whole number, at least 1"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false"


def _version_range(value: Any) -> str:
    right = isinstance(value, str) and re.fullmatch(
        r"([<>]=?|==)\d+(\.\d+)*(,([<>]=?|==)\d+(\.\d+)*)*", value
    )
    return "" if right else 'versions such as ">=3.1,<3.4"'


def _capability(value: Any) -> str:
    right = isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)
    return "" if right else "a compute capability such as [8, 6]"


def _list_of(check: _Check, what: str) -> _Check:
    def checked(value: Any) -> str:
        if not isinstance(value, list):
            return f"a list of {what}"
        need = next((need for item in value if (need := check(item))), "")
        return f"a list of {what}, each {need}" if need else ""

    return checked


_TEXTS = _list_of(_text, "texts")

#: Table -> key -> check.  Of ``source`` and ``fault`` there may be several.
_TABLES: dict[str, dict[str, _Check]] = {
    "match": {
        "architecture": _TEXTS,
        "vendor": _TEXTS,
        "microarchitecture": _TEXTS,
        "features": _TEXTS,
        "capability": _capability,
        "device": _TEXTS,
        "name": _TEXTS,
    },
    "precisions": dict.fromkeys(PRECISIONS, _one_of(*VERDICTS)),
    "engines": dict.fromkeys(("order", "fallback"), _list_of(_one_of(*ENGINES), "engines")),
    "threads": {
        "most": _one_of(*THREAD_RULES),
        "least": _at_least_one,
        "small_operations": _count,
    },
    "memory": {"pool_mb": _at_least_one},
    "tensorrt": {"workspace_mb": _at_least_one, "smallest_part": _at_least_one},
    "passes": {"avoid": _TEXTS},
}
#: Tables that are read for one kind of chip only.
_KIND_OF = {"engines": "cpu", "threads": "cpu", "memory": "gpu", "tensorrt": "gpu"}
_FAULT: dict[str, _Check] = {
    "engine": _one_of(*ENGINES),
    "when": _text,
    "paddle": _version_range,
    "ops": _TEXTS,
    "does": _text,
}
_CURE: dict[str, _Check] = {"leave_out": _text, "probe": _flag, "avoid": _flag}
_TOP: dict[str, _Check] = {"family": _text, "kind": _one_of(*KINDS), "extends": _text}
_SOURCE: dict[str, _Check] = {"title": _text, "url": _text}


def check(file: str, content: dict[str, Any], *, sourced: bool) -> None:
    """Raises LibraryError unless ``content`` is what a file of the library may be.

    Args:
        file: its name, for the message.
        sourced: whether every statement must name its source.
    """
    _require(file, "", content, ("family", "kind", "match"))
    for key, value in content.items():
        if key in _TABLES:
            _check_table(file, key, value, _TABLES[key])
            _check_kind(file, key, content["kind"])
        elif key == "fault":
            for i, fault in enumerate(_tables(file, key, value)):
                _check_fault(file, f"fault[{i}]", fault)
        elif key == "source":
            for i, source in enumerate(_tables(file, key, value)):
                where = f"source[{i}]"
                _check_table(file, where, source, {**_SOURCE, "about": _TEXTS})
                _require(file, where, source, ("title", "url", "about"))
        elif key in _TOP:
            _apply(file, key, value, _TOP[key])
        else:
            _unknown(file, key, [*_TOP, *_TABLES, "fault", "source"])
    if sourced:
        _check_sources(file, content)


def _check_table(file: str, where: str, table: Any, keys: dict[str, _Check]) -> None:
    if not isinstance(table, dict):
        raise LibraryError(f"{file}: {where}: got {table!r}, needs a table")
    for key, value in table.items():
        if key not in keys:
            _unknown(file, f"{where}.{key}", [f"{where}.{known}" for known in keys])
        _apply(file, f"{where}.{key}", value, keys[key])


def _check_kind(file: str, table: str, kind: Any) -> None:
    reader = _KIND_OF.get(table, kind)
    if reader != kind:
        raise LibraryError(
            f"{file}: {table}: got this table in a file for a {kind}, which nothing reads; needs "
            f"a file for a {reader}"
        )


def _check_fault(file: str, where: str, fault: Any) -> None:
    nested = {"cure": lambda value: "", "source": lambda value: ""}
    _check_table(file, where, fault, {**_FAULT, **nested})
    _require(file, where, fault, (*_FAULT, "cure", "source"))
    _check_table(file, f"{where}.cure", fault["cure"], _CURE)
    if len(fault["cure"]) != 1:
        raise LibraryError(
            f"{file}: {where}.cure: got {fault['cure']!r}, needs one of {', '.join(_CURE)}"
        )
    _check_table(file, f"{where}.source", fault["source"], _SOURCE)
    _require(file, f"{where}.source", fault["source"], tuple(_SOURCE))


def _tables(file: str, where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise LibraryError(f"{file}: {where}: got {value!r}, needs tables, each under [[{where}]]")
    return value


def _apply(file: str, where: str, value: Any, rule: _Check) -> None:
    need = rule(value)
    if need:
        raise LibraryError(f"{file}: {where}: got {value!r}, needs {need}")


def _require(file: str, where: str, table: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key not in table:
            full = f"{where}.{key}" if where else key
            raise LibraryError(f"{file}: {full}: got nothing, needs this key")


def _unknown(file: str, where: str, known: list[str]) -> None:
    near = difflib.get_close_matches(where, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise LibraryError(
        f"{file}: {where}: got an unknown key, needs one of {', '.join(known)}{hint}"
    )


def _check_sources(file: str, content: dict[str, Any]) -> None:
    about = {name for source in content.get("source", ()) for name in source["about"]}
    said = set(_statements(content))
    for statement in sorted(said):
        if statement not in about and statement.partition(".")[0] not in about:
            raise LibraryError(
                f"{file}: {statement}: got no source, needs a [[source]] that is about it"
            )
    for name in sorted(about):
        if name not in said and not any(one.startswith(f"{name}.") for one in said):
            raise LibraryError(
                f"{file}: source.about: got {name!r}, needs one of {', '.join(sorted(said))}"
            )


def _statements(content: dict[str, Any]) -> Iterator[str]:
    for table in _TABLES:
        if table != "match":
            yield from (f"{table}.{key}" for key in content.get(table, ()))
