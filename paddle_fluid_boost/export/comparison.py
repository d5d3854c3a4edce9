"""``compare``: two models, of whatever kinds, on the same inputs: how far apart, and how fast."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..capture.lock import STATIC_LOCK
from ..errors import BoostError, ExportError
from ..hardware.cores import usable_cores
from ..options import options
from .artefacts import is_artefact, open_artefact
from .cases import Case, CaseMaker
from .layers import Layer, Parting, part, values_of
from .messages import say
from .report import aligned
from .source import Source
from .spec import Signature
from .verify import check, difference

#: A pool of threads goes on spinning for 200 ms after its work: the other waits that long.
_PAUSE_S = 0.3
_ROUNDS, _WAKING, _TIMED = 3, 2, 10
#: No round of one takes longer than so many seconds, if a call takes less.
_LONGEST_S = 2.0


@dataclass
class Comparison:
    """rows: (case, output, largest error, largest relative to the range) of every output compared.

    differ: why they do, "" when they agree.  a_ms, b_ms: one call of the first case, the median.
    layers: with ``layers=True``, what :func:`~.layers.part` found.
    """

    a: str
    b: str
    rows: list[tuple[str, str, float, float]] = field(default_factory=list)
    differ: str = ""
    a_ms: float | None = None
    b_ms: float | None = None
    layers: Parting | None = None

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        return not self.differ

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        return _render(self)


def compare(
    a: Any,
    b: Any,
    *,
    shapes: Sequence[str] | str = (),
    ranges: Sequence[str] | str = (),
    arguments: Mapping[str, Any] | None = None,
    weights: str | None = None,
    samples: str | None = None,
    rtol: float | None = None,
    layers: bool = False,
) -> Comparison:
    """Runs ``a`` and ``b`` on the same inputs; ``a`` is right by definition.

    Args:
        a, b: each what :func:`~.api.export` takes, or the path of an ``.onnx``, ``.ort`` or
            ``.pfb`` file.
        shapes, ranges, arguments, weights, samples, rtol: as :func:`~.api.export` has them.
            ``shapes`` may be left out when one of the two says what it takes.
        layers: compare intermediate results too, to find where the two part.

    Raises:
        ExportError: one cannot be opened, ``a`` fails, or they do not take the same inputs.
    """
    from .api import listed

    STATIC_LOCK.open()
    first, second = _opened(a, b, listed(shapes), listed(ranges), arguments, weights)
    signature = _common(first, second)
    cases = CaseMaker(replace_signature(first, signature), samples).cases(signature)
    found = Comparison(first.label, second.label)
    for case in cases:
        _compare_case(found, second, case, rtol)
    if not found.differ.startswith(_FAILS):
        found.a_ms, found.b_ms = _latencies(first, second, cases[0])
    if layers:
        found.layers = _layers(first, second, signature, cases[0], found.ok)
    return found


_FAILS = "fails: "


def _opened(
    a: Any,
    b: Any,
    shapes: list[str],
    ranges: list[str],
    arguments: Mapping[str, Any] | None,
    weights: str | None,
) -> tuple[Source, Source]:
    """Both; one from Python takes the inputs of the other where no shapes were given."""
    from .api import open_source
    from .saved_model import model_files

    threads = options.threads or usable_cores()
    opened: list[Source | None] = []
    for one in (a, b):
        path = os.fspath(one) if isinstance(one, (str, os.PathLike)) else ""
        if path and is_artefact(path):
            opened.append(open_artefact(path, threads))
        elif path and model_files(path):
            opened.append(open_source(path, shapes, ranges, None, None))
        else:
            opened.append(None)
    known = next((one for one in opened if one is not None), None)
    if not shapes and known is not None:
        shapes = [str(one) for one in known.signature.inputs]
    made = [
        open_source(one, shapes, ranges, arguments, weights) if found is None else found
        for one, found in zip((a, b), opened)
    ]
    return made[0], made[1]


def _common(first: Source, second: Source) -> Signature:
    """The signature of ``first`` with the sizes fixed that ``second`` fixes."""
    ours, theirs = first.signature, second.signature
    if len(ours.inputs) != len(theirs.inputs):
        raise ExportError(
            f"{first.label} takes {len(ours.inputs)} inputs, {second.label} {len(theirs.inputs)}"
        )
    sizes: dict[str, int] = {}
    for mine, other in zip(ours.inputs, theirs.inputs):
        fits = len(mine.dims) == len(other.dims) and mine.dtype == other.dtype
        for dim, wanted in zip(mine.dims, other.dims):
            if isinstance(wanted, int):
                fits &= wanted == (sizes.setdefault(dim, wanted) if isinstance(dim, str) else dim)
        if not fits:
            raise ExportError(f"{first.label} takes {mine}, {second.label} takes {other}")
    inputs = tuple(
        replace(one, dims=tuple(sizes.get(d, d) if isinstance(d, str) else d for d in one.dims))
        for one in ours.inputs
    )
    ranges = ours.ranges or theirs.ranges
    return Signature(inputs, {n: s for n, s in ranges.items() if n not in sizes})


@dataclass
class _As:
    """A source under another signature, for the making of cases."""

    inner: Source
    signature: Signature

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def replace_signature(source: Source, signature: Signature) -> Any:
    """``source``, but it says that it takes ``signature``."""
    return _As(source, signature)


def _compare_case(found: Comparison, second: Source, case: Case, rtol: float | None) -> None:
    try:
        outputs = second.run(case.inputs)
    except Exception as error:  # whatever the other model or its runtime raises
        found.differ = found.differ or f"{_FAILS}{type(error).__name__}: {str(error)[:300]}"
        return
    names = getattr(second, "output_names", None) or [f"output_{i}" for i in range(len(case.want))]
    for name, got, want in zip(names, outputs, case.want):
        absolute, relative, why = difference(got, want, narrow=False)
        if why is None:
            found.rows.append((case.label, name, absolute, relative))
    try:
        check([case], [outputs], names, rtol=rtol)
    except ExportError as error:
        found.differ = found.differ or str(error)


def _latencies(first: Source, second: Source, case: Case) -> tuple[float, float]:
    """Milliseconds of one call of each, in blocks that take turns."""
    times: list[list[float]] = [[], []]
    for _ in range(_ROUNDS):
        for source, mine in zip((first, second), times):
            time.sleep(_PAUSE_S)
            begun = time.perf_counter()
            for call in range(_WAKING + _TIMED):
                started = time.perf_counter()
                source.run(case.inputs)
                if call >= _WAKING or not mine:
                    mine.append(time.perf_counter() - started)
                if time.perf_counter() - begun > _LONGEST_S:
                    break
    a, b = (statistics.median(one[1:] or one) * 1e3 for one in times)
    return a, b


def _layers(
    first: Source, second: Source, signature: Signature, case: Case, agree: bool
) -> Parting:
    values: list[list[Layer]] = []
    for source in (first, second):
        try:
            values.append(values_of(source, signature, case.inputs))
        except BoostError as error:
            raise ExportError(f"--layers: {source.label}: {error}") from error
    return part(values[0], values[1], agree)


def _render(found: Comparison) -> str:
    head = [say(f"compare.{k}") for k in ("case", "output", "max_abs", "max_rel")]
    rows = [[case, name, f"{a:.2e}", f"{r:.2e}"] for case, name, a, r in found.rows]
    lines = aligned([head, *rows]) if rows else []
    if found.layers is not None:
        lines += ["", *_render_layers(found.layers), ""]
    if found.a_ms is not None and found.b_ms is not None:
        lines.append(say("compare.latency", a=found.a, b=found.b, a_ms=found.a_ms, b_ms=found.b_ms))
    if found.differ.startswith(_FAILS):
        lines.append(say("compare.fails", path=found.b, why=found.differ[len(_FAILS) :]))
    else:
        verdict = say("compare.differ", why=found.differ) if found.differ else say("compare.same")
        lines.append(verdict)
    return "\n".join(lines)


def _render_layers(found: Parting) -> list[str]:
    rows = [
        [name, "x".join(map(str, shape)), "-" if error is None else f"{error:.1e}", like]
        for name, shape, error, like in found.rows
    ]
    head = [say("compare.layer"), say("compare.shape"), say("compare.max_rel"), say("compare.like")]
    lines = aligned([head, *rows])
    if found.parts_at is not None:
        lines.append(say("compare.parts", after=found.after or "-", at=found.parts_at))
    return lines
