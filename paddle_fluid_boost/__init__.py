"""paddle_fluid_boost: write dygraph code, get compiled speed, learn nothing new.

>>> import paddle_fluid_boost as pfb
>>> pfb.install()        # or @pfb.to_static, or: python -m paddle_fluid_boost run app.py
"""

from .dispatch.explanations import explain, stats
from .errors import (
    BoostError,
    BundleError,
    EngineError,
    ExportError,
    OptionError,
    PoolError,
    SpecError,
    UnsupportedPaddleError,
)
from .export import compare, export, inspect, load
from .io.pipeline import pipeline
from .options import configure, options, override
from .plugin import install, installed, to_static, uninstall
from .report import log as _log  # noqa: F401 - sets up the channels
from .warm import wait, warmup

# Last: the imports above say what to install where Paddle is missing.
from . import cache, io  # isort: skip

__version__ = "0.1.0"

__all__ = [
    "BoostError",
    "BundleError",
    "EngineError",
    "ExportError",
    "OptionError",
    "PoolError",
    "SpecError",
    "UnsupportedPaddleError",
    "cache",
    "compare",
    "configure",
    "explain",
    "export",
    "inspect",
    "install",
    "installed",
    "io",
    "load",
    "options",
    "override",
    "pipeline",
    "stats",
    "to_static",
    "uninstall",
    "wait",
    "warmup",
]
