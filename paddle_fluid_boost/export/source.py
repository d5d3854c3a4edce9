"""What is exported: a Python callable, or a model on disk.  Both answer the same questions."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..capture.program import CapturedProgram
from ..capture.structure import leaves
from ..errors import ExportError
from . import _paddle as pd
from .capturing import apply, capture_call, ways
from .spec import Signature
from .structure import Template, describe, output_names, plain

#: ``(InvalidArgument) ...``, or ``ValueError: ...`` where Paddle prints a traceback of its own.
_TELLING = re.compile(r"\(\w+\) |\w*Error: ")


@dataclass
class Captured:
    """program: with distinct outputs; template: the nesting of the result; way: how it was got."""

    program: CapturedProgram
    template: Template
    way: str

    @property
    def output_names(self) -> list[str]:
        """What the outputs are called in every format."""
        inputs = [slot.name for slot in self.program.inputs]
        return output_names(self.template, len(self.program.outputs), inputs)


class Source(Protocol):
    """A model to export.

    label: as the user named it.  signature: what it takes.  warnings: what was odd about it.
    """

    label: str
    signature: Signature
    warnings: list[str]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The distinct outputs that are right by definition.  Raises what the model raises."""

    def ways(self, signature: Signature) -> Sequence[str]:
        """Names of the ways to capture it, the more promising first."""

    def capture(self, signature: Signature, examples: Sequence[np.ndarray], way: str) -> Captured:
        """The program, with the open sizes of ``signature`` open.  Raises CaptureRefused."""


@dataclass
class PythonSource:
    """A Layer or function; its eager results are the reference."""

    label: str
    call: Callable[..., Any]
    signature: Signature
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._keywords = keywords(self.call, [one.name for one in self.signature.inputs])

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See :class:`Source`."""
        with evaluating(self.call), pd.plain_functions(), pd.paddle.no_grad():
            tensors = [pd.paddle.to_tensor(array) for array in inputs]
            result = apply(self.call, self._keywords, tensors)
        found: dict[int, Any] = {}
        for leaf in leaves(plain(result)):
            if isinstance(leaf, pd.paddle.Tensor):
                found.setdefault(id(leaf), leaf)
        if not found:
            raise ExportError(f"{self.label} returned no tensor, but {type(result).__name__}")
        return [tensor.numpy() for tensor in found.values()]

    def ways(self, signature: Signature) -> Sequence[str]:
        """See :class:`Source`."""
        return ways(signature)

    def capture(self, signature: Signature, examples: Sequence[np.ndarray], way: str) -> Captured:
        """See :class:`Source`."""
        with evaluating(self.call):
            program, result = capture_call(self.call, self._keywords, signature, examples, way)
        values = program.output_values
        template = describe(
            result,
            lambda leaf: isinstance(leaf, (pd.Value, pd.paddle.Tensor)),
            lambda leaf: _number(leaf, values),
        )
        return Captured(program, template, way)


def _number(leaf: Any, values: Sequence[Any]) -> int:
    if not isinstance(leaf, pd.Value):
        raise ExportError(
            "the result holds a tensor that does not depend on the inputs; return "
            "`tensor + 0` in its place, or leave it out"
        )
    return next(i for i, value in enumerate(values) if value.is_same(leaf))


def keywords(call: Callable[..., Any], names: Sequence[str]) -> list[str] | None:
    """The arguments of ``call`` that inputs called ``names`` go to; None: they go in order.

    They go in order where none of the names is an argument's.

    Raises:
        ExportError: some names are arguments and some are not, or one is missing.
    """
    function = call.forward if isinstance(call, pd.paddle.nn.Layer) else call
    function = getattr(function, "dygraph_function", function)
    parameters = inspect.signature(function).parameters
    known = [n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    open_ended = len(known) < len(parameters)
    required = [n for n in known if parameters[n].default is inspect.Parameter.empty]
    takes = f"it takes ({', '.join(known)})"
    if not set(names) & set(known):
        if len(names) > len(known) and not open_ended:
            raise ExportError(
                f"--shape names {len(names)} inputs ({', '.join(names)}), but {takes}"
            )
        if len(names) < len(required):
            raise ExportError(f"no --shape for '{required[len(names)]}': {takes}")
        return None
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ExportError(f"--shape: there is no argument '{unknown[0]}'; {takes}")
    missing = [name for name in required if name not in names]
    if missing:
        raise ExportError(f"no --shape for '{missing[0]}': {takes}")
    return list(names)


def telling_line(error: BaseException) -> str:
    """The line of a message, Paddle's being long, that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.match(line)]
    return "".join((telling or lines)[:1])


@contextlib.contextmanager
def evaluating(call: Any) -> Iterator[None]:
    """Inside, a layer and all its sublayers are in eval mode; afterwards as they were."""
    layer = call if isinstance(call, pd.paddle.nn.Layer) else getattr(call, "__self__", None)
    if not isinstance(layer, pd.paddle.nn.Layer):
        yield
        return
    modes = [(one, one.training) for one in layer.sublayers(include_self=True)]
    if any(training for _, training in modes):
        layer.eval()
    try:
        yield
    finally:
        for one, training in modes:
            if one.training is not training:
                one.training = training
