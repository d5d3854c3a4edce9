"""The inference Config of a custom device, and the program that goes with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..hardware.devices import Device
from . import _paddle as pd
from .paddle_inference_config import run_by_new_executor

#: Paddle's number for "a custom device" in a place that is written to a file.
_CUSTOM_PLACE = 9


def make_custom_device_config(
    model: str, params: str, device: Device, left_out: Sequence[str]
) -> Any:
    """A fresh ``paddle.inference.Config`` for ``device``.

    Create no predictor of a kind of device that no plug-in has registered: Paddle aborts the
    process.

    Args:
        model: path of a program whose inputs are placed (:func:`place_inputs`).
        params: path of the ``.pdiparams``, or "".
        left_out: names of Paddle passes to leave out.
    """
    config = pd.paddle.inference.Config(model, params)
    config.disable_glog_info()
    config.enable_custom_device(device.kind, device.number)
    run_by_new_executor(config, left_out)
    return config


def place_inputs(model: str, placed: str, device: Device) -> None:
    """Writes the program of the file ``model`` to ``placed``, with its inputs on ``device``.

    Paddle's lowering takes an input without a place for one in the CPU's memory: a kernel that
    falls back to the CPU then reads the device's addresses, which ends the process.
    """
    with open(model) as file:
        program = json.load(file)
    for region in program["program"]["regions"]:
        for block in region["blocks"]:
            for op in block["ops"]:
                if op["#"].endswith(".data"):
                    _place(op, device)
    with open(placed, "w") as file:
        json.dump(program, file)


def _place(op: dict[str, Any], device: Device) -> None:
    for attribute in op["A"]:
        if attribute["N"] == "place":
            attribute["AT"]["D"] = [_CUSTOM_PLACE, device.number, device.kind]
