"""A GPU that is not there: Paddle's answers are played, and the CPU computes.

:class:`RecordingConfig` takes the calls that only a GPU build obeys and holds every call against
the signature that the installed Paddle gives for it, so it cannot take what Paddle would refuse.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import paddle

from paddle_fluid_boost.engines import _paddle_devices as devices
from paddle_fluid_boost.engines import device_build
from paddle_fluid_boost.engines.probe_child import answer
from paddle_fluid_boost.hardware import advice
from paddle_fluid_boost.hardware.accelerators import Gpu
from paddle_fluid_boost.hardware.devices import Device

_REAL = paddle.inference.Config
_CREATE = paddle.inference.create_predictor
_TYPES = {
    "int": int,
    "str": str,
    "bool": bool,
    "float": float,
    "set[str]": set,
    "list[str]": list,
    "Set[str]": set,
    "List[str]": list,
}
#: Calls that the CPU build would refuse or ignore.
_PLAYED = frozenset({"enable_use_gpu", "exp_disable_mixed_precision_ops"})


def parameters(method: str) -> list[tuple[str, str, bool]]:
    """(name, type, whether it has a default) of a method of the installed Paddle's Config."""
    doc = getattr(_REAL, method).__doc__
    found = re.match(rf"{method}\(self: [\w.]+(?:, (.*))?\) -> ", doc.strip())
    assert found is not None, doc
    pieces = re.split(r", (?=\w+: )", found[1]) if found[1] else []
    return [
        (piece.partition(":")[0], re.split(r": | = ", piece)[1], " = " in piece) for piece in pieces
    ]


def check_call(method: str, args: tuple[Any, ...]) -> None:
    """AssertionError unless Paddle's Config has ``method`` and takes ``args``."""
    assert hasattr(_REAL, method), f"paddle.inference.Config has no {method}"
    known = parameters(method)
    required = [name for name, _, has_default in known if not has_default]
    assert len(required) <= len(args) <= len(known), f"{method} takes {known}, got {args}"
    for (name, kind, _), value in zip(known, args):
        want = paddle.inference.PrecisionType if kind.endswith(".Precision") else _TYPES[kind]
        assert type(value) is want, f"{method}: {name} must be {kind}, got {value!r}"


class _Named(type):
    """The class has the names of Paddle's."""

    def __getattr__(cls, name: str) -> Any:
        return getattr(_REAL, name)


class RecordingConfig(metaclass=_Named):
    """A Config whose calls are noted; what the CPU build can do is done."""

    made: list[RecordingConfig]

    def __init__(self, model: str, params: str) -> None:
        self.real = _REAL(model, params)
        self.files = (model, params)
        self.calls: list[tuple[Any, ...]] = []
        type(self).made.append(self)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(_REAL, name):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            check_call(name, args)
            self.calls.append((name, *args))
            if name == "use_gpu":
                return any(call[0] == "enable_use_gpu" for call in self.calls)
            return None if name in _PLAYED else getattr(self.real, name)(*args)

        return call


class Played:
    """What happened, and what is to go wrong.

    fault: raised by the next run of a predictor.  verdict: of the child process.
    configs: every Config made.
    """

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.verdict: str | None = None
        self.requests: list[dict[str, Any]] = []
        self.configs: list[RecordingConfig] = []
        self.given_back = 0
        self.synchronized = 0

    def ask(self, request: dict[str, Any], seconds: float) -> str | None:
        """The child process: answers here."""
        assert seconds > 0
        self.requests.append(request)
        return self.verdict or answer(request)


class _Predictor:
    def __init__(self, played: Played, real: Any) -> None:
        self._played, self._real = played, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def run(self, inputs: list[Any]) -> list[Any]:
        fault, self._played.fault = self._played.fault, None
        if fault is not None:
            raise fault
        return self._real.run(inputs)


def play(monkeypatch: Any, *, count: int = 2, capability: tuple[int, int] = (8, 6)) -> Played:
    """Two GPUs, until the test ends."""
    played = Played()

    class Config(RecordingConfig):
        made: list[RecordingConfig] = []  # noqa: RUF012 - one list for each test

    def create(config: Any) -> Any:
        if isinstance(config, RecordingConfig):
            return _Predictor(played, _CREATE(config.real))
        return _CREATE(config)

    def give_back() -> None:
        played.given_back += 1

    def synchronize(device: Device) -> None:
        assert device.kind == "gpu"
        played.synchronized += 1

    gpus = tuple(Gpu(i, "a GPU", capability, 8 << 30, True) for i in range(count))
    machine = dataclasses.replace(advice.probe(), gpus=gpus)
    for target, name, value in (
        (paddle, "is_compiled_with_cuda", lambda: True),
        (paddle.device.cuda, "device_count", lambda: count),
        (paddle.inference, "Config", Config),
        (paddle.inference, "create_predictor", create),
        (devices, "place_of", lambda device: paddle.CPUPlace()),
        (devices, "give_back_cached_memory", give_back),
        (devices, "synchronize", synchronize),
        (device_build.PROBE, "ask", played.ask),
        (device_build.PROBE, "close", lambda: None),
        (advice, "probe", lambda: machine),
    ):
        monkeypatch.setattr(target, name, value)
    played.configs = Config.made
    advice._accelerator_advice.cache_clear()
    return played
