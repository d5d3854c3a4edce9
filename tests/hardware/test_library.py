"""The hardware library: its files, what a wrong one is told, and what it says of machines."""

from __future__ import annotations

import dataclasses

import pytest

from paddle_fluid_boost.engines import paddle_inference_safety as safety
from paddle_fluid_boost.engines import registry
from paddle_fluid_boost.errors import LibraryError
from paddle_fluid_boost.hardware import advice, library
from paddle_fluid_boost.hardware.accelerators import Gpu, Npu
from paddle_fluid_boost.hardware.cpu import Cpu
from paddle_fluid_boost.hardware.library import Fault, load
from paddle_fluid_boost.options import override

OURS = load()

_AVX2 = {"avx2", "fma"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_VNNI = _AVX512 | {"avx512_vnni"}
_AMX = _VNNI | {"avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}


def _cpu(architecture, features=(), microarchitecture="", vendor="", **more):
    known = Cpu(
        architecture, vendor, "a chip", microarchitecture, frozenset(features), 8, 4, 8, None, 2, ()
    )
    return dataclasses.replace(known, **more)


@pytest.mark.parametrize(
    ("cpu", "family", "pays"),
    [
        (_cpu("riscv64"), "any processor", {"float32"}),
        (_cpu("x86_64"), "any processor", {"float32"}),
        (_cpu("x86_64", _AVX2), "x86 with AVX2", {"float32"}),
        (_cpu("x86_64", _AVX2 | {"avx_vnni"}), "x86 with AVX2 and VNNI", {"float32", "int8"}),
        (_cpu("x86_64", _AVX512), "x86 with AVX-512", {"float32"}),
        (_cpu("x86_64", _VNNI), "x86 with AVX-512 and VNNI", {"float32", "int8"}),
        (_cpu("x86_64", _AMX), "x86 with AMX", {"float32", "int8", "bfloat16"}),
        (_cpu("aarch64", {"asimd"}, "cortex_a53"), "ARM with NEON", {"float32"}),
        (
            _cpu("aarch64", {"asimd", "asimddp"}, "cortex_a76"),
            "ARM with dotprod",
            {"float32", "int8"},
        ),
        (
            _cpu("aarch64", {"asimd", "asimddp"}, "neoverse_n1"),
            "Neoverse N1 (Graviton2, Altra)",
            {"float32", "int8"},
        ),
        (
            _cpu("aarch64", {"asimddp", "i8mm", "bf16", "sve"}, "neoverse_v1"),
            "ARM server with SVE",
            {"float32", "int8", "bfloat16"},
        ),
        (
            _cpu("aarch64", {"asimddp"}, "m1", "Apple"),
            "Apple M1 and later",
            {"float32", "int8"},
        ),
        (
            _cpu("aarch64", {"asimddp", "i8mm", "bf16"}, "m2", "Apple"),
            "ARM with i8mm and bf16",
            {"float32", "int8", "bfloat16"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_processors(cpu, family, pays):
    said = advice.for_cpu(OURS, cpu)
    assert said.families[-1] == family
    assert set(said.pays()) == pays
    assert said.engines


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((6, 1), "NVIDIA GPU"),
        ((7, 0), "NVIDIA Volta"),
        ((7, 5), "NVIDIA Turing"),
        ((8, 6), "NVIDIA Ampere"),
        ((9, 0), "NVIDIA Ada and Hopper"),
        ((12, 0), "NVIDIA Blackwell"),
    ],
)
def test_gpus(capability, family):
    said = advice.for_gpu(OURS, Gpu(0, "a GPU", capability, 1 << 34, True))
    assert said.families[-1] == family
    assert ("bfloat16" in said.pays()) == (capability >= (8, 0))
    assert said.memory["pool_mb"] > 0 and said.tensorrt["workspace_mb"] > 0


def test_a_gpu_of_unknown_capability_has_no_advice():
    assert advice.for_gpu(OURS, Gpu(0, "a GPU", None, None, True)) == advice.Advice()


@pytest.mark.parametrize(
    ("name", "family"),
    [("910B3", "Ascend 910"), ("310P3", "Ascend 310"), ("npu", "Ascend NPU")],
)
def test_npus(name, family):
    assert advice.for_npu(OURS, Npu(0, "npu", name)).families[-1] == family


def test_every_statement_of_ours_has_a_source():
    """Reading our own files checks it; here a file without one is refused."""
    family = next(f for f in OURS if f.file == "x86_amx.toml")
    content = {key: value for key, value in family.content.items() if key != "source"}
    with pytest.raises(LibraryError, match=r"x86_amx\.toml: precisions\.bfloat16: got no source"):
        library.schema.check("x86_amx.toml", content, sourced=True)
    for family in OURS:
        for source in family.content.get("source", ()):
            assert source["url"].startswith(("https://", "docs/")), family.file


_RIGHT = 'family = "mine"\nkind = "cpu"\nextends = "cpu"\n[match]\narchitecture = ["x86_64"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("family = ", "mine.toml: got what is not TOML"),
        ('kind = "cpu"\n[match]\n', "mine.toml: family: got nothing, needs this key"),
        ('family = "x"\nkind = "tpu"\n[match]\n', "kind: got 'tpu', needs one of cpu, gpu, npu"),
        (
            _RIGHT + "[precisions]\nint8 = 'fast'\n",
            "precisions.int8: got 'fast', needs one of pays",
        ),
        (_RIGHT + "[precision]\n", "precision: got an unknown key.*did you mean precisions"),
        (_RIGHT + "[threads]\nleast = 0\n", "threads.least: got 0, needs a whole number"),
        (_RIGHT + "[threads]\nmost = 4\n", "threads.most: got 4, needs one of usable"),
        (_RIGHT + "[memory]\npool_mb = 9\n", "memory: got this table in a file for a cpu"),
        (_RIGHT + "[passes]\nenable = []\n", "passes.enable: got an unknown key"),
        (_RIGHT + "[engines]\norder = 'native'\n", "engines.order: got 'native', needs a list"),
        (_RIGHT + "[engines]\norder = ['tvm']\n", r"engines.order: got \['tvm'\], needs .*native"),
        (_RIGHT + "[passes]\navoid = [1]\n", r"passes.avoid: got \[1\], needs a list of texts"),
        (_RIGHT + "[[fault]]\nengine = 'native'\n", r"fault\[0\].when: got nothing"),
        ("precisions = 3\n" + _RIGHT, "precisions: got 3, needs a table"),
        (
            _RIGHT.replace('"cpu"\n[', '"gpu_nvidia"\n['),
            "extends: got 'gpu_nvidia', which is for a gpu",
        ),
        (_RIGHT.replace('"cpu"\n[', '"nothing"\n['), "extends: got 'nothing', needs one of"),
        (_RIGHT.replace('"cpu"\n[', '"mine"\n['), "extends: got 'mine', which extends this file"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    with pytest.raises(LibraryError, match=message):
        load(str(tmp_path))


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(LibraryError, match=r"hardware_dir: got .*nowhere.*needs a folder"):
        load(str(tmp_path / "nowhere"))


def test_users_add_and_replace_files(tmp_path):
    mine = _RIGHT.replace('"cpu"\n[', '"x86_amx"\n[') + '[precisions]\nfloat16 = "pays"\n'
    amx = sorted(_AMX)
    (tmp_path / "mine.toml").write_text(
        mine.replace('["x86_64"]', f'["x86_64"]\nfeatures = {amx}').replace("'", '"'),
        encoding="utf-8",
    )
    (tmp_path / "x86_avx2.toml").write_text(
        'family = "another AVX2"\nkind = "cpu"\nextends = "cpu"\n[match]\nfeatures = ["avx2"]\n',
        encoding="utf-8",
    )
    theirs = load(str(tmp_path))
    said = advice.for_cpu(theirs, _cpu("x86_64", _AMX))
    assert said.families[-1] == "mine" and "another AVX2" in said.families
    assert "float16" in said.pays()
    assert len(list(theirs)) == len(list(OURS)) + 1


def test_a_wrong_file_of_the_user_costs_no_call(tmp_path, caplog):
    (tmp_path / "bad.toml").write_text("what?", encoding="utf-8")
    with override(hardware_dir=str(tmp_path)):
        said = advice.cpu_advice()
    assert said.engines == advice.cpu_advice().engines
    assert "bad.toml" in caplog.text


# -- what engines ask -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paddle", "version", "has_it"),
    [
        (">=3.0,<3.4", "3.3.1", True),
        (">=3.0,<3.4", "3.4.0", False),
        (">=3.0,<3.4", "2.6.2", False),
        ("==3.2", "3.2.2", True),
        ("<=3.2", "3.2.2", True),
        (">3.2", "3.2.2", False),
        (">=3.0", "0.0.0", True),
        ("<3.4", "0.0.0", False),
        (">=3.1", "3.3.0rc1", True),
    ],
)
def test_versions_of_a_fault(paddle, version, has_it):
    fault = Fault("paddle_inference", "onednn", paddle, ("pd_op.x",), "crashes")
    assert fault.in_version(version) is has_it


def _advice_with(monkeypatch, module, **changes):
    said = dataclasses.replace(advice.cpu_advice(), **changes)
    monkeypatch.setattr(module, "cpu_advice", lambda: said)


def test_known_faults_rule_paddle_inference(monkeypatch):
    def fault(op, **cure):
        return Fault("paddle_inference", "onednn", ">=0", (op,), "crashes", **cure)

    _advice_with(
        monkeypatch,
        safety,
        faults=(
            fault("pd_op.relu", probe=True),
            fault("pd_op.odd", leave_out="odd_pass"),
            fault("pd_op.lost", avoid=True),
        ),
        avoid=("never_pass",),
    )
    assert safety.unproven(["pd_op.relu", "pd_op.odd", "pd_op.add"]) == ["pd_op.relu"]
    assert safety.passes_to_leave_out(["pd_op.odd"]) == ("odd_pass", "never_pass")
    assert safety.hopeless(["pd_op.lost"]) and not safety.hopeless(["pd_op.odd"])


def test_engines_come_in_the_librarys_order(monkeypatch):
    _advice_with(monkeypatch, registry, engines=("paddle_inference", "native"))
    assert registry.engine_names()[:2] == ["paddle_inference", "native"]
    with override(engines="native"):
        assert registry.engine_names() == ["native"]


@pytest.mark.parametrize(
    ("usable", "threads", "counts"),
    [
        (8, {"most": "usable", "least": 1}, [8, 4, 2, 1]),
        (8, {"most": "physical", "least": 1}, [4, 2, 1]),
        (8, {"most": "big", "least": 1}, [2, 1]),
        (3, {"most": "physical", "least": 2}, [3, 2]),
        (1, {"most": "physical", "least": 1}, [1]),
        (6, {}, [6, 3, 1]),
    ],
)
def test_thread_rules(monkeypatch, usable, threads, counts):
    """Eight processors in four cores, two of them fast; affinity and quota leave ``usable``."""
    machine = dataclasses.replace(advice.probe(), cpu=_cpu("x86_64"))
    monkeypatch.setattr(advice, "probe", lambda: machine)
    monkeypatch.setattr(advice, "usable_cores", lambda: usable)
    _advice_with(monkeypatch, advice, threads=threads)
    assert advice.thread_counts() == counts
