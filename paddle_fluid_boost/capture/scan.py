"""What the bytecode of one function may do, found without running it.

Only the instructions of the function itself are read; what it calls is seen at run time by
``observe.py``.
"""

from __future__ import annotations

import dis
import linecache
import string
from dataclasses import dataclass
from types import CodeType
from weakref import WeakKeyDictionary

#: Functions in which storing an attribute builds a fresh object instead of changing an old one.
_CONSTRUCTORS = frozenset({"__init__", "__post_init__"})
#: Ways of storing an attribute that neither the bytecode nor the profile hook shows.
_HIDDEN_STORES = frozenset({"__setattr__", "__delattr__"})
_ATTRIBUTE_LOADS = frozenset(
    {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_ATTR_ADAPTIVE", "LOAD_METHOD_ADAPTIVE"}
)
#: Attributes whose use reads further attributes by name.
_DYNAMIC_READERS = frozenset({"__dict__", "attrgetter", "format_map"})
_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


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
    """Names a function reads, and its effects.

    imports: (level, module name) of its own import statements, as ``__import__`` takes them.
    chains: dotted names as written, e.g. ("paddle", "nn", "functional", "relu"), whose first part
        is a global or a variable of an outer function.
    dynamic_reads: it may read attributes that its bytecode does not name.
    """

    global_names: frozenset[str]
    attribute_names: frozenset[str]
    imports: frozenset[tuple[int, str]]
    effects: tuple[Effect, ...]
    chains: frozenset[tuple[str, ...]] = frozenset()
    dynamic_reads: bool = False


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
    imports: set[tuple[int, str]] = set()
    effects: list[Effect] = []
    instructions = [
        instruction
        for instruction in dis.get_instructions(code)
        if instruction.opname not in ("EXTENDED_ARG", "CACHE")
    ]
    first = _first_argument(code, instructions)
    constructs = code.co_name in _CONSTRUCTORS
    free = frozenset(code.co_freevars)
    line = code.co_firstlineno
    for index, instruction in enumerate(instructions):
        line = _line(instruction) or line
        name, value = instruction.opname, instruction.argval
        if name in _GLOBAL_LOADS:
            global_names.add(value)
        elif name in _ATTRIBUTE_LOADS:
            attribute_names.add(value)
            if value in _HIDDEN_STORES and not constructs:
                effects.append(Effect(f"calls {value}", line))
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            on_first = index > 0 and first is not None and _loaded(instructions[index - 1]) == first
            if not (on_first and constructs):
                verb = "writes" if name == "STORE_ATTR" else "deletes"
                effects.append(Effect(f"{verb} the attribute '{value}'", line, on_first))
        elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            effects.append(Effect(f"writes the global variable '{value}'", line))
        elif name in ("STORE_DEREF", "DELETE_DEREF") and value in free:
            effects.append(Effect(f"writes the variable '{value}' of an outer function", line))
        elif name == "IMPORT_NAME":
            level = instructions[index - 2].argval  # below the names imported from it
            imports.add((level if isinstance(level, int) else 0, value))
        elif name == "IMPORT_FROM":
            attribute_names.add(value)
        elif "out" in _keywords(code, instructions, index):
            effects.append(Effect("passes out=, which overwrites a tensor", line))
    return CodeFacts(
        frozenset(global_names),
        frozenset(attribute_names),
        frozenset(imports),
        tuple(effects),
        _chains(instructions),
        _reads_dynamically(instructions),
    )


def _keywords(
    code: CodeType, instructions: list[dis.Instruction], index: int
) -> tuple[object, ...]:
    """The names of the keyword arguments of a call, where its instruction number ``index`` says
    them: itself up to 3.12, or the constant loaded before it."""
    name = instructions[index].opname
    if name == "KW_NAMES":
        return code.co_consts[instructions[index].arg or 0]
    if name in ("CALL_FUNCTION_KW", "CALL_KW"):
        value = instructions[index - 1].argval
        return value if isinstance(value, tuple) else ()
    return ()


def writes_in_place(code: CodeType) -> Effect | None:
    """The first instruction that may change an object, such as ``x[0] = y`` or ``x += y``."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = _line(instruction) or line
        name = instruction.opname
        augmented = name.startswith("INPLACE_") or (
            name == "BINARY_OP" and instruction.argrepr.endswith("=")
        )
        if augmented or name in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            return Effect("may change something in place", line)
    return None


def _chains(instructions: list[dis.Instruction]) -> frozenset[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    chain: tuple[str, ...] = ()
    for instruction in instructions:
        name, value = instruction.opname, instruction.argval
        if name in _GLOBAL_LOADS or name in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            chain = (value,)
        elif chain and name in _ATTRIBUTE_LOADS:
            chain = (*chain, value)
            found.add(chain)
        else:
            chain = ()
    return frozenset(found)


def _reads_dynamically(instructions: list[dis.Instruction]) -> bool:
    for index, instruction in enumerate(instructions):
        if instruction.opname == "MATCH_CLASS":  # reads what ``__match_args__`` names
            return True
        if instruction.opname in _GLOBAL_LOADS and instruction.argval in _DYNAMIC_READERS:
            return True
        if instruction.opname not in _ATTRIBUTE_LOADS:
            continue
        if instruction.argval in _DYNAMIC_READERS:
            return True
        if instruction.argval == "format" and index:
            text = instructions[index - 1]
            if not text.opname.startswith("LOAD_CONST") or _has_fields_of(text.argval):
                return True
    return False


def _has_fields_of(text: object) -> bool:
    """True for a format string that reads attributes or items, such as ``"{0.name}"``."""
    if not isinstance(text, str):
        return True
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text)]
    except ValueError:  # not a format string
        return False
    return any(field and ("." in field or "[" in field) for field in fields)


def _line(instruction: dis.Instruction) -> int | None:
    """The source line where it is known; since Python 3.13 ``starts_line`` is a bool."""
    starts = instruction.starts_line
    if starts is None or isinstance(starts, bool):
        return getattr(instruction, "line_number", None)
    return starts


def _first_argument(code: CodeType, instructions: list[dis.Instruction]) -> str | None:
    """Name of the first argument, if the function never gives that name to something else."""
    if not code.co_argcount:
        return None
    first = code.co_varnames[0]
    stored = (name for i in instructions for name in _stored(i))
    return None if first in stored else first


def _stored(instruction: dis.Instruction) -> tuple[str, ...]:
    """The local variables an instruction assigns to."""
    name, value = instruction.opname, instruction.argval
    if name in ("STORE_FAST", "STORE_DEREF"):
        return (value,)
    if name == "STORE_FAST_STORE_FAST":
        return tuple(value)
    return (value[0],) if name == "STORE_FAST_LOAD_FAST" else ()


def _loaded(instruction: dis.Instruction) -> str | None:
    """The local variable whose value an instruction leaves on top of the stack, if it is one.

    A variable that an inner function uses too is loaded with ``LOAD_DEREF``; up to Python 3.11
    comprehensions are such functions.  Python 3.13 loads two variables with one instruction.
    """
    name, value = instruction.opname, instruction.argval
    if name == "LOAD_DEREF" or name.startswith("LOAD_FAST") or name == "STORE_FAST_LOAD_FAST":
        last = value[-1] if isinstance(value, tuple) else value
        return last if isinstance(last, str) else None
    return None


def location(code: CodeType, line: int) -> str:
    """``"file:line: source"`` for a person."""
    text = linecache.getline(code.co_filename, line).strip()
    return f"{code.co_filename}:{line}" + (f": {text}" if text else "")
