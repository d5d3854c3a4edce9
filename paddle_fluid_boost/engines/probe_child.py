"""The child process that first runs what may crash: ``python -m ...engines.probe_child``.

It reads one JSON request a line from standard input and answers one JSON line, marked with
``ANSWER``, on standard output.  It leaves when its input ends or after a minute without work.  A
request that crashes it is answered by its death.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any, TextIO

import numpy as np

#: Starts a line that answers; anything else on standard output is somebody's noise.
ANSWER = "pfb-probe "
IDLE_SECONDS = 60.0
#: Uninitialised memory may look right once: so look more than once.
_RUNS = 3
#: Far looser than the check against eager that every version meets later.
_TOLERANCE = 1e-2


def example_input(shape: list[int], dtype: Any, rng: np.random.Generator) -> Any:
    """A tensor of ``shape`` (-1 becomes 2): floats in [-1, 1), integers and bools 0 or 1.

    ``dtype`` is a name, as in a Slot.
    """
    from . import _paddle as pd

    fixed = [2 if n < 0 else n for n in shape]
    if "float" in dtype or "complex" in dtype:
        values = rng.uniform(-1, 1, fixed).astype("float32")
    else:
        values = rng.integers(0, 2, fixed)
    return pd.paddle.to_tensor(values).astype(dtype)


def difference(got: Any, want: Any) -> float:
    """Largest error relative to the range of ``want``; infinite where only one is finite."""
    a = got.astype("float64").numpy()
    b = want.astype("float64").numpy()
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    if not finite.any():
        return 0.0
    scale = max(float(np.ptp(b[finite])), float(np.abs(b[finite]).max()) * 1e-3, 1e-30)
    return float(np.abs(a[finite] - b[finite]).max()) / scale


def probe(request: dict[str, Any]) -> str | None:
    """Runs the predictor beside a plain one; None, or what is wrong: "returns ...", "raises ...".

    Args:
        request: ``model`` and ``params`` (paths), ``settings`` (PredictorSettings as a dict),
            ``inputs`` (name, shape and dtype of each).
    """
    from . import _paddle as pd
    from .paddle_inference_config import PredictorSettings, make_config

    fields = {**request["settings"], "left_out": tuple(request["settings"]["left_out"])}
    suspect_settings = PredictorSettings(**fields)
    create = pd.paddle.inference.create_predictor
    # The suspect first: building another before it could change what it meets in the parent.
    suspect = create(make_config(request["model"], request["params"], suspect_settings))
    plain_settings = PredictorSettings(**{**fields, "onednn": False})
    plain = create(make_config(request["model"], request["params"], plain_settings))
    specs = {name: (shape, dtype) for name, shape, dtype in request["inputs"]}
    rng = np.random.default_rng(0)
    for _ in range(_RUNS):
        feeds = [example_input(*specs[name], rng) for name in suspect.get_input_names()]
        got = [pd.copy_tensor(t) for t in suspect.run(feeds)]
        want = plain.run(feeds)
        worst = max((difference(a, b) for a, b in zip(got, want)), default=0.0)
        if not worst <= _TOLERANCE:
            return f"returns wrong values (error {worst:.2g} of the output's range)"
    return None


def probe_device(request: dict[str, Any]) -> str | None:
    """The same for an accelerator; see ``probe_device.py``."""
    from .probe_device import probe_device

    return probe_device(request)


def answer(request: dict[str, Any]) -> str | None:
    """What a request of any kind comes to: None, or what is wrong."""
    if "tensorrt" in request:
        from .tensorrt_child import convert

        convert(request["tensorrt"])
        return None
    return probe_device(request) if "device" in request else probe(request)


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answers requests until the input ends or nothing comes for ``IDLE_SECONDS``."""
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        line = requests.readline()
        if not line:
            return
        try:
            request = json.loads(line)
            wrong = answer(request)
        except Exception as error:  # whatever Paddle throws is the answer
            wrong = f"raises {type(error).__name__}: {str(error).strip()[-300:]}"
        answers.write(ANSWER + json.dumps({"wrong": wrong}) + "\n")
        answers.flush()


def main() -> None:
    """Serves on standard input and output, at low priority, with all other output silenced."""
    os.nice(10)
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
