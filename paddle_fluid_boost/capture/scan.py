"""What the bytecode of one function may do, found without running it.

Only the instructions of the function itself are read; what it calls is seen at run time by
``observe.py``.
"""

from __future__ import annotations

import dis
import linecache
from dataclasses import dataclass
from types import CodeType
from weakref import WeakKeyDictionary

#: Functions in which storing an attribute builds a fresh object instead of changing an old one.
_CONSTRUCTORS = frozenset({"__init__", "__post_init__", "__new__"})
_ATTRIBUTE_LOADS = frozenset(
    {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_ATTR_ADAPTIVE", "LOAD_METHOD_ADAPTIVE"}
)
_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_FIRST_ARGUMENT_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})


@dataclass(frozen=True)
class Effect:
    """An instruction that changes something outside the function."""

    reason: str
    line: int
    #: True for ``self.x = ...``: harmless to refuse only when ``self`` is not a Layer, whose
    #: attribute writes are seen at run time.
    on_self: bool = False


@dataclass(frozen=True)
class CodeFacts:
    """Names a function reads, and its effects."""

    global_names: frozenset[str]
    attribute_names: frozenset[str]
    effects: tuple[Effect, ...]


_cache: WeakKeyDictionary[CodeType, CodeFacts] = WeakKeyDictionary()


def scan(code: CodeType) -> CodeFacts:
    """The facts of ``code``; cached for as long as the code lives."""
    facts = _cache.get(code)
    if facts is None:
        facts = _cache[code] = _scan(code)
    return facts


def _scan(code: CodeType) -> CodeFacts:
    global_names: set[str] = set()
    attribute_names: set[str] = set()
    effects: list[Effect] = []
    first = code.co_varnames[0] if code.co_argcount else None
    free = frozenset(code.co_freevars)
    line = code.co_firstlineno
    previous = None
    for instruction in dis.get_instructions(code):
        starts = instruction.starts_line
        if starts is not None and starts is not True and starts is not False:
            line = starts
        else:  # since Python 3.13 starts_line is a bool and the number stands beside it
            line = getattr(instruction, "line_number", None) or line
        name, value = instruction.opname, instruction.argval
        if name in _GLOBAL_LOADS:
            global_names.add(value)
        elif name in _ATTRIBUTE_LOADS:
            attribute_names.add(value)
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            on_first = (
                previous is not None
                and first is not None
                and previous.opname in _FIRST_ARGUMENT_LOADS
                and previous.argval == first
            )
            if not (on_first and code.co_name in _CONSTRUCTORS):
                verb = "writes" if name == "STORE_ATTR" else "deletes"
                effects.append(Effect(f"{verb} the attribute '{value}'", line, on_first))
        elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            effects.append(Effect(f"writes the global variable '{value}'", line))
        elif name in ("STORE_DEREF", "DELETE_DEREF") and value in free:
            effects.append(Effect(f"writes the variable '{value}' of an outer function", line))
        if name not in ("EXTENDED_ARG", "CACHE"):
            previous = instruction
    return CodeFacts(frozenset(global_names), frozenset(attribute_names), tuple(effects))


def location(code: CodeType, line: int) -> str:
    """``"file:line: source"`` for a person."""
    text = linecache.getline(code.co_filename, line).strip()
    return f"{code.co_filename}:{line}" + (f": {text}" if text else "")
