"""Which values of a program may be one tensor in eager mode, or share memory there.

A straight-line call shows it when it runs.  With branches and loops it depends on values: a branch
may hand back what it was given, and a loop of Paddle's writes its state into the tensors that it
started from.  So it is worked out from the program, for all ways through it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

#: Ops whose result may look at the memory of their operand in eager mode.
VIEWS = frozenset(
    {
        "as_complex", "as_real", "as_strided", "chunk", "contiguous", "detach", "diagonal",
        "expand", "expand_as", "flatten", "imag", "index_select_strided", "real", "reshape",
        "share_data", "slice", "split", "split_with_num", "squeeze", "strided_slice",
        "tensor_unfold", "trans_layout", "transpose", "unbind", "unsqueeze", "view_dtype",
        "view_shape", "view_slice",
    }
)  # fmt: skip
_LISTS = frozenset({"builtin.combine", "builtin.split", "builtin.slice"})
#: Ops that are called ``name_`` and overwrite no operand that anybody else can see.
_WRITE_NOTHING = frozenset(
    {"rnn_", "batch_norm_", "sync_batch_norm_", "full_", "assign_value_", "dropout_"}
)
BRANCH, LOOP, YIELD = "pd_op.if", "pd_op.while", "cf.yield"


@dataclass(frozen=True)
class Root:
    """A tensor that values may be, or be views of.

    key: of the value that is it first.  block: the number of the block that makes it.
    outside: an input or a parameter.  state: what a loop carries, within its body.
    """

    key: int
    block: int
    outside: bool = False
    state: bool = False


@dataclass(frozen=True)
class Alias:
    """One tensor that a value may be; ``viewed``: a view of it; ``chosen``: in some branch only."""

    root: Root
    viewed: bool = False
    chosen: bool = False


@dataclass
class Placed:
    """An op where it stands: the number of its block, and its place in the order of execution."""

    op: Any
    name: str
    block: int
    place: int

    @property
    def target(self) -> Any:
        """What an op that :func:`overwrites` writes its result into."""
        return self.op.operand_source(1 if self.name == "pd_op.assign_out_" else 0)


@dataclass
class Loop:
    """A ``while``: what it starts from, its state within the body, what a turn makes of it."""

    placed: Placed
    starts: list[Any]
    state: list[Any]
    made: list[Any]


@dataclass
class Branches:
    """An ``if``: what either branch yields, and the op's results."""

    placed: Placed
    then: list[Any]
    otherwise: list[Any]


@dataclass
class Aliases:
    """The aliases of all values of a program, from a walk over it.

    uses: (key of a value, place of the op that reads it).  made: the place of the op that makes it.
    mixed: keys of the values that came by way of a branch or loop.
    """

    aliases: dict[int, frozenset[Alias]] = field(default_factory=dict)
    uses: list[tuple[int, int]] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)
    placed: list[Placed] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    branches: list[Branches] = field(default_factory=list)
    mixed: set[int] = field(default_factory=set)
    _blocks: int = 0

    @classmethod
    def of(cls, program: Any) -> Aliases:
        """Walks the blocks of a ``paddle.pir.Program``."""
        found = cls()
        found._walk(program.global_block())
        return found

    def __getitem__(self, value: Any) -> frozenset[Alias]:
        return self.aliases.get(value.id, frozenset())

    def of_root(self, root: Root) -> Iterator[tuple[int, Alias]]:
        """(key, alias) of every value that may be ``root`` or a view of it."""
        for key, aliases in self.aliases.items():
            for alias in aliases:
                if alias.root == root:
                    yield key, alias

    def outlives(self, key: int, place: int, returned: Container[int] = ()) -> bool:
        """Whether the value called ``key`` is there before ``place`` and read behind it, or
        returned."""
        if self.made.get(key, -1) >= place:
            return False
        return key in returned or any(read == key and at > place for read, at in self.uses)

    def _walk(self, block: Any) -> list[Any]:
        """Takes in a block; what its ``yield`` hands back."""
        number = self._blocks
        self._blocks += 1
        yielded: list[Any] = []
        for op in block.ops:
            placed = Placed(op, op.name(), number, len(self.placed))
            self.placed.append(placed)
            operands = [value for value in op.operands_source() if value.initialized()]
            self.uses.extend((value.id, placed.place) for value in operands)
            self.made.update((result.id, placed.place) for result in op.results())
            if placed.name == YIELD:
                yielded = operands
            elif placed.name == BRANCH:
                self._branch(placed)
            elif placed.name == LOOP:
                self._loop(placed)
            else:
                self._straight(placed, operands)
        return yielded

    def _straight(self, placed: Placed, operands: list[Any]) -> None:
        outside = placed.name in ("pd_op.data", "builtin.parameter")
        behind = _seen_through(placed, operands)
        shared = frozenset().union(*map(self.__getitem__, behind))
        if is_view(placed, operands):
            shared = frozenset(Alias(a.root, True, a.chosen) for a in shared)
        mixed = any(value.id in self.mixed for value in behind)
        for result in placed.op.results():
            fresh = Alias(Root(result.id, placed.block, outside))
            self.aliases[result.id] = shared or frozenset({fresh})
            if mixed:
                self.mixed.add(result.id)

    def _branch(self, placed: Placed) -> None:
        then, otherwise = (self._walk(block) for block in placed.op.blocks())
        self.branches.append(Branches(placed, then, otherwise))
        for result, *sources in zip(placed.op.results(), then, otherwise):
            self.aliases[result.id] = frozenset(
                Alias(alias.root, alias.viewed, True)
                for source in sources
                for alias in self[source]
            )
            self.mixed.add(result.id)

    def _loop(self, placed: Placed) -> None:
        (block,) = placed.op.blocks()
        state = list(block.args())
        for value in state:
            # The body will be the next block that is walked.
            self.aliases[value.id] = frozenset({Alias(Root(value.id, self._blocks, state=True))})
        made = self._walk(block)
        starts = list(placed.op.operands_source())[1:]
        self.loops.append(Loop(placed, starts, state, made[1:]))
        for result in placed.op.results():
            self.aliases[result.id] = frozenset({Alias(Root(result.id, placed.block))})
            self.mixed.add(result.id)


def overwrites(placed: Placed) -> bool:
    """Whether the op writes its result into an operand, its :attr:`Placed.target`."""
    _, _, name = placed.name.partition(".")
    return name.endswith("_") and name not in _WRITE_NOTHING


def is_view(placed: Placed, operands: list[Any]) -> bool:
    """Whether the result may be a view of the first operand."""
    dialect, _, name = placed.name.partition(".")
    if dialect != "pd_op" or not operands:
        return False
    return name in VIEWS or (name == "cast" and operands[0].dtype == placed.op.result(0).dtype)


def _seen_through(placed: Placed, operands: list[Any]) -> list[Any]:
    """The operands that the results may be, or be views of."""
    if placed.name in _LISTS:
        return operands
    if overwrites(placed):
        return [placed.target]
    if is_view(placed, operands):
        return operands[:1]
    return []
