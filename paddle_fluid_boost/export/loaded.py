"""``pfb.load``: a bundle as a callable that is warm from its first call."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ..engines.dense import on_host
from ..engines.native.engine import NativeEngine
from ..errors import BoostError, BundleError, EngineError
from ..hardware.devices import CPU, Device, parse_device
from .bundle_file import read_bundle
from .graph_json import graph_from_dict
from .on_device import check_device, open_on_device
from .other_runtimes import MODEL, ONNX, PARAMS, open_fastest
from .spec import DTYPES
from .structure import Template, rebuild
from .tuned_plan import example_inputs, tuned_plan

Shapes = tuple[tuple[int, ...], ...]
#: A plan is warm after some calls: threads are awake, and a small plan knows how many it wants.
_FEWEST_CALLS, _MOST_CALLS, _WARM_UP_S = 3, 32, 0.05


class LoadedModel:
    """A model from a bundle.  Calls take and return eager tensors; no gradients flow.

    card: who made it, with which versions, on which machine.
    device: where it runs.
    inputs: name, dtype and dims of each input; a name among dims is a size that may vary.
    notes: what was built, and what was not and why.
    """

    def __init__(self, path: str, device: Device = CPU, *, tensorrt: bool = False) -> None:
        if device != CPU:
            check_device(device, with_tensorrt=tensorrt)
        manifest, contents = read_bundle(path)
        try:
            self.card: dict[str, Any] = dict(manifest["card"])
            self.inputs: list[dict[str, Any]] = [_checked(one) for one in manifest["inputs"]]
            self.output_names: list[str] = [str(name) for name in manifest["outputs"]]
            self._template: Template = manifest["template"]
            plans = [(_shapes(p["shapes"]), p["graph"], _tuned(p)) for p in manifest["plans"]]
            self._example = _shapes(manifest["example"])
            self._ranges = _ranges(manifest.get("ranges", {}))  # older bundles have none
            self._models = {n: contents[n] for n in (MODEL, PARAMS, ONNX) if n in contents}
            if MODEL not in self._models:
                raise KeyError(MODEL)
            rebuild(self._template, self.output_names)
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            RecursionError,
        ) as error:
            raise BundleError(f"{path}: the manifest is damaged: {error!r}") from error
        self.path = path
        self.device = device
        self.notes: list[str] = []
        self._tensorrt = tensorrt
        self._closed = False
        self._lock = threading.Lock()
        self._other: Any = None
        self._plans: dict[Shapes, Any] = {}
        try:
            if device == CPU:
                self._build(plans, contents)
            else:
                self._fallback(())
            self._warm_up()
        except (BoostError, MemoryError):
            self.close()
            raise
        except Exception as error:  # hashes that fit do not make a graph one that engines can run
            self.close()
            raise BundleError(
                f"{path}: what it holds cannot be run: {type(error).__name__}: {error}"
            ) from error

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The model's result, nested as the exported model's was.

        Args:
            inputs: tensors or numpy arrays, in order; or by name.

        Raises:
            BundleError: an input is missing, or has another dtype or a shape that does not fit; or
                the models for other shapes cannot be loaded here.
        """
        return rebuild(self._template, self.outputs(self._tensors(inputs, named)))

    def outputs(self, tensors: Sequence[Any]) -> list[Any]:
        """The distinct outputs, in the order of ``output_names``, for tensors that fit."""
        key = tuple(tuple(tensor.shape) for tensor in tensors)
        with paddle.no_grad():
            plan = self._plans.get(key)
            if plan is not None:
                return list(plan(tensors))
            serving = self._fallback(tensors)
            try:
                return list(serving(tensors))
            except EngineError:
                self._let_go(serving)
                raise

    def _let_go(self, serving: Any) -> None:
        """An accelerator that failed gives everything back: the next call opens the model anew."""
        with self._lock:
            if self.device != CPU and self._other is serving and not self._closed:
                self._other = None

    @property
    def plans(self) -> list[Shapes]:
        """The shapes that have a native plan; others run in Paddle Inference or ONNX Runtime."""
        return list(self._plans)

    def close(self) -> None:
        """Frees everything.  Idempotent."""
        for plan in self._plans.values():
            plan.close()
        self._plans.clear()
        with self._lock:
            self._closed = True
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
            self.notes.append(f"no native plan: {reason}")
            return
        constants = np.frombuffer(contents.get("graphs/constants.bin", b""), np.uint8)
        for shapes, name, tuned in plans:
            try:
                graph = graph_from_dict(json.loads(contents[name]), constants)
            except (KeyError, ValueError, RecursionError) as error:
                raise BundleError(f"{self.path}: {name}: {error}") from error
            if [value.shape for value in graph.inputs] != list(shapes):
                raise BundleError(f"{self.path}: {name} takes other shapes than the manifest says")
            if len(graph.outputs) != len(self.output_names):
                raise BundleError(f"{self.path}: {name} has other outputs than the manifest says")
            try:
                self._plans[shapes], how = tuned_plan(graph, tuned)
                self.notes.append(f"native plan for {[list(shape) for shape in shapes]}, {how}")
            except EngineError as error:
                self.notes.append(f"no native plan of {name}: {error}")

    def _warm_up(self) -> None:
        """Every plan runs a few times, so that the user's first call finds everything in place."""
        for shapes in list(self._plans) or [self._example]:
            zeros = example_inputs([(s, one["dtype"]) for s, one in zip(shapes, self.inputs)])
            try:
                started, calls = time.perf_counter(), 0
                while calls < _FEWEST_CALLS or (
                    calls < _MOST_CALLS and time.perf_counter() - started < _WARM_UP_S
                ):
                    self(*zeros)
                    calls += 1
            except EngineError as error:  # a model that zeros do not suit
                self.notes.append(f"not warmed up: {error}")

    def _fallback(self, example: Sequence[Any]) -> Any:
        """What runs calls without a plan, chosen on ``example`` when first needed."""
        with self._lock:
            if self._other is None and self.device != CPU:
                self._other = open_on_device(
                    self._models,
                    self.inputs,
                    len(self.output_names),
                    self.device,
                    self._example,
                    self._ranges,
                    with_tensorrt=self._tensorrt,
                )
                self.notes.append(f"runs in {self._other.engine}")
            elif self._other is None:
                names = [one["name"] for one in self.inputs]
                try:
                    self._other, why = open_fastest(
                        self._models, names, len(self.output_names), example
                    )
                except EngineError as error:
                    raise BundleError(f"{self.path}: {error}") from error
                self.notes.append(f"calls of other shapes run in {self._other.engine}: {why}")
            return self._other

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
        fitting = [_fitting(one, given[one["name"]], sizes) for one in self.inputs]
        return fitting if self.device != CPU else [on_host(tensor) for tensor in fitting]


