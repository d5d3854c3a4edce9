"""The nesting of a call's result, as plain JSON: ``{"dict": {"logits": {"tensor": 0}}}``.

Tensors are numbered by the distinct outputs of the program, so that a result that holds one tensor
twice gets it back twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import ExportError

Template = Any


def describe(
    result: Any, is_tensor: Callable[[Any], bool], number: Callable[[Any], int]
) -> Template:
    """The template of ``result``; ``number`` gives the output number of a tensor.

    Raises:
        ExportError: the result holds something that JSON cannot.
    """
    if is_tensor(result):
        return {"tensor": number(result)}
    if isinstance(result, dict):
        if not all(isinstance(key, str) for key in result):
            raise ExportError(f"the result is a dictionary with keys {list(result)}: needs strings")
        return {"dict": {key: describe(item, is_tensor, number) for key, item in result.items()}}
    if isinstance(result, (tuple, list)):
        kind = "list" if isinstance(result, list) else "tuple"
        return {kind: [describe(item, is_tensor, number) for item in result]}
    if result is None or isinstance(result, (bool, int, float, str)):
        return {"value": result}
    raise ExportError(
        f"the result holds a {type(result).__name__}; an exported model can return tensors, None, "
        "numbers and strings, in tuples, lists and dictionaries"
    )


def plain(result: Any) -> Any:
    """``result`` with subclasses of the containers, such as model outputs, as plain containers."""
    if isinstance(result, dict):
        return {key: plain(item) for key, item in result.items()}
    if isinstance(result, tuple):
        return tuple(plain(item) for item in result)
    if isinstance(result, list):
        return [plain(item) for item in result]
    return result


def rebuild(template: Template, outputs: Sequence[Any]) -> Any:
    """The result with ``outputs`` in place; ValueError when ``template`` is none."""
    if not isinstance(template, dict) or len(template) != 1:
        raise ValueError(f"not a template: {template!r}")
    ((kind, content),) = template.items()
    if kind == "tensor":
        return outputs[content]
    if kind == "dict":
        return {key: rebuild(item, outputs) for key, item in content.items()}
    if kind == "list":
        return [rebuild(item, outputs) for item in content]
    if kind == "tuple":
        return tuple(rebuild(item, outputs) for item in content)
    if kind == "value":
        return content
    raise ValueError(f"not a template: {template!r}")


def output_names(template: Template, count: int, taken: Iterable[str] = ()) -> list[str]:
    """A name for each of ``count`` outputs: the keys on its way, or ``output_0``, ...

    Args:
        taken: names of the inputs, as formats have one space of names for both; an output that
            would be called like one of them has ``_output`` behind its name.
    """
    names = [""] * count
    _name(template, "", names)
    inputs = set(taken)
    made: list[str] = []
    for index, name in enumerate(names):
        if not name or name in made:
            name = f"output_{index}"
        while name in inputs:
            name += "_output"
        made.append(name)
    return made


def _name(template: Template, path: str, names: list[str]) -> None:
    ((kind, content),) = template.items()
    if kind == "tensor":
        names[content] = names[content] or path
    elif kind == "dict":
        for key, item in content.items():
            word = re.sub(r"\W", "_", key)
            _name(item, f"{path}_{word}" if path else word, names)
    elif kind in ("list", "tuple"):
        for index, item in enumerate(content):
            _name(item, f"{path}_{index}" if path else "", names)
