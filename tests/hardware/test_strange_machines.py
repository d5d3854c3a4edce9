"""The probe and the library on machines, tools and files that are not as anybody expects."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import fake_machines
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_fluid_boost.errors import LibraryError
from paddle_fluid_boost.hardware import accelerators, modules
from paddle_fluid_boost.hardware.accelerators import find_gpus, find_npus
from paddle_fluid_boost.hardware.describe import describe
from paddle_fluid_boost.hardware.library import OURS, load
from paddle_fluid_boost.hardware.probe import ask_machine

#: Contents that are nearly right, and such as break careless readers.
_ODD = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            *(b"", b"\n", b"0", b"-1", b"max", b"9" * 5000, b"\xc2\xb2", b"1e9", b"nan", b"0x10"),
            *(b"0-3", b"0-99999999999", b"3-0", b"a-b", b",", b"48K", b"9" * 5000 + b"K", b"0K"),
            *(b"max 0", b"100000 0", b"-5 -5", b"1 2 3", b"150000 100000"),
            *(
                b"0::/a\x00b",
                b"0::/../../..",
                b"0::" + b"/x" * 3000,
                b"5:cpu:/a\x00",
                b"::",
                b"0::",
            ),
            *(b"MemTotal: \xc2\xb2 kB", b"MemTotal: 1", b"MemTotal:", b"MemTotal: " + b"9" * 5000),
            *(
                b"flags\t: avx2\n\nflags",
                b"cpu MHz: nan",
                b"CPU implementer: 0x41\nCPU part: 0xd0b",
            ),
            *(b"CPU implementer: " + b"9" * 5000 + b"\nCPU part: 1", b"core id: 0", b"processor"),
        ]
    ),
)


@pytest.fixture(autouse=True)
def _no_tools(monkeypatch):
    monkeypatch.setattr(accelerators, "installed", lambda name: False)
    monkeypatch.setattr(accelerators.shutil, "which", lambda name: None)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), make=st.sampled_from([fake_machines.xeon, fake_machines.phone]))
def test_files_of_any_content(tmp_path, data, make):
    root = tmp_path / "machine"
    shutil.rmtree(root, ignore_errors=True)
    make(root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=8, unique=True)):
        path.unlink()
        odd = data.draw(st.one_of(_ODD, st.sampled_from(["gone", "folder", "loop"])))
        if odd == "folder":
            path.mkdir()
        elif odd == "loop":
            path.symlink_to(path)
        elif odd != "gone":
            path.write_bytes(odd)
    machine = ask_machine(root, architecture=data.draw(st.sampled_from(["x86_64", "aarch64"])))
    cpu = machine.cpu
    assert cpu.logical >= 1 and 1 <= cpu.usable <= cpu.logical and 1 <= cpu.big <= cpu.physical
    assert cpu.quota is None or cpu.quota > 0
    assert machine.memory.limit is None or machine.memory.limit > 0
    assert list(describe(machine)) and machine.identity()


def test_a_group_without_the_link_of_its_controller(tmp_path):
    """Version 1 mounts cpu and cpuacct as one; not every system links ``cpu`` to it."""
    fake_machines.write(
        tmp_path,
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/box\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "150000",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000",
        },
    )
    assert ask_machine(tmp_path, architecture="x86_64").cpu.quota == 1.5


def test_cpus_that_are_no_numbers(tmp_path):
    fake_machines.phone(tmp_path)
    for name in ("cpu\u00b2", "cpufreq", "cpu" + "9" * 40, "cpu-1"):
        (tmp_path / "sys/devices/system/cpu" / name).mkdir()
    assert ask_machine(tmp_path, architecture="aarch64").cpu.logical == 8


# -- tools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        *("{}", "[[]]", '[{"a": 1}]', '[["x", {}, 1, "d", null]]', '[["x", [8], 1, "d", 0]]'),
        *('[["x", [8, 6], Infinity, "d", 0]]', '[["x", null, 1, "d", 0]]', "[1]", "null"),
        '["abcde"]',
    ],
)
def test_nvml_answers_of_another_form(monkeypatch, answer):
    monkeypatch.setattr(accelerators, "installed", lambda name: True)
    notes: list[str] = []
    assert find_gpus(None, 1.0, notes, lambda command, seconds: answer) == []
    assert answer == "{}" or "NVML gave no answer" in notes[0]


def test_a_program_that_embeds_python_is_not_started_again(monkeypatch):
    monkeypatch.setattr(accelerators, "installed", lambda name: True)
    for executable in ("/opt/cad/bin/cad", "", None):
        monkeypatch.setattr(sys, "executable", executable)
        assert modules.python() is None
        asked = lambda *_: pytest.fail("was started")  # noqa: E731
        assert find_gpus(None, 1.0, [], asked) == []


def test_a_stub_in_the_place_of_a_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))  # without a __spec__
    assert not modules.installed("pynvml")
    assert not modules.installed("no_such_package.module")
    assert modules.installed("json")


@given(table=st.text(alphabet="| 0123456789abcdefOK+-:\n/", max_size=200))
@settings(max_examples=40, deadline=None)
def test_npu_smi_that_prints_anything(table):
    accelerators.parse_npu_smi(table)


def test_npu_smi_with_a_number_beyond_all_bounds(monkeypatch):
    monkeypatch.setattr(accelerators.shutil, "which", lambda name: "/usr/bin/npu-smi")
    table = "| 0 910B3 | OK | 90.1 45 0 |\n| 0 | 0000:C1:00.0 | 0 / " + "9" * 5000 + " |"
    notes: list[str] = []
    assert find_npus(None, 1.0, notes, lambda command, seconds: table) == []
    assert "npu-smi gave no answer" in notes[0]


@pytest.mark.parametrize("error", [RuntimeError("(External) broken"), OSError("no driver")])
def test_a_plugin_that_is_broken(error):
    def fails():
        raise error

    paddle = types.SimpleNamespace(
        is_compiled_with_cuda=lambda: False,
        device=types.SimpleNamespace(get_available_custom_device=fails),
    )
    notes: list[str] = []
    assert find_npus(paddle, 1.0, notes) == [] and "cannot list its custom devices" in notes[0]


def test_paddle_that_is_only_half_imported(tmp_path):
    machine = ask_machine(tmp_path, paddle=types.ModuleType("paddle"))
    assert machine.gpus == () and machine.npus == ()


# -- files of the library -------------------------------------------------------------------------


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_is_a_library_error_or_still_right(tmp_path, data):
    path = data.draw(st.sampled_from(sorted(OURS.glob("*.toml"))))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        piece = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"[", b'"', b"= 1\n"])))
        content[at : at + data.draw(st.integers(0, 40))] = piece
    (tmp_path / path.name).write_bytes(bytes(content))
    try:
        load(str(tmp_path))
    except LibraryError as error:
        assert str(error)


@pytest.mark.parametrize(
    "content",
    [b"x = " + b"[" * 5000, b"\xff", b"a = 1979-05-27", b"family = 1e999999\nkind = 3\n[match]\n"],
)
def test_odd_files(tmp_path, content):
    (tmp_path / "odd.toml").write_bytes(content)
    with pytest.raises(LibraryError, match=r"odd\.toml"):
        load(str(tmp_path))
    (tmp_path / "odd.toml").unlink()
    (tmp_path / "odd.toml").mkdir()
    with pytest.raises(LibraryError, match=r"odd\.toml"):
        load(str(tmp_path))


def test_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "gone.toml").symlink_to(Path("/nowhere/at/all.toml"))
    with pytest.raises(LibraryError, match=r"gone\.toml"):
        load(str(tmp_path))
