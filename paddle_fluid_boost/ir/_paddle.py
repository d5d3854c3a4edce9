"""What this package asks of Paddle's op registry, in one place.

Checked on paddlepaddle 3.1.1, 3.2.2 and 3.3.1.  Two things are not public: ``paddle._C_ops`` (the
eager op functions, positional) and the order of an op's arguments.  The order is read from
``phi/api/include/*.h``, which every wheel ships and which is generated from the same op definitions
as both ``_C_ops`` and the PIR dialect, so that it fits the Paddle that runs.
"""

from __future__ import annotations

import functools
import pathlib
import re
from dataclasses import dataclass
from typing import Any

import paddle

_DECLARATION = re.compile(r"^PADDLE_API\s+(?P<result>.+?)\s+(?P<op>\w+)\((?P<args>.*)\);")


@dataclass(frozen=True)
class Formal:
    """One formal parameter of an op: its name and its C++ type."""

    name: str
    type: str

    @property
    def is_attribute(self) -> bool:
        """True when eager calls take it by value, though PIR may pass it as an operand."""
        return "Tensor" not in self.type


@functools.cache
def _signatures() -> dict[str, tuple[Formal, ...]]:
    folder = pathlib.Path(paddle.__file__).parent / "include/paddle/phi/api/include"
    found: dict[str, tuple[Formal, ...]] = {}
    for header in ("fused_api.h", "api.h"):  # the later wins
        path = folder / header
        if path.exists():
            for line in path.read_text().splitlines():
                match = _DECLARATION.match(line)
                if match:
                    found[match["op"]] = _formals(match["args"])
    return found


def _formals(text: str) -> tuple[Formal, ...]:
    formals = []
    for part in _split_arguments(text):
        declared = part.split("=")[0].strip()
        type_name, _, name = declared.rpartition(" ")
        if "*" not in type_name:  # pointers are where C++ callers want the result written
            formals.append(Formal(name, type_name))
    return tuple(formals)


def _split_arguments(text: str) -> list[str]:
    """Splits at commas outside ``<>``, ``()`` and ``{}``."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char in "<({":
            depth += 1
        elif char in ">)}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def formals(op: str) -> tuple[Formal, ...] | None:
    """The formal parameters of ``paddle._C_ops.<op>`` in order; None when unknown."""
    return _signatures().get(op)


def has_eager(op: str) -> bool:
    """True when ``paddle._C_ops`` has a function of this name."""
    return hasattr(paddle._C_ops, op)


def eager(op: str) -> Any:
    """The eager function of ``op``; AttributeError when Paddle has none."""
    return getattr(paddle._C_ops, op)


def dtype_name(dtype: Any) -> str:
    """``"float32"`` for ``paddle.float32`` and its older spellings."""
    name = str(dtype).rsplit(".", 1)[-1].lower()
    return {"bool_": "bool"}.get(name, name)


def is_dtype(value: Any) -> bool:
    """True for a Paddle dtype object."""
    return isinstance(value, paddle.base.core.DataType)


def dtype_of(name: str) -> Any:
    """The Paddle dtype called ``name``; ``"undefined"`` means 'as the input'."""
    if name == "undefined":
        core: Any = paddle.base.core
        return core.DataType.UNDEFINED
    return getattr(paddle, name)


def to_tensor(array: Any) -> Any:
    """An eager CPU tensor with a copy of ``array``; uint16 bits become bfloat16."""
    return paddle.to_tensor(array, place=paddle.CPUPlace())


def default_place() -> Any:
    """Where new tensors go: this package's graphs run on the CPU."""
    return paddle.CPUPlace()