def _fitting(one: dict[str, Any], value: Any, sizes: dict[str, int]) -> Any:
    """``value`` as a dense tensor; ``sizes`` collects what the names stand for in this call."""
    tensor = value
    if not isinstance(value, paddle.Tensor):
        tensor = paddle.to_tensor(np.asarray(value), place=paddle.CPUPlace())
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
    return tensor


def _checked(one: dict[str, Any]) -> dict[str, Any]:
    known = all(isinstance(dim, (int, str)) for dim in one["dims"])
    if not known or not isinstance(one["name"], str) or one["dtype"] not in DTYPES:
        raise ValueError(f"not an input: {one!r}")
    return {"name": one["name"], "dtype": one["dtype"], "dims": list(one["dims"])}


def _shapes(stored: Any) -> Shapes:
    shapes = tuple(tuple(shape) for shape in stored)
    if not all(type(side) is int and side > 0 for shape in shapes for side in shape):
        raise ValueError(f"not shapes: {stored!r}")
    return shapes


def _ranges(stored: Any) -> dict[str, list[int]]:
    ranges = {str(name): list(sizes) for name, sizes in stored.items()}
    if not all(type(size) is int and size > 0 for sizes in ranges.values() for size in sizes):
        raise ValueError(f"not ranges: {stored!r}")
    return ranges


def _tuned(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings by the machine that they were measured on."""
    return {str(key): dict(settings) for key, settings in plan["tuned"].items()}


def load(
    path: str | os.PathLike[str], device: str = "cpu", *, tensorrt: bool = False
) -> LoadedModel:
    """The model in the bundle at ``path``; see :class:`LoadedModel`.

    Reading executes nothing of the file: it holds numbers, JSON and a Paddle model.

    Args:
        device: where it runs.  ``"cpu"`` takes tensors from anywhere and returns them in the CPU's
            memory; an accelerator (``"npu"``, ``"gpu:1"``) returns them where it is, and runs the
            bundle's Paddle model (docs/devices.md).
        tensorrt: on a GPU, let TensorRT build engines for it, which takes minutes the first time.

    Raises:
        BundleError: the file is missing, damaged, changed, or not a bundle.
        EngineError: there is no such device, or it cannot take the model.
        ValueError: ``device`` names no device, or ``tensorrt`` is asked for without a GPU.
    """
    where = parse_device(device)
    if tensorrt and where.kind != "gpu":
        raise ValueError(f"load: tensorrt needs device='gpu', got {device!r}")
    return LoadedModel(os.fspath(path), where, tensorrt=tensorrt)
