"""What a PIR op says about itself, in plain Python: names of operands and results, attributes."""

from __future__ import annotations

from typing import Any

from . import _paddle


def input_names(op: Any) -> list[str]:
    """Formal names of the operands; positional ones where the registry knows none."""
    count = len(op.operands_source())
    names = list(op.get_input_names()) if op.name().startswith("pd_op.") else []
    return names if len(names) == count else [f"arg{i}" for i in range(count)]


def output_names(op: Any) -> list[str]:
    """Formal names of the results; positional ones for control flow and foreign dialects."""
    names: list[str] = []
    if op.name().startswith("pd_op.") and not op.num_regions():
        names = list(op.get_output_names())
    return names if len(names) == op.num_results() else [f"out{i}" for i in range(op.num_results())]


def semantic_attrs(op: Any) -> list[tuple[str, Any]]:
    """Attributes in the order of the op's definition, without bookkeeping ones."""
    attrs = op.attrs()
    names = op.get_attr_names() if op.name().startswith("pd_op.") else sorted(attrs)
    bookkeeping = ("place", "stop_gradient", "op_callstack", "struct_name")
    return [(name, attrs[name]) for name in names if name in attrs and name not in bookkeeping]


def attribute(value: Any) -> Any:
    """``value`` as plain Python: dtypes by name, sequences as lists."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [attribute(item) for item in value]
    return _paddle.dtype_name(value) if _paddle.is_dtype(value) else value


def number(value: Any, dtype: str) -> Any:
    """``value`` as the Python number that a tensor of ``dtype`` holds."""
    if dtype == "bool":
        return bool(value)
    if dtype.startswith(("int", "uint")):
        return int(value)
    return complex(value) if dtype.startswith("complex") else float(value)
