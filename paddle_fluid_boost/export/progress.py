"""Named steps on standard error: a bar on a terminal (with tqdm), a line per step elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from .messages import say


class Progress:
    """``progress.step("onnx", "convert")`` announces a step; the one before it is over."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar = None if quiet else _bar(total)
        self._started = time.perf_counter()
        self._last = ""

    def step(self, target: str, name: str) -> None:
        """Target ``target`` has reached step ``name`` (a key of the messages)."""
        text = f"{target}: {say('step.' + name)}" if target else say(f"step.{name}")
        if self._quiet or text == self._last:
            return
        self._last = text
        if self._bar is not None:
            self._bar.set_description_str(text)
            return
        print(f"[{time.perf_counter() - self._started:6.1f} s] {text}", file=sys.stderr, flush=True)

    def done(self) -> None:
        """One of the ``total`` parts is over."""
        if self._bar is not None:
            self._bar.update(1)

    def close(self) -> None:
        """Leaves the terminal clean.  Idempotent."""
        if self._bar is not None:
            self._bar.close()


def _bar(total: int) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:  # an extra: lines will do
        return None
    form = "{desc} |{bar:20}| {n_fmt}/{total_fmt} [{elapsed}]"
    return tqdm(total=total, bar_format=form, file=sys.stderr, leave=False)
