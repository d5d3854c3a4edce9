"""Which candidate an earlier process chose for a program.

It says where to begin, nothing more: the candidate is built anew, must be among those that the
engine offers here and now, is compared with eager like any other, and is timed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..cache import store
from ..cache.programs import program_key
from ..cache.surroundings import key, surroundings
from ..capture.program import CapturedProgram

_KIND = "choice"
#: Seconds after which candidates are measured against each other again: the day on which a choice
#: was made may have been a busy one.
TRUSTED = 7 * 86400.0


@dataclass(frozen=True)
class Remembered:
    """What is known of one program.

    best: the label of the candidate that won, "" when nothing is known.
    """

    name: str = ""
    best: str = ""


def recall(captured: CapturedProgram) -> Remembered:
    """What an earlier process, on this machine and with this software, has found."""
    if store.path() is None:
        return Remembered()
    name = key(_KIND, program_key(captured), surroundings())
    value = store.read(_KIND, name) or {}
    best, made = value.get("best"), value.get("made")
    if isinstance(best, str) and isinstance(made, float) and 0 <= time.time() - made < TRUSTED:
        return Remembered(name, best)
    return Remembered(name)


def keep(
    known: Remembered, captured: CapturedProgram, best: str, eager: float, compiled: float
) -> None:
    """Writes down that ``best`` won; ``eager`` and ``compiled`` are seconds of one run."""
    if not known.name or best == known.best:
        return
    value = {"best": best, "made": time.time(), "eager": eager, "compiled": compiled}
    about = {
        "best": best,
        "eager_ms": round(eager * 1e3, 3),
        "compiled_ms": round(compiled * 1e3, 3),
        "inputs": [f"{slot.dtype}{list(slot.shape)}" for slot in captured.inputs],
        "ops": len(captured.op_names),
    }
    store.write(_KIND, known.name, value, about)
