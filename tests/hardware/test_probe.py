"""The probe, on file trees of other machines and with tools that fail."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import fake_machines
import pytest

from paddle_fluid_boost.hardware import accelerators, arm, cpu, probe
from paddle_fluid_boost.hardware.accelerators import Gpu, find_gpus, find_npus, parse_npu_smi
from paddle_fluid_boost.hardware.describe import describe
from paddle_fluid_boost.hardware.probe import ask_machine


@pytest.fixture(autouse=True)
def _no_tools(monkeypatch):
    """As if neither NVML nor npu-smi were installed; tests that need them bring their own."""
    monkeypatch.setattr(accelerators, "installed", lambda name: False)
    monkeypatch.setattr(accelerators.shutil, "which", lambda name: None)


def test_xeon_with_quota_and_memory_limit(tmp_path):
    machine = ask_machine(fake_machines.xeon(tmp_path), architecture="x86_64")
    chip = machine.cpu
    assert (chip.vendor, chip.name) == ("GenuineIntel", "Intel(R) Xeon(R) 8480")
    assert {"amx_bf16", "avx512_vnni"} <= chip.features
    assert (chip.logical, chip.physical, chip.big) == (4, 2, 2)
    assert (chip.quota, chip.usable) == (1.5, 2)
    assert [(c.level, c.kind, c.size, c.shared_by) for c in chip.caches] == [
        (1, "Data", 48 << 10, 2),
        (3, "Unified", 105 << 20, 4),
    ]
    memory = machine.memory
    assert (memory.total, memory.available) == (8 << 30, 4 << 30)
    assert (memory.limit, memory.usable) == (2 << 30, 2 << 30)
    sensors = machine.sensors
    assert sensors.celsius == (("nvme Composite", 70.0), ("x86_pkg_temp", 61.5))
    assert (sensors.mhz, sensors.max_mhz, sensors.governor) == (1900.0, 3800.0, "powersave")
    assert (sensors.battery_percent, sensors.on_battery) == (83, True)


def test_phone_with_two_kinds_of_cores(tmp_path):
    machine = ask_machine(fake_machines.phone(tmp_path), architecture="aarch64")
    chip = machine.cpu
    assert (chip.vendor, chip.microarchitecture) == ("ARM", "cortex_a76")
    assert "asimddp" in chip.features
    assert (chip.logical, chip.physical, chip.big) == (8, 8, 4)
    assert chip.quota is None
    assert machine.memory.limit is None  # version 1's number for "no limit"


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64", "riscv64"])
def test_a_machine_that_tells_nothing(tmp_path, architecture):
    machine = ask_machine(tmp_path, architecture=architecture)
    assert machine.cpu.features == frozenset()
    assert (machine.cpu.logical, machine.cpu.usable, machine.cpu.caches) == (1, 1, ())
    assert machine.memory.usable is None
    assert machine.sensors == probe.Sensors()
    said = dict(describe(machine))
    assert said["memory"] == "unknown" and said["sensors"] == "none can be read"


def test_files_full_of_nonsense(tmp_path):
    fake_machines.xeon(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff\xfe:\x00 not what you expect:\n::\n")
    machine = ask_machine(tmp_path, architecture="x86_64")
    assert machine.cpu.usable >= 1
    assert machine.memory.usable is None
    assert machine.sensors.celsius == () and machine.sensors.mhz is None
    assert list(describe(machine))


def test_the_kernel_is_asked_before_cpuinfo_on_arm(tmp_path):
    fake_machines.phone(tmp_path)
    asked = {16: 1 << 1 | 1 << 20 | 1 << 22, 26: 1 << 13 | 1 << 14}
    chip = cpu.read_cpu(tmp_path, "aarch64", asked.__getitem__)
    assert chip.features == {"asimd", "asimddp", "sve", "i8mm", "bf16"}


def test_unknown_arm_cores_have_no_name():
    assert arm.vendor_and_core("0x41", "0xfff") == ("ARM", "")
    assert arm.vendor_and_core("", "junk") == ("", "")


@pytest.mark.skipif(importlib.util.find_spec("archspec") is None, reason="needs archspec")
def test_archspec_names_the_microarchitecture(tmp_path):
    chip = cpu.read_cpu(fake_machines.xeon(tmp_path), "x86_64")
    assert chip.microarchitecture.startswith("x86_64_v4")


def test_without_archspec(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "archspec", None)
    chip = cpu.read_cpu(fake_machines.xeon(tmp_path), "x86_64")
    assert chip.microarchitecture == ""
    assert "avx2" in chip.features


def test_this_machine_is_asked_once(monkeypatch):
    probe.probe.cache_clear()
    assert probe.probe() is probe.probe()
    assert probe.probe().cpu.usable >= 1
    assert probe.probe().identity() == ask_machine().identity()


# -- GPUs and NPUs --------------------------------------------------------------------------------


def _paddle(gpus=0, custom=(), broken=False):
    """A build of Paddle with so many GPUs; one without CUDA fails on every further question."""

    def properties(index):
        if broken:
            raise RuntimeError("CUDA error(999)\nunknown error")
        return types.SimpleNamespace(name="NVIDIA A10", major=8, minor=6, total_memory=24 << 30)

    cuda = types.SimpleNamespace(device_count=lambda: gpus, get_device_properties=properties)
    if not gpus:
        cuda = None
    device = types.SimpleNamespace(cuda=cuda, get_available_custom_device=lambda: list(custom))
    return types.SimpleNamespace(is_compiled_with_cuda=lambda: gpus > 0, device=device)


def _with_nvml(monkeypatch):
    monkeypatch.setattr(accelerators, "installed", lambda name: True)


_A10 = ["NVIDIA A10", [8, 6], 24 << 30, "550.54", 44]


def test_a_build_without_cuda_is_asked_no_further():
    notes: list[str] = []
    assert find_gpus(_paddle(), 1.0, notes) == [] and notes == []


def test_paddles_gpus_are_completed_by_nvml(monkeypatch):
    _with_nvml(monkeypatch)
    notes: list[str] = []
    found = find_gpus(_paddle(gpus=1), 1.0, notes, lambda command, s: json.dumps([_A10]))
    assert found == [Gpu(0, "NVIDIA A10", (8, 6), 24 << 30, True, "550.54", 44)]


def test_gpus_that_this_build_cannot_use(monkeypatch, tmp_path):
    _with_nvml(monkeypatch)
    found = find_gpus(None, 1.0, [], lambda command, s: json.dumps([_A10]))
    assert [gpu.usable for gpu in found] == [False]


def test_a_broken_driver_is_a_note(monkeypatch):
    notes: list[str] = []
    assert find_gpus(_paddle(gpus=2, broken=True), 1.0, notes) == []
    assert notes == ["Paddle cannot list its GPUs: unknown error"]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (subprocess.TimeoutExpired("nvml", 0.25), "nothing within 0.25 s"),
        (subprocess.CalledProcessError(1, "nvml", stderr="x\nNVMLError: no driver\n"), "no driver"),
        (OSError("no such file"), "no such file"),
    ],
)
def test_a_tool_that_fails_is_a_note(monkeypatch, failure, words):
    _with_nvml(monkeypatch)
    monkeypatch.setattr(accelerators.shutil, "which", lambda name: "/usr/bin/npu-smi")

    def fail(command, seconds):
        raise failure

    notes: list[str] = []
    assert find_gpus(_paddle(), 0.25, notes, fail) == []
    assert find_npus(_paddle(custom=["npu:0"]), 0.25, notes, fail)[0].kind == "npu"
    assert len(notes) == 2 and all(words in note for note in notes)


def test_answers_that_are_no_json(monkeypatch):
    _with_nvml(monkeypatch)
    notes: list[str] = []
    assert find_gpus(None, 1.0, notes, lambda command, s: "[[1]]") == []
    assert find_gpus(None, 1.0, notes, lambda command, s: "Segmentation fault") == []
    assert len(notes) == 2


def test_a_child_that_hangs_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        accelerators.run_child([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)


#: As npu-smi 24.1.1 prints it (1Panel-dev/1Panel issue 9472).
_NPU_SMI = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.1                   Version: 24.1.1                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B4               | OK            | 88.2        30                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          26838/ 32768         |
+===========================+===============+====================================================+
| 1     910B4               | Warning       | -           -                 0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          29356/ 32768         |
+===========================+===============+====================================================+
"""


