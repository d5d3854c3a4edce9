"""What a model takes, as it is written on the command line: ``x=batch,3,h,w`` and ``h=64..256:32``.

A dimension is a number or a name.  A name is one size that may vary from call to call; where two
inputs use the same name they have the same size.  A range says which sizes a name may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Union

from ..errors import SpecError

#: One dimension: its size, or the name of a size.
Dim = Union[int, str]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?\Z")
#: What an input may be, as numpy spells it.
DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
#: Names that mean "how many at once": the first to stay open when not all can.
BATCH_NAMES = ("batch", "b", "n", "bs", "batch_size")
_MOST_SAMPLES = 3


@dataclass(frozen=True)
class TensorSpec:
    """One input: ``name``, ``dims`` (numbers and names) and ``dtype`` as numpy spells it."""

    name: str
    dims: tuple[Dim, ...]
    dtype: str = "float32"

    @property
    def open_dims(self) -> list[int]:
        """Positions of the dimensions that have a name."""
        return [i for i, dim in enumerate(self.dims) if isinstance(dim, str)]

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with ``sizes`` put in for the names."""
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims)

    def __str__(self) -> str:
        kind = "" if self.dtype == "float32" else f":{self.dtype}"
        return f"{self.name}{kind}={','.join(map(str, self.dims))}"


@dataclass(frozen=True)
class Signature:
    """All inputs of a model, in calling order, and the sizes that its names may have.

    ranges: name -> sizes, ascending order not required; the first is the one that a name gets when
        it cannot stay open.
    """

    inputs: tuple[TensorSpec, ...]
    ranges: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of open sizes, each once, in order of appearance."""
        return list(dict.fromkeys(d for i in self.inputs for d in i.dims if isinstance(d, str)))

    def sizes(self, name: str) -> Sequence[int]:
        """The sizes that ``name`` may have; where none were given, some that most models take."""
        if name in self.ranges:
            return self.ranges[name]
        return range(1, 9) if name in BATCH_NAMES else range(64, 257, 32)

    def example(self) -> dict[str, int]:
        """One size for every name: the first of its range."""
        return {name: self.sizes(name)[0] for name in self.names}

    def samples(self) -> list[dict[str, int]]:
        """A few assignments of sizes that together move every name; one when nothing is open.

        Two names never move in step, so that one mistaken for the other is noticed.
        """
        made = []
        for turn in range(_MOST_SAMPLES if self.names else 1):
            made.append(
                {
                    name: _pick(self.sizes(name), turn + position if turn else 0)
                    for position, name in enumerate(self.names)
                }
            )
        unique: list[dict[str, int]] = []
        for sizes in made:
            if sizes not in unique:
                unique.append(sizes)
        return unique

    def fixed(self, names: Iterable[str]) -> Signature:
        """The same with each of ``names`` replaced by its first size."""
        closed = {name: self.sizes(name)[0] for name in names}
        inputs = tuple(
            replace(
                one, dims=tuple(closed.get(d, d) if isinstance(d, str) else d for d in one.dims)
            )
            for one in self.inputs
        )
        ranges = {name: sizes for name, sizes in self.ranges.items() if name not in closed}
        return Signature(inputs, ranges)

    def at(self, shapes: Sequence[Sequence[int]]) -> Signature:
        """The same with every size fixed to those of ``shapes``."""
        return Signature(
            tuple(replace(one, dims=tuple(shape)) for one, shape in zip(self.inputs, shapes))
        )

    def arguments(self) -> str:
        """As on the command line: ``--shape x=batch,3,64,64``."""
        return " ".join(f"--shape {one}" for one in self.inputs)


def parse_signature(shapes: Sequence[str], ranges: Sequence[str] = ()) -> Signature:
    """From ``["x=batch,3,h,w"]`` and ``["h=64..256:32"]``.

    Raises:
        SpecError: a shape or range is not of that form, or a range is of an unknown name.
    """
    inputs = tuple(_tensor(text) for text in shapes)
    names = [one.name for one in inputs]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"--shape: input '{name}' is given twice")
    signature = Signature(inputs, dict(_range(text) for text in ranges))
    for name in signature.ranges:
        if name not in signature.names:
            raise SpecError(
                f"--range: no --shape uses the name '{name}' (names: {signature.names or 'none'})"
            )
    return signature


def _tensor(text: str) -> TensorSpec:
    name, equals, sizes = text.partition("=")
    name, _, dtype = name.partition(":")
    form = "NAME=SIZE,SIZE,... or NAME:DTYPE=..., e.g. x=batch,3,224,224 or ids:int64=batch,seq"
    if not equals or not _NAME.match(name):
        raise SpecError(f"--shape: got {text!r}, needs {form}")
    if dtype and dtype not in DTYPES:
        raise SpecError(f"--shape: dtype {dtype!r} of '{name}' is not one of {', '.join(DTYPES)}")
    words = [word.strip() for word in sizes.split(",")] if sizes.strip() else []
    return TensorSpec(name, tuple(_dim(word, text, form) for word in words), dtype or "float32")


def _dim(word: str, text: str, form: str) -> Dim:
    if word.isdigit() and int(word) > 0:
        return int(word)
    if _NAME.match(word):
        return word
    raise SpecError(
        f"--shape: size {word!r} in {text!r} is no positive number and no name ({form})"
    )


def _range(text: str) -> tuple[str, Sequence[int]]:
    name, _, sizes = text.partition("=")
    form = "NAME=FIRST..LAST, NAME=FIRST..LAST:STEP or NAME=SIZE,SIZE,..., e.g. h=64..256:32"
    found = _RANGE.match(sizes)
    made: Sequence[int] = ()
    if found:
        made = range(int(found[1]), int(found[2]) + 1, int(found[3] or 1) or 1)
    elif all(word.strip().isdigit() for word in sizes.split(",")):
        made = [int(word) for word in sizes.split(",")]
    if not _NAME.match(name) or not made or min(made) < 1:
        raise SpecError(f"--range: got {text!r}, needs {form}, sizes of at least 1")
    return name, made


def _pick(sizes: Sequence[int], turn: int) -> int:
    """The first, then the last, then one between, then the next ones."""
    order = [0, len(sizes) - 1, len(sizes) // 2, *range(len(sizes))]
    distinct = list(dict.fromkeys(order))
    return sizes[distinct[turn % len(distinct)]]
