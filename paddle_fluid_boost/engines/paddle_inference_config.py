"""The inference Config of one candidate; used by the engine and by the probe child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import _paddle as pd


@dataclass(frozen=True)
class PredictorSettings:
    """How a predictor is built.

    onednn: with oneDNN kernels and fusions.
    threads: threads of its kernels, at least 1.
    onednn_cache_capacity: input shapes whose oneDNN primitives are kept.
    left_out: names of Paddle passes to leave out.
    """

    onednn: bool
    threads: int
    onednn_cache_capacity: int
    left_out: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values that go through JSON."""
        return asdict(self)


def make_config(model: str, params: str, settings: PredictorSettings) -> Any:
    """A fresh ``paddle.inference.Config`` (a Config serves one predictor only).

    Args:
        model: path of the program's ``.json``.
        params: path of the ``.pdiparams``, or "" for a program without parameters.
    """
    config = pd.paddle.inference.Config(model, params)
    # Hushes Paddle's log below errors for the whole process; the only way to keep the predictor's
    # own lines, dozens for each build, out of the user's terminal.
    config.disable_glog_info()
    if settings.onednn:
        pd.config_method(config, "enable_onednn")()
        pd.config_method(config, "set_onednn_cache_capacity")(settings.onednn_cache_capacity)
    elif pd.has_onednn():
        pd.config_method(config, "disable_onednn")()
    run_by_new_executor(config, settings.left_out)
    config.set_cpu_math_library_num_threads(settings.threads)
    return config


def run_by_new_executor(config: Any, left_out: Sequence[str]) -> None:
    """Has a Config run PIR programs, but for the passes ``left_out``, with planned memory."""
    for name in left_out:
        config.delete_pass(name)
    config.enable_new_ir(True)
    config.enable_new_executor(True)  # enable_memory_optim has no effect without it
    config.enable_memory_optim(True)
