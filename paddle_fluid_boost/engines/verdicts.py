"""What the probe child has said about a predictor is kept for the next process.

A wrong "harmless" could end the user's process, so this is believed only for the very same program
with the very same weights, settings, software and machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cache import store
from ..cache.programs import program_key
from ..cache.surroundings import key, surroundings
from ..capture.program import CapturedProgram
from .dense import fingerprint

if TYPE_CHECKING:
    from .paddle_inference_config import PredictorSettings

_KIND = "probe"
#: Beginnings of what a busy or small machine may be to blame for: asked anew the next time.
_PASSING = ("gives no answer", "leaves without", "ends the process", "crashes the process (SIGKILL")


@dataclass(frozen=True)
class Verdict:
    """wrong: what the predictor does wrong, as the end of a sentence, or None."""

    wrong: str | None


def recall(captured: CapturedProgram, settings: PredictorSettings) -> Verdict | None:
    """What an earlier process was told, or None."""
    if store.path() is None:
        return None
    value = store.read(_KIND, _name(captured, settings))
    if value is None or "wrong" not in value:
        return None
    wrong = value["wrong"]
    return Verdict(wrong) if wrong is None or isinstance(wrong, str) else None


def keep(captured: CapturedProgram, settings: PredictorSettings, wrong: str | None) -> None:
    """Writes down what the child said."""
    if store.path() is None or (wrong is not None and wrong.startswith(_PASSING)):
        return
    about = {
        "wrong": wrong,
        "settings": settings.to_dict(),
        "inputs": [f"{slot.dtype}{list(slot.shape)}" for slot in captured.inputs],
        "ops": len(captured.op_names),
    }
    store.write(_KIND, _name(captured, settings), {"wrong": wrong}, about)


def _name(captured: CapturedProgram, settings: PredictorSettings) -> str:
    weights = [fingerprint(tensor) for tensor in captured.parameters.values()]
    return key(_KIND, program_key(captured), weights, settings.to_dict(), surroundings())
