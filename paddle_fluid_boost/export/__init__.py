"""Offline export: a model leaves Python as files that were verified to give the same answers.

Importing this costs nothing and needs no name of Paddle's: the work is in ``api.py``, imported when
first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import Comparison
    from .inspection import Inspection
    from .loaded import LoadedModel
    from .report import Report

__all__ = ["compare", "export", "inspect", "load"]


def export(model: Any, out: str, **options: Any) -> Report:
    """Exports ``model`` to the folder ``out``; see :func:`.api.export` for the options.

    >>> pfb.export(net, "exported", to="paddle,onnx", shapes="x=batch,3,224,224")
    """
    from .api import export

    return export(model, out, **options)


def inspect(model: Any, **options: Any) -> Inspection:
    """What a model or an exported file takes, gives and consists of; see
    :func:`.inspection.inspect_model` for the options.

    >>> print(pfb.inspect("exported/model.onnx"))
    """
    from .inspection import inspect_model

    return inspect_model(model, **options)


def compare(a: Any, b: Any, **options: Any) -> Comparison:
    """Runs two models or files on the same inputs; see :func:`.comparison.compare` for the options.

    >>> found = pfb.compare(net, "exported/model.onnx")
    >>> found.ok, found.a_ms, found.b_ms
    """
    from .comparison import compare

    return compare(a, b, **options)


def load(path: str, device: str = "cpu", *, tensorrt: bool = False) -> LoadedModel:
    """The model in a bundle, ready to be called; see :func:`.loaded.load`.

    >>> model = pfb.load("exported/model.pfb")
    >>> model(x)
    """
    from .loaded import load

    return load(path, device, tensorrt=tensorrt)
