"""The calls that every artefact has to get right: several shapes and seeds, or the user's own."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ExportError
from .source import Source, telling_line
from .spec import BATCH_NAMES, Signature, TensorSpec

#: Upper bounds tried for integer inputs: as large as the model takes, an embedding may be small.
_INTEGER_BOUNDS = (1000, 100, 10, 2)


@dataclass
class Case:
    """label: as the report shows it; inputs in calling order; want: the distinct outputs.

    rerun: gives the model's outputs for other inputs.
    """

    label: str
    inputs: list[np.ndarray]
    want: list[np.ndarray]
    rerun: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None
    _moved: list[float] | None = None

    def moved(self) -> list[float]:
        """How far each output moves when the inputs change in their last digits.

        No other order of the same additions can be held to less.
        """
        if self._moved is None:
            random = np.random.default_rng(0)
            nudged = [_nudged(random, array) for array in self.inputs]
            outputs = self.rerun(nudged) if self.rerun is not None else self.want
            self._moved = [_distance(one, want) for one, want in zip(outputs, self.want)]
        return self._moved


class CaseMaker:
    """Makes the cases of one source, each computed once."""

    def __init__(self, source: Source, samples: str | None = None) -> None:
        """``samples``: a folder of ``.npz`` (or ``.npy``, for one input) files, or None.

        Raises:
            ExportError: the folder has no sample, or one does not fit the signature.
        """
        self._source = source
        self._made: dict[tuple[object, ...], Case] = {}
        self._bounds = list(_INTEGER_BOUNDS)
        self._samples = _read_samples(samples, source.signature) if samples else {}
        self._steady = False

    def cases(self, signature: Signature) -> list[Case]:
        """Cases for ``signature``, which may fix names of the source's own; the first is small.

        The user's samples that fit it come last.

        Raises:
            ExportError: the model itself fails on sizes that the signature allows, or gives
                different results for one input.
        """
        made = []
        for number, sizes in enumerate(signature.samples()):
            for seed in (0, 1) if number == 0 else (number,):
                made.append(self._random(signature, sizes, seed))
        made += [
            self._sample(name, inputs)
            for name, inputs in self._samples.items()
            if all(_fit(one, array) for one, array in zip(signature.inputs, inputs))
        ]
        if not self._steady:
            _check_steady(self._source, made[0])
            self._steady = True
        return made

    def _random(self, signature: Signature, sizes: Mapping[str, int], seed: int) -> Case:
        shapes = [one.shape(sizes) for one in signature.inputs]
        key = (*shapes, seed)
        if key not in self._made:
            label = " ".join([*(f"{n}={s}" for n, s in sizes.items()), f"seed={seed}"])
            inputs, want = self._run(signature.inputs, shapes, seed)
            self._made[key] = Case(label, inputs, want, self._source.run)
        return self._made[key]

    def _run(
        self, specs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]], seed: int
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        while True:
            random = np.random.default_rng(seed)
            inputs = [
                random_array(random, shape, one.dtype, self._bounds[0])
                for one, shape in zip(specs, shapes)
            ]
            try:
                return inputs, self._source.run(inputs)
            except ExportError:
                raise
            except Exception as error:  # whatever the user's model raises
                if len(self._bounds) > 1 and any("int" in one.dtype for one in specs):
                    del self._bounds[0]
                    continue
                raise ExportError(_own_failure(specs, shapes, error)) from error

    def _sample(self, name: str, inputs: list[np.ndarray]) -> Case:
        key = ("sample", name)
        if key not in self._made:
            try:
                self._made[key] = Case(name, inputs, self._source.run(inputs), self._source.run)
            except Exception as error:
                raise ExportError(
                    f"--samples: the model itself fails on {name}: {error}"
                ) from error
        return self._made[key]


def _own_failure(
    specs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]], error: Exception
) -> str:
    call = ", ".join(f"{one.name}={list(shape)}" for one, shape in zip(specs, shapes))
    why = telling_line(error)
    named = [dim for one in specs for dim in one.dims if isinstance(dim, str)]
    hint = (
        f"; say which sizes it takes, e.g. --range {named[-1]}=64..256:32"
        if named
        else "; change --shape: its sizes, or its dtype, as in x:int64=..."
    )
    if len({dim for dim in named if dim not in BATCH_NAMES}) > 1:
        hint += "; sizes that must be equal get one name"
    if any("int" in one.dtype for one in specs):
        hint += ", or give inputs of your own with --samples"
    return f"the model itself fails on {call}: {type(error).__name__}: {why[:300]}{hint}"


def random_array(
    random: np.random.Generator, shape: Sequence[int], dtype: str, bound: int
) -> np.ndarray:
    """Standard normal numbers, integers below ``bound``, or coin flips.  ExportError: bfloat16."""
    if dtype == "bfloat16":
        raise ExportError(
            "inputs cannot be bfloat16, which numpy and the runtimes' Python faces lack: take "
            "float32 and cast in the model"
        )
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return np.asarray(random.integers(0, min(bound, 100), shape)).astype(dtype)
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def _nudged(random: np.random.Generator, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    step = 4 * np.finfo(array.dtype).eps
    return np.asarray(array * (1 + step * random.choice([-1, 1], array.shape))).astype(array.dtype)


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape or other.dtype.kind != "f":
        return 0.0
    finite = np.isfinite(one) & np.isfinite(other)
    return float(np.abs(one[finite].astype("float64") - other[finite]).max(initial=0.0))


def _check_steady(source: Source, case: Case) -> None:
    again = source.run(case.inputs)
    for index, (one, other) in enumerate(zip(case.want, again)):
        if one.shape != other.shape or not np.allclose(one, other, 1e-3, 1e-3, equal_nan=True):
            raise ExportError(
                f"output {index} of {source.label} differs between two calls with the same input: "
                "a model that draws random numbers or counts its calls cannot be exported"
            )


def _read_samples(folder: str, signature: Signature) -> dict[str, list[np.ndarray]]:
    if not os.path.isdir(folder):
        raise ExportError(f"--samples: no such folder: {folder}")
    found: dict[str, list[np.ndarray]] = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith((".npz", ".npy")):
            found[name] = _read_sample(os.path.join(folder, name), name, signature)
    if not found:
        raise ExportError(
            f"--samples: {folder} holds no .npz file (arrays called "
            f"{', '.join(one.name for one in signature.inputs)}) and no .npy file"
        )
    return found


def _read_sample(path: str, name: str, signature: Signature) -> list[np.ndarray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            arrays = {signature.inputs[0].name: loaded}
        else:
            with loaded:
                arrays = {key: loaded[key] for key in loaded.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ExportError(
            f"--samples: {name} is damaged, or no .npz or .npy file of plain arrays"
        ) from error
    inputs = []
    for one in signature.inputs:
        if one.name not in arrays:
            raise ExportError(f"--samples: {name} has no array '{one.name}', but {list(arrays)}")
        if not _fit(one, arrays[one.name]):
            array = arrays[one.name]
            raise ExportError(
                f"--samples: '{one.name}' in {name} is {array.dtype}{list(array.shape)}, "
                f"needs {one}"
            )
        inputs.append(np.ascontiguousarray(arrays[one.name]))
    return inputs


def _fit(one: TensorSpec, array: np.ndarray) -> bool:
    return (
        str(array.dtype) == one.dtype
        and array.ndim == len(one.dims)
        and all(isinstance(dim, str) or dim == size for dim, size in zip(one.dims, array.shape))
    )
