"""In the probe child: the first life of a predictor on an accelerator, which may end the process.

Also notes where Paddle puts the ops, which only Paddle itself can say (``lowered.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..hardware.devices import CPU, Device, parse_device
from . import _paddle as pd
from . import _paddle_devices as devices
from .custom_device_config import make_custom_device_config
from .gpu_config import GpuSettings, make_gpu_config
from .paddle_inference_config import PredictorSettings, make_config

_RUNS = 3
#: Far looser than the check against eager that every version meets later; half precision passes.
_TOLERANCE = 5e-2


def probe_device(request: dict[str, Any]) -> str | None:
    """Runs the predictor on the device and one on the CPU; None, or what is wrong.

    Args:
        request: ``model``, ``params``, ``inputs`` as for :func:`probe_child.probe`; ``device``.
            For a custom device ``placed`` (path of the program with placed inputs), ``left_out``,
            and ``lowered`` (path of the file to write what Paddle prints to); for a GPU ``gpu``
            (GpuSettings as a dict), ``gpu_model`` and ``gpu_params`` (paths).
    """
    from .probe_child import difference, example_input

    device = parse_device(request["device"])
    create = pd.paddle.inference.create_predictor
    on_gpu = "gpu" in request
    suspect = _on_gpu(request) if on_gpu else _on_custom_device(request, device)
    left_out = request["gpu"]["left_out"] if on_gpu else request["left_out"]
    plain_settings = PredictorSettings(False, 1, 1, tuple(left_out))
    plain = create(make_config(request["model"], request["params"], plain_settings))
    specs = {name: (shape, dtype) for name, shape, dtype in request["inputs"]}
    rng = np.random.default_rng(0)
    cpu, there = devices.place_of(CPU), devices.place_of(device)
    for _ in range(_RUNS):
        examples = {
            name: devices.copy_to(example_input(*spec, rng), cpu) for name, spec in specs.items()
        }
        feeds = [devices.copy_to(examples[name], there) for name in suspect.get_input_names()]
        got = [devices.copy_to(tensor, cpu) for tensor in suspect.run(feeds)]
        want = plain.run([examples[name] for name in plain.get_input_names()])
        worst = max(
            (difference(a, devices.copy_to(b, cpu)) for a, b in zip(got, want)), default=0.0
        )
        if not worst <= _TOLERANCE:
            return f"returns wrong values (error {worst:.2g} of the output's range)"
    return None


def _on_custom_device(request: dict[str, Any], device: Device) -> Any:
    with devices.lowered_programs_printed(request["lowered"]):
        config = make_custom_device_config(
            request["placed"], request["params"], device, request["left_out"]
        )
        return pd.paddle.inference.create_predictor(config)


def _on_gpu(request: dict[str, Any]) -> Any:
    settings = GpuSettings(**{**request["gpu"], "left_out": tuple(request["gpu"]["left_out"])})
    config = make_gpu_config(request["gpu_model"], request["gpu_params"], settings)
    return pd.paddle.inference.create_predictor(config)