def test_npu_smi_is_read():
    first, second = parse_npu_smi(_NPU_SMI)
    assert (first.name, first.health, first.celsius) == ("910B4", "OK", 30.0)
    assert (second.index, second.health, second.celsius) == (1, "Warning", None)
    assert first.memory == 32768 << 20
    assert not first.usable


@pytest.mark.parametrize("table", ["", "npu-smi: command failed", _NPU_SMI.replace("|", " ")])
def test_npu_smi_that_says_something_else(table):
    assert parse_npu_smi(table) == []


def test_registered_npus_are_completed_by_npu_smi(monkeypatch):
    monkeypatch.setattr(accelerators.shutil, "which", lambda name: "/usr/bin/npu-smi")
    found = find_npus(_paddle(custom=["npu:0", "npu:1"]), 1.0, [], lambda command, s: _NPU_SMI)
    assert [(n.kind, n.index, n.name, n.usable) for n in found] == [
        ("npu", 0, "910B4", True),
        ("npu", 1, "910B4", True),
    ]


def test_accelerators_in_words(tmp_path, monkeypatch):
    paddle = _paddle(gpus=1, custom=["npu"])
    said = dict(describe(ask_machine(fake_machines.xeon(tmp_path), paddle=paddle)))
    assert said["GPU 0"] == "NVIDIA A10, compute capability 8.6, 24.0 GiB"
    assert said["NPU 0"] == "npu, Paddle's device 'npu'"
    assert said["memory"] == "8.0 GiB, 4.0 GiB available, limited to 2.0 GiB"


def test_no_child_is_started_where_no_tool_is_installed(monkeypatch):
    """The usual machine: a probe costs a few milliseconds because it reads files only."""

    def refuse(*args, **kwargs):
        raise AssertionError("a child process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert ask_machine(Path("/")).cpu.usable >= 1
    assert shutil.which("npu-smi") is None
