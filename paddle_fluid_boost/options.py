"""Every default of the package, in one place.

Three ways to change one, the later wins: the default below, the environment variable
``PFB_<NAME>`` read at import, ``pfb.configure(name=value)`` at run time.  ``options.override``
changes some for the length of a ``with`` block (tests use it).
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .errors import OptionError
from .hardware.devices import parse_device


def _option(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    return field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclass
class Options:
    """The options; read an attribute, change it through :func:`configure`."""

    # -- when to compile (hotspot/policy.py derives the constants) --------------------------------
    sync: bool = _option(False, "compile in the calling thread instead of in the background")
    hot_calls: int = _option(
        0, "compile a signature at exactly this many calls; 0 lets the policy decide", 0
    )
    min_gain: float = _option(
        1.05,
        "a version is used only when eager time / compiled time is at least this; 0 uses any",
        0.0,
    )
    megamorphic_signatures: int = _option(
        64, "a function with more live signatures than this is treated as megamorphic", 2
    )

    # -- bounds -----------------------------------------------------------------------------------
    max_signatures: int = _option(256, "signatures remembered per function (LRU)", 1)
    max_versions: int = _option(32, "compiled versions kept per function (least valuable goes)", 1)
    max_total_versions: int = _option(256, "compiled versions kept in the process", 1)
    max_version_mb: int = _option(
        1024, "MiB that the compiled versions of the process may hold, shared weights left out", 1
    )
    max_events: int = _option(64, "events kept per function for explain()", 1)
    onednn_cache_capacity: int = _option(
        10, "shapes that oneDNN's cache inside one Paddle Inference predictor may hold", 1
    )

    # -- background compile -----------------------------------------------------------------------
    capture_slice_ms: float = _option(
        0.5, "the worker yields the interpreter after so many milliseconds of capture", 0.05
    )
    capture_duty: float = _option(
        0.25, "share of time the worker may hold the interpreter while capturing", 0.01, 1.0
    )
    compile_timeout_s: float = _option(120.0, "a child-process probe is given up after this", 1.0)

    # -- engines ----------------------------------------------------------------------------------
    engines: str = _option(
        "native,paddle_inference", "engines to try, in order of preference, comma separated"
    )
    threads: int = _option(0, "threads of a compiled version; 0 takes what the machine allows", 0)
    hardware_dir: str = _option(
        "", "folder of your own files (*.toml) for the hardware library (docs/hardware.md)"
    )
    tune_seconds: float = _option(
        2.0, "seconds of work that the tuner may spend on one signature; 0 turns it off", 0.0
    )
    probe_in_child: bool = _option(
        True, "first run an engine that is known to crash on some graphs in a child process"
    )
    rtol: float = _option(
        1e-4, "largest error of a compiled output, relative to the output's range, in fp32", 0.0
    )

    # -- accelerators (docs/devices.md) -----------------------------------------------------------
    device: str = _option(
        "auto",
        "where compiled versions run: 'auto' where the tensors are, 'cpu' never on an accelerator, "
        "'npu', 'npu:1', 'gpu', ...: CPU tensors are taken there as well, results come back",
    )
    device_memory_mb: int = _option(
        0, "MiB that compiled versions may hold on one accelerator; 0 sets no limit", 0
    )
    tensorrt: bool = _option(
        True, "let the tuner build TensorRT engines on GPUs, in a child process, for minutes"
    )
    cache_folders_mb: int = _option(
        4096, "MiB that TensorRT engines may take beside the on-disk cache", 1
    )

    # -- memory (docs/memory.md) ------------------------------------------------------------------
    pool: bool = _option(False, "serve Paddle's own CPU tensors from the block pool as well")
    pool_limit_mb: int = _option(
        0, "MiB that the block pool may hold, the rest comes from the system; 0 sets no limit", 0
    )
    pool_decay_s: float = _option(
        30.0, "the pool gives back what was not in use within so many seconds; 0 keeps it", 0.0
    )
    pool_huge_pages: str = _option(
        "none", "huge pages of the block pool: none, transparent, explicit; before its first use"
    )
    pool_debug: bool = _option(
        False, "guard bytes and poison in the block pool; slow; before its first use"
    )

    # -- on disk (docs/cache.md) ------------------------------------------------------------------
    cache: bool = _option(True, "keep what was tuned and probed on disk for the next process")
    cache_dir: str = _option(
        "", "folder of that; empty takes XDG_CACHE_HOME or ~/.cache, then paddle_fluid_boost"
    )
    cache_mb: int = _option(16, "MiB that it may hold, the least recently used goes", 1)

    # -- what a call meets ------------------------------------------------------------------------
    training: str = _option(
        "auto",
        "how calls that need gradients run: 'eager', 'stock' (Paddle's to_static), or 'auto': "
        "stock where paddle.jit.to_static was hooked, eager under pfb.to_static",
    )
    log: str = _option("", "comma separated log channels: compiles, guards, policy, all")


_CHOICES = {
    "training": ("auto", "eager", "stock"),
    "pool_huge_pages": ("none", "transparent", "explicit"),
}
LOG_CHANNELS = ("compiles", "guards", "policy")
ENGINES = ("native", "paddle_inference", "onnxruntime", "openvino")
#: Options that are comma separated lists -> (what an entry is called, the entries known).
_LISTS = {
    "log": ("log channel", (*LOG_CHANNELS, "all")),
    "engines": ("engine", ENGINES),
}
_FIELDS = {f.name: f for f in dataclasses.fields(Options)}


def split_list(text: str) -> list[str]:
    """The entries of a comma separated option."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _checked(name: str, value: Any, source: str) -> Any:
    """``value`` in the type of option ``name``; OptionError that names the option otherwise."""
    if name not in _FIELDS:
        near = difflib.get_close_matches(name, _FIELDS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise OptionError(
            f"{source}: unknown option '{name}'{hint} Known: {', '.join(sorted(_FIELDS))}"
        )
    spec = _FIELDS[name]
    want: Any = type(spec.default)
    if want is float and type(value) is int:
        value = float(value)
    if type(value) is not want:
        raise OptionError(
            f"{source}: option '{name}' needs {want.__name__}, got {value!r} "
            f"({type(value).__name__})"
        )
    low, high = spec.metadata["low"], spec.metadata["high"]
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        limits = f"at least {low}" + (f" and at most {high}" if high is not None else "")
        raise OptionError(f"{source}: option '{name}' must be {limits}, got {value!r}")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise OptionError(
            f"{source}: option '{name}' must be one of {', '.join(_CHOICES[name])}, got {value!r}"
        )
    if name == "device" and value != "auto":
        try:
            parse_device(value)
        except ValueError as error:
            raise OptionError(
                f"{source}: option 'device' must be 'auto' or a device: {error}"
            ) from (None)
    if name in _LISTS:
        kind, known = _LISTS[name]
        for item in split_list(value):
            if item not in known:
                raise OptionError(f"{source}: unknown {kind} '{item}', known: {', '.join(known)}")
    return value


def _parse(name: str, text: str) -> Any:
    """The value that environment text ``text`` means for option ``name``."""
    want: Any = type(_FIELDS[name].default)
    source = f"environment variable PFB_{name.upper()}"
    if want is bool:
        low = text.strip().lower()
        if low in ("1", "true", "yes", "on"):
            return True
        if low in ("0", "false", "no", "off", ""):
            return False
        raise OptionError(f"{source}: needs 0 or 1, got {text!r}")
    try:
        return _checked(name, want(text), source)
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"{source}: needs {want.__name__}, got {text!r}") from None


