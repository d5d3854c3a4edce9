"""A model on disk as a source: PIR ``.json`` or old ``.pdmodel``, with its ``.pdiparams``.

Its reference is Paddle Inference on the original files, without oneDNN (which is wrong or crashes
on some models).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..capture.lock import STATIC_LOCK
from ..capture.program import CapturedProgram, Slot
from ..capture.trace import dtype_name
from ..engines.paddle_inference_run import PredictorExecutable
from ..errors import CaptureRefused, EngineError, ExportError
from . import _paddle as pd
from .capturing import distinct_positions
from .output import REPORT
from .predictor import open_predictor
from .source import Captured, telling_line
from .spec import Signature, TensorSpec
from .specialise import specialised
from .structure import Template

_FORMATS = (".json", ".pdmodel")


def model_files(path: str) -> tuple[str, str] | None:
    """Program and parameter file of the saved model that ``path`` names, or None for another thing.

    ``path`` is the program file, or its prefix, or a folder with one model in it.  A ``.json`` may
    be without parameters, whose file is "" then.

    Raises:
        ExportError: there is no such file, or a folder holds no model or several.
    """
    if os.path.isdir(path):
        path = os.path.join(path, _only_model(path))
    elif not path.endswith(_FORMATS):
        path = next((path + end for end in _FORMATS if os.path.isfile(path + end)), path)
    if not path.endswith(_FORMATS):
        return None
    if not os.path.isfile(path):
        raise ExportError(f"no such file: {path}")
    params = os.path.splitext(path)[0] + ".pdiparams"
    if not os.path.isfile(params):
        if not path.endswith(".json"):
            raise ExportError(f"{path}: its parameters are missing, there is no {params}")
        params = ""
    return path, params


def _only_model(folder: str) -> str:
    names = set(os.listdir(folder)) - {REPORT}
    programs = sorted(name for name in names if name.endswith(_FORMATS))
    found = [name for name in programs if os.path.splitext(name)[0] + ".pdiparams" in names]
    found = found or [name for name in programs if name.endswith(".json")]
    if len(found) != 1:
        raise ExportError(
            f"{folder}: a folder with one saved model is needed, found "
            f"{', '.join(found) or 'none'} (NAME.json or NAME.pdmodel beside NAME.pdiparams)"
        )
    return found[0]


@dataclass
class SavedSource:
    """A saved model.  ``given`` may name and bound its open sizes; None takes the model's own."""

    model: str
    params: str
    given: Signature | None = None
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.label = self.model
        self._predictor: PredictorExecutable | None = None
        old = self.model.endswith(".pdmodel")
        try:
            self._captured = (
                _from_pdmodel(self.model, self.params) if old else _from_json(self.model)
            )
        except (RuntimeError, ValueError, OSError, SystemError, KeyError) as error:
            raise ExportError(
                f"Paddle cannot read {self.model} with {self.params or 'no parameters'}; one is "
                f"damaged, or they do not belong together: {telling_line(error)[:300]}"
            ) from error
        own = _own_specs(self._captured, shared=False)
        self.signature = self._settled(own) if self.given is None else _fitted(own, self.given)

    def _settled(self, own: list[TensorSpec]) -> Signature:
        """Every open size under a name of its own; where the model takes only equal ones, not."""
        for specs in (own, _own_specs(self._captured, shared=True)):
            signature = Signature(tuple(specs))
            sizes = signature.samples()[-1]  # in which no two names stand for the same
            try:
                self.run([np.zeros(one.shape(sizes), one.dtype) for one in specs])
            except (EngineError, TypeError):  # TypeError: numpy has no bfloat16
                continue
            return signature
        return Signature(tuple(own))

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See :class:`~.source.Source`."""
        if self._predictor is None:
            names = [slot.name for slot in self._captured.inputs]
            count = len(self._captured.outputs)
            self._predictor = open_predictor(self.model, self.params, names, count)
        tensors = [pd.paddle.to_tensor(array) for array in inputs]
        return [tensor.numpy() for tensor in self._predictor(tensors)]

    def ways(self, signature: Signature) -> Sequence[str]:
        """The program as it is, or at fixed sizes."""
        return ("stored",)

    def capture(self, signature: Signature, examples: Sequence[np.ndarray], way: str) -> Captured:
        """See :class:`~.source.Source`; all sizes may be fixed, or none."""
        program = self._captured
        if any(-1 in slot.shape for slot in program.inputs) and not signature.names:
            program = specialised(program, examples)
        elif signature.names != self.signature.names:
            raise CaptureRefused("of a saved model, either all open sizes are fixed or none")
        count = len(program.outputs)
        template: Template = {"list": [{"tensor": i} for i in range(count)]}
        return Captured(program, template, way)


def _own_specs(captured: CapturedProgram, *, shared: bool) -> list[TensorSpec]:
    """The inputs as the model declares them; with ``shared``, one name for each axis of all."""
    return [
        TensorSpec(slot.name, tuple(_names(slot.shape, 0 if shared else i)), slot.dtype)
        for i, slot in enumerate(captured.inputs)
    ]


def _names(shape: Sequence[int], position: int) -> list[int | str]:
    names: list[int | str] = []
    for axis, size in enumerate(shape):
        open_name = "batch" if axis == 0 else f"d{axis}" if position == 0 else f"d{position}_{axis}"
        names.append(open_name if size < 0 else size)
    return names


def _fitted(own: list[TensorSpec], given: Signature) -> Signature:
    by_name = {one.name: one for one in given.inputs}
    unknown = sorted(by_name.keys() - {one.name for one in own})
    if unknown:
        raise ExportError(
            f"--shape: the model has no input '{unknown[0]}'; it has "
            + ", ".join(str(one) for one in own)
        )
    for one in own:
        other = by_name.get(one.name, one)
        fits = len(one.dims) == len(other.dims) and all(
            isinstance(mine, str) or mine == theirs for mine, theirs in zip(one.dims, other.dims)
        )
        if not fits or one.dtype != other.dtype:
            raise ExportError(f"--shape {other} does not fit the model's own {one}")
    return Signature(tuple(by_name.get(one.name, one) for one in own), given.ranges)


def _from_json(model: str) -> CapturedProgram:
    loaded = pd.paddle.jit.load(os.path.splitext(model)[0])
    program = loaded.program()
    parameters = {t.name: t for t in loaded.state_dict().values()}
    if not parameters and any(o.name() == "builtin.parameter" for o in program.global_block().ops):
        missing = f"{os.path.splitext(model)[0]}.pdiparams"
        raise ExportError(f"{model}: its parameters are missing, there is no {missing}")
    return captured_from(program, parameters, model)


def _from_pdmodel(model: str, params: str) -> CapturedProgram:
    with open(model, "rb") as file, open(params, "rb") as weights, STATIC_LOCK:
        program, arrays = pd.old_program(file.read(), weights.read())
        pd.inputs_as_data(program)
    return captured_from(program, {n: pd.paddle.to_tensor(a) for n, a in arrays.items()}, model)


def captured_from(program: Any, parameters: dict[str, Any], model: str) -> CapturedProgram:
    """``program``, which fetches its outputs, in the form that engines read."""
    inputs, outputs = [], []
    for op in program.global_block().ops:
        if op.name() == "pd_op.data":
            inputs.append(op.result(0))
        elif op.name() in ("pd_op.fetch", "builtin.shadow_output"):
            outputs.append(op.operand_source(0))
    if not outputs:
        raise ExportError(f"{model}: the program has no outputs")
    outputs = [outputs[i] for i in distinct_positions(outputs)]
    slots = [
        Slot(value.get_defining_op().attrs()["name"], tuple(value.shape), dtype_name(value.dtype))
        for value in inputs
    ]
    made = [Slot(f"y{i}", tuple(v.shape), dtype_name(v.dtype)) for i, v in enumerate(outputs)]
    return CapturedProgram(program, slots, inputs, made, outputs, parameters)
