"""Whether an artefact's outputs are the model's own: the gate that every artefact passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..engines.compare import inexact_errors
from ..errors import ExportError
from .cases import Case

#: Largest error relative to the range of an output, by its dtype.
_RTOL = {"float16": 5e-3, "float64": 1e-4}
_DEFAULT_RTOL = 1e-4
#: A badly conditioned output may be off by so many times what a nudge of the inputs moves it.
_AS_FAR = 4.0


@dataclass
class Accuracy:
    """The worst over all cases and outputs.

    cases: how many were compared.  max_abs: largest difference.  max_rel: largest difference
    relative to the largest magnitude of that output.
    """

    cases: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0


def check(
    cases: Sequence[Case],
    got: Sequence[Sequence[np.ndarray]],
    names: Sequence[str],
    *,
    rtol: float | None = None,
    narrow: bool = False,
) -> Accuracy:
    """Compares what an artefact gave for ``cases``.

    Args:
        names: of the outputs.
        rtol: allowed error relative to the range of an output; default by dtype, 1e-4 for float32.
        narrow: the runtime has no 64-bit types; int32 for int64 and float32 for float64 will do.

    Raises:
        ExportError: an output differs; the message names the case, the output and both errors.
    """
    found = Accuracy()
    for case, outputs in zip(cases, got):
        if len(outputs) != len(case.want):
            raise ExportError(f"gave {len(outputs)} outputs instead of {len(case.want)}")
        for number, (name, one, want) in enumerate(zip(names, outputs, case.want)):
            absolute, relative, why = difference(one, want, narrow)
            allowed = rtol or _RTOL.get(str(want.dtype), _DEFAULT_RTOL)
            if why is None and not relative <= allowed and not _is_rounding(case, number, absolute):
                why = (
                    f"largest error {absolute:.3g}, {relative:.3g} of the range "
                    f"(allowed {allowed:g})"
                )
            if why is not None:
                raise ExportError(f"output '{name}' is wrong for {case.label}: {why}")
            found.max_abs = max(found.max_abs, absolute)
            found.max_rel = max(found.max_rel, relative)
        found.cases += 1
    return found


def _is_rounding(case: Case, number: int, absolute: float) -> bool:
    """Whether the difference is two roundings of 1 (what a sigmoid near 0 is right to), or no more
    than what this output moves when the model's inputs change in their last digits."""
    dtype = case.want[number].dtype
    if dtype.kind == "f" and absolute <= 2 * np.finfo(dtype).eps:
        return True
    return absolute <= _AS_FAR * case.moved()[number]


def difference(got: np.ndarray, want: np.ndarray, narrow: bool) -> tuple[float, float, str | None]:
    """Largest absolute and relative difference, and what makes a comparison pointless."""
    if got.shape != want.shape:
        return 0.0, 0.0, f"shape {list(got.shape)} instead of {list(want.shape)}"
    if got.dtype != want.dtype and not (narrow and got.dtype.kind in "iufb"):
        return 0.0, 0.0, f"dtype {got.dtype} instead of {want.dtype}"
    if want.dtype.kind not in "fc":
        wrong = int((got != want).sum())
        return float(wrong > 0), 0.0, f"{wrong} of {want.size} values differ" if wrong else None
    errors = inexact_errors(got, want)
    return (*errors, None) if errors else (0.0, 0.0, "NaN or infinity in other places")
