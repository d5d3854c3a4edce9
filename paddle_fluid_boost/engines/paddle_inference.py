"""Paddle Inference on CPU as an engine: plain, and with oneDNN."""

from __future__ import annotations

import threading
from typing import Any

from ..capture.program import CapturedProgram, Slot
from ..errors import EngineError
from ..hardware.advice import most_threads
from ..options import options
from . import _paddle as pd
from . import paddle_inference_safety as safety
from . import verdicts
from .openmp import math_threads
from .paddle_inference_config import PredictorSettings, make_config
from .paddle_inference_export import ExportedModel, exported
from .paddle_inference_run import PredictorExecutable, error_summary
from .probe_client import PROBE, ProbeUnavailable

#: Bytes of one element of what a predictor takes.
ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
#: Merges equal outputs into one, which the predictor then cannot find.
CSE = "common_subexpression_elimination_pass"
#: Probe verdicts remembered; the oldest goes.
_MAX_VERDICTS = 64


class PaddleInference:
    """Builds predictors.  Settings: ``onednn`` (bool) and ``threads`` (int, at least 1)."""

    name = "paddle_inference"

    def __init__(self) -> None:
        self._verdicts: dict[tuple[Any, ...], str | None] = {}
        self._verdicts_lock = threading.Lock()

    def unavailable(self) -> str | None:
        """Why this engine cannot be used on this machine, or None when it can."""
        inference = getattr(pd.paddle, "inference", None)
        if inference is None:
            return "this build of Paddle has no paddle.inference"
        for name in ("Config", "create_predictor", "Predictor"):
            if not hasattr(inference, name):
                return f"paddle.inference of Paddle {pd.paddle.__version__} has no {name}"
        for name in ("enable_new_ir", "enable_new_executor", "delete_pass"):
            if not hasattr(inference.Config, name):
                return f"paddle.inference.Config of Paddle {pd.paddle.__version__} has no {name}"
        return None

    def candidates(self, captured: CapturedProgram) -> list[dict[str, Any]]:
        """The settings worth trying for this program, most promising first."""
        threads = options.threads or most_threads()
        plain = {"onednn": False, "threads": threads}
        names = captured.op_names
        empty = any(0 in slot.shape for slot in captured.inputs)  # oneDNN: std::exception
        if (
            not pd.has_onednn()
            or empty
            or not safety.gains_from_onednn(names)
            or safety.hopeless(names)
        ):
            return [plain]
        if safety.unproven(names) and not options.probe_in_child:
            return [plain]
        return [{"onednn": True, "threads": threads}, plain]

    def build(self, captured: CapturedProgram, settings: dict[str, Any]) -> PredictorExecutable:
        """Builds one candidate.

        Raises:
            EngineError: the settings are wrong, the program has a dtype a predictor does not
                take, the probe child found it to be dangerous, or Paddle refused it.
        """
        wanted = _checked(settings)
        for slot in (*captured.inputs, *captured.outputs):
            if slot.dtype not in ITEM_BYTES:
                raise EngineError(f"{self.name}: '{slot.name}' has dtype {slot.dtype}")
        names = captured.op_names
        notes = [f"Paddle Inference {pd.paddle.__version__}, {wanted['threads']} thread(s)"]
        with exported(captured, onednn=wanted["onednn"]) as model:
            left_out: tuple[str, ...] = (CSE,) if model.predictor_outputs > 1 else ()
            if wanted["onednn"]:
                cures = safety.passes_to_leave_out(names)
                left_out += cures
                notes += [f"without {name}: the hardware library knows a fault" for name in cures]
                notes.append(f"oneDNN keeps {options.onednn_cache_capacity} input shapes")
            final = PredictorSettings(
                wanted["onednn"], wanted["threads"], options.onednn_cache_capacity, left_out
            )
            unproven = safety.unproven(names) if final.onednn else []
            if unproven:
                self._probe(captured, model, final, unproven)
                notes.append(f"tried in a child process first, because of {', '.join(unproven)}")
            predictor = _create(model, final)
        return PredictorExecutable(
            predictor,
            engine=self.name + ("+onednn" if final.onednn else ""),
            input_names=[slot.name for slot in captured.inputs],
            output_order=model.output_order,
            per_thread_caches=final.onednn,
            nbytes=_held_bytes(captured, model, final),
            notes=notes,
        )

    def _probe(
        self,
        captured: CapturedProgram,
        model: ExportedModel,
        settings: PredictorSettings,
        unproven: list[str],
    ) -> None:
        """Raises EngineError unless the child process survives this predictor."""
        about = f"{self.name}+onednn: {', '.join(unproven)} may be unsafe under oneDNN"
        if not options.probe_in_child:
            raise EngineError(f"{about}, and options.probe_in_child is off")
        verdict = self._verdict(captured, model, settings)
        if verdict is not None:
            raise EngineError(f"{about}; in a child process it {verdict}")

    def _verdict(
        self,
        captured: CapturedProgram,
        model: ExportedModel,
        settings: PredictorSettings,
    ) -> str | None:
        """What the probe child says, or said before about the same program with other weights.

        Shapes matter: the same net may do no harm with 8 channels and crash with 64.
        """
        shapes = tuple((name, tuple(t.shape)) for name, t in sorted(captured.parameters.items()))
        key = (*captured.op_names, *captured.inputs, *shapes, settings)
        with self._verdicts_lock:
            if key in self._verdicts:
                return self._verdicts[key]
        known = verdicts.recall(captured, settings)
        if known is not None:
            self._remember(key, known.wrong)
            return known.wrong
        request = {
            "model": model.model,
            "params": model.params,
            "settings": settings.to_dict(),
            "inputs": [(slot.name, slot.shape, slot.dtype) for slot in captured.inputs],
        }
        try:
            verdict = PROBE.ask(request, options.compile_timeout_s)
        except ProbeUnavailable as error:
            raise EngineError(f"{self.name}+onednn: cannot be probed: {error}") from error
        verdicts.keep(captured, settings, verdict)
        self._remember(key, verdict)
        return verdict

    def _remember(self, key: tuple[Any, ...], verdict: str | None) -> None:
        with self._verdicts_lock:
            while len(self._verdicts) >= _MAX_VERDICTS:
                del self._verdicts[next(iter(self._verdicts))]
            self._verdicts[key] = verdict


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """``settings`` if they are what this engine takes; EngineError otherwise."""
    if set(settings) != {"onednn", "threads"}:
        raise EngineError(f"paddle_inference: settings need onednn and threads, got {settings}")
    if type(settings["threads"]) is not int or settings["threads"] < 1:
        raise EngineError(f"paddle_inference: threads must be at least 1, got {settings}")
    if settings["onednn"] and not pd.has_onednn():
        raise EngineError("paddle_inference: this build of Paddle has no oneDNN")
    return settings


def _create(model: ExportedModel, settings: PredictorSettings) -> Any:
    """A predictor; this thread's and MKL's number of threads is what it was.

    The interpreter lock is free meanwhile.
    """
    threads = math_threads()
    try:
        config = make_config(model.model, model.params, settings)
        return pd.paddle.inference.create_predictor(config)
    except Exception as error:
        raise EngineError(f"paddle_inference: {error_summary(error)}") from error
    finally:
        pd.set_math_threads(threads)


def _held_bytes(
    captured: CapturedProgram, model: ExportedModel, settings: PredictorSettings
) -> int:
    """An estimate: parameters (oneDNN keeps them in its own layout too), inputs and outputs."""
    ends = sum(slot_bytes(slot) for slot in (*captured.inputs, *captured.outputs))
    return model.parameter_bytes * (2 if settings.onednn else 1) + ends


def slot_bytes(slot: Slot) -> int:
    """Bytes of one tensor; an open dimension counts as 1."""
    count = 1
    for size in slot.shape:
        count *= max(size, 1)
    return count * ITEM_BYTES[slot.dtype]