#: The one live instance.  Rooms read attributes of it at the moment they need them.
options = Options()


def load_environment(environ: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Takes every ``PFB_<OPTION>`` of ``environ`` into :data:`options`."""
    for name in _FIELDS:
        text = environ.get(f"PFB_{name.upper()}")
        if text is not None:
            setattr(options, name, _parse(name, text))


#: Option -> what to call with its new value when ``configure`` changes it.
_listeners: dict[str, Callable[[Any], None]] = {}


def on_change(name: str, listener: Callable[[Any], None]) -> None:
    """Calls ``listener`` with the value of option ``name`` now and whenever it is configured."""
    _listeners[name] = listener
    listener(getattr(options, name))


def configure(**changes: Any) -> None:
    """Changes options; all or none of them: a wrong one raises OptionError and changes nothing."""
    checked = {name: _checked(name, value, "configure") for name, value in changes.items()}
    for name, value in checked.items():
        setattr(options, name, value)
    for name in checked.keys() & _listeners.keys():
        _listeners[name](getattr(options, name))


@contextlib.contextmanager
def override(**changes: Any) -> Iterator[Options]:
    """Options changed for the length of a ``with`` block."""
    before = {name: getattr(options, name) for name in changes if name in _FIELDS}
    configure(**changes)
    try:
        yield options
    finally:
        configure(**before)


def describe() -> list[tuple[str, Any, Any, str]]:
    """(name, current value, default, help) of every option, for docs and ``doctor``."""
    return [
        (name, getattr(options, name), spec.default, spec.metadata["help"])
        for name, spec in _FIELDS.items()
    ]


load_environment()
