"""``pfb.load``: a bundle as a callable that is warm from its first call."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ..engines.dense import dense
from ..engines.native.engine import NativeEngine, build_plan
from ..engines.paddle_inference_run import PredictorExecutable
from ..errors import BundleError, EngineError
from .bundle_file import read_bundle
from .graph_json import graph_from_dict
from .predictor import open_predictor
from .structure import Template, rebuild

Shapes = tuple[tuple[int, ...], ...]
#: A plan is warm after some calls: threads are awake, and a small plan knows how many it wants.
_FEWEST_CALLS, _MOST_CALLS, _WARM_UP_S = 3, 32, 0.05
_MODEL, _PARAMS = "paddle/model.json", "paddle/model.pdiparams"


class LoadedModel:
    """A model from a bundle.  Calls take and return eager tensors; no gradients flow.

    card: who made it, with which versions, on which machine.
    inputs: name, dtype and dims of each input; a name among dims is a size that may vary.
    notes: what was built, and what was not and why.
    """

    def __init__(self, path: str) -> None:
        manifest, contents = read_bundle(path)
        try:
            self.card: dict[str, Any] = dict(manifest["card"])
            self.inputs: list[dict[str, Any]] = [_checked(one) for one in manifest["inputs"]]
            self.output_names: list[str] = [str(name) for name in manifest["outputs"]]
            self._template: Template = manifest["template"]
            plans = [(_shapes(p["shapes"]), p["graph"], p["settings"]) for p in manifest["plans"]]
            self._example = _shapes(manifest["example"])
            model, params = contents[_MODEL], contents.get(_PARAMS, b"")
            rebuild(self._template, self.output_names)
        except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise BundleError(f"{path}: the manifest is damaged: {error!r}") from error
        self.path = path
        self.notes: list[str] = []
        self._model = (model, params)
        self._lock = threading.Lock()
        self._other: PredictorExecutable | None = None
        self._plans: dict[Shapes, Any] = {}
        self._build(plans, contents)
        self._warm_up()

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The model's result, nested as the exported model's was.

        Args:
            inputs: tensors or numpy arrays, in order; or by name.

        Raises:
            BundleError: an input is missing, or has another dtype or a shape that does not fit.
        """
        tensors = self._tensors(inputs, named)
        key = tuple(tuple(tensor.shape) for tensor in tensors)
        with paddle.no_grad():
            plan = self._plans.get(key)
            outputs = (self._fallback() if plan is None else plan)(tensors)
        return rebuild(self._template, outputs)

    @property
    def plans(self) -> list[Shapes]:
        """The shapes that have a native plan; others run in Paddle Inference."""
        return list(self._plans)

    def close(self) -> None:
        """Frees everything.  Idempotent."""
        for plan in self._plans.values():
            plan.close()
        self._plans.clear()
        with self._lock:
            if self._other is not None:
                self._other.close()

    def __repr__(self) -> str:
        takes = ", ".join(f"{one['name']}: {one['dtype']}{one['dims']}" for one in self.inputs)
        return f"<LoadedModel {self.card.get('model')} ({takes}), {len(self._plans)} native plans>"

    # -- building ----------------------------------------------------------------------------------

    def _build(self, plans: Sequence[tuple[Shapes, str, Any]], contents: dict[str, bytes]) -> None:
        if not plans:
            return
        reason = NativeEngine().unavailable()
        if reason is not None:
            self.notes.append(f"all calls run in Paddle Inference: {reason}")
            return
        constants = np.frombuffer(contents.get("graphs/constants.bin", b""), np.uint8)
        for shapes, name, settings in plans:
            try:
                graph = graph_from_dict(json.loads(contents[name]), constants)
            except (KeyError, ValueError, RecursionError) as error:
                raise BundleError(f"{self.path}: {name}: {error}") from error
            if [value.shape for value in graph.inputs] != list(shapes):
                raise BundleError(f"{self.path}: {name} takes other shapes than the manifest says")
            if len(graph.outputs) != len(self.output_names):
                raise BundleError(f"{self.path}: {name} has other outputs than the manifest says")
            try:
                self._plans[shapes] = build_plan(graph, _settings(settings))
                self.notes.append(f"native plan for {[list(shape) for shape in shapes]}")
            except EngineError as error:
                self.notes.append(f"{name} runs in Paddle Inference: {error}")

    def _warm_up(self) -> None:
        """Every plan runs a few times, so that the user's first call finds everything in place."""
        for shapes in list(self._plans) or [self._example]:
            zeros = [
                paddle.zeros(list(shape), one["dtype"]) for shape, one in zip(shapes, self.inputs)
            ]
            try:
                started, calls = time.perf_counter(), 0
                while calls < _FEWEST_CALLS or (
                    calls < _MOST_CALLS and time.perf_counter() - started < _WARM_UP_S
                ):
                    self(*zeros)
                    calls += 1
            except EngineError as error:  # a model that zeros do not suit
                self.notes.append(f"not warmed up: {error}")

    def _fallback(self) -> PredictorExecutable:
        """Paddle Inference without oneDNN, made when first needed."""
        with self._lock:
            if self._other is None:
                self._other = self._predictor()
            return self._other

    def _predictor(self) -> PredictorExecutable:
        with tempfile.TemporaryDirectory(prefix="pfb-load-") as folder:
            model, params = os.path.join(folder, "model.json"), os.path.join(folder, "params")
            for path, content in zip((model, params), self._model):
                with open(path, "wb") as file:
                    file.write(content)
            return open_predictor(
                model,
                params if self._model[1] else "",
                [one["name"] for one in self.inputs],
                len(self.output_names),
            )

    # -- arguments ---------------------------------------------------------------------------------

    def _tensors(self, inputs: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        names = [one["name"] for one in self.inputs]
        given = dict(zip(names, inputs))
        if len(inputs) > len(names) or given.keys() & named.keys() or named.keys() - set(names):
            raise BundleError(f"takes ({', '.join(names)}), got {len(inputs)} and {list(named)}")
        given.update(named)
        missing = [name for name in names if name not in given]
        if missing:
            raise BundleError(f"input '{missing[0]}' is missing; takes ({', '.join(names)})")
        sizes: dict[str, int] = {}
        return [_fitting(one, given[one["name"]], sizes) for one in self.inputs]


def _fitting(one: dict[str, Any], value: Any, sizes: dict[str, int]) -> Any:
    """``value`` as a dense tensor; ``sizes`` collects what the names stand for in this call."""
    tensor = value if isinstance(value, paddle.Tensor) else paddle.to_tensor(np.asarray(value))
    dtype, shape = str(tensor.dtype).rpartition(".")[2], list(tensor.shape)
    fits = dtype == one["dtype"] and len(shape) == len(one["dims"])
    if fits:
        for size, dim in zip(shape, one["dims"]):
            fits &= size == (dim if isinstance(dim, int) else sizes.setdefault(dim, size))
    if not fits:
        raise BundleError(
            f"input '{one['name']}' must be {one['dtype']}{one['dims']}, got {dtype}{shape}"
            + (f" where {sizes}" if sizes else "")
        )
    return dense(tensor)


def _checked(one: dict[str, Any]) -> dict[str, Any]:
    known = all(isinstance(dim, (int, str)) for dim in one["dims"])
    if not known or not isinstance(one["name"], str) or not isinstance(one["dtype"], str):
        raise ValueError(f"not an input: {one!r}")
    return {"name": one["name"], "dtype": one["dtype"], "dims": list(one["dims"])}


def _shapes(stored: Any) -> Shapes:
    shapes = tuple(tuple(shape) for shape in stored)
    if not all(type(side) is int and side > 0 for shape in shapes for side in shape):
        raise ValueError(f"not shapes: {stored!r}")
    return shapes


def _settings(stored: Any) -> dict[str, Any]:
    return {name: stored[name] for name in ("layout", "algorithm") if name in stored}


def load(path: str | os.PathLike[str]) -> LoadedModel:
    """The model in the bundle at ``path``; see :class:`LoadedModel`.

    Reading executes nothing of the file: it holds numbers, JSON and a Paddle model.

    Raises:
        BundleError: the file is missing, damaged, changed, or not a bundle.
    """
    return LoadedModel(os.fspath(path))
