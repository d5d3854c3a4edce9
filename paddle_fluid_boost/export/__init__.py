"""Offline export: a model leaves Python as files that were verified to give the same answers.

Importing this costs nothing and needs no name of Paddle's: the work is in ``api.py``, imported when
first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loaded import LoadedModel
    from .report import Report

__all__ = ["export", "load"]


def export(model: Any, out: str, **options: Any) -> Report:
    """Exports ``model`` to the folder ``out``; see :func:`.api.export` for the options.

    >>> pfb.export(net, "exported", to="paddle,onnx", shapes="x=batch,3,224,224")
    """
    from .api import export

    return export(model, out, **options)


def load(path: str, device: str = "cpu", *, tensorrt: bool = False) -> LoadedModel:
    """The model in a bundle, ready to be called; see :func:`.loaded.load`.

    >>> model = pfb.load("exported/model.pfb")
    >>> model(x)
    """
    from .loaded import load

    return load(path, device, tensorrt=tensorrt)
