"""Bundles that are damaged, foreign or hostile are refused with a clear error."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from random import Random

import numpy as np
import pytest

import paddle_fluid_boost as pfb
from paddle_fluid_boost.errors import BundleError
from paddle_fluid_boost.export.bundle_file import MANIFEST, read_bundle, write_bundle
from paddle_fluid_boost.export.graph_json import ConstantWriter, graph_from_dict, graph_to_dict
from paddle_fluid_boost.ir.graph import Graph
from paddle_fluid_boost.ir.printer import print_graph


@pytest.fixture
def bundle(tmp_path):
    content = tmp_path / "content"
    content.write_bytes(bytes(range(256)) * 64)
    text = tmp_path / "text"
    text.write_text('{"a": 1}')
    path = tmp_path / "model.pfb"
    write_bundle(str(path), {"card": {}}, {"data.bin": str(content), "graphs/0.json": str(text)})
    return path


def rewrite(path, change):
    """The archive with its entries (name -> bytes) changed by ``change``."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def manifest_with(**changes):
    def change(entries):
        entries[MANIFEST] = json.dumps({**json.loads(entries[MANIFEST]), **changes}).encode()

    return change


def test_what_was_written_is_read(bundle):
    manifest, contents = read_bundle(str(bundle))
    assert manifest["card"] == {}
    assert contents["data.bin"] == bytes(range(256)) * 64
    assert contents["graphs/0.json"] == b'{"a": 1}'


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e.update({"../evil.bin": b"x"}), "name that no bundle uses"),
        (lambda e: e.update({"/etc/passwd": b"x"}), "name that no bundle uses"),
        (lambda e: e.update({"a/../b.bin": b"x"}), "name that no bundle uses"),
        (lambda e: e.update({"more.bin": b"x"}), "does not name"),
        (lambda e: e.pop("data.bin"), "missing"),
        (lambda e: e.pop(MANIFEST), "not a bundle"),
        (lambda e: e.update({"data.bin": b"\1" + e["data.bin"][1:]}), "was changed"),
        (lambda e: e.update({"data.bin": b"short"}), "not as listed"),
        (lambda e: e.update({MANIFEST: b"{"}), "no JSON"),
        (lambda e: e.update({MANIFEST: b"[" * 100000}), "no JSON"),
        (manifest_with(format="other"), "not one of paddle_fluid_boost"),
        (manifest_with(version=99), "version 99"),
        (manifest_with(files=["data.bin"]), "does not list"),
    ],
)
def test_a_changed_archive_is_refused(bundle, change, says):
    rewrite(bundle, change)
    with pytest.raises(BundleError, match=says):
        read_bundle(str(bundle))


def test_truncation_anywhere_is_noticed(bundle):
    whole = bundle.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        bundle.write_bytes(whole[:length])
        with pytest.raises(BundleError):
            read_bundle(str(bundle))


def test_a_flipped_bit_anywhere_in_the_contents_is_noticed(bundle):
    whole = bundle.read_bytes()
    want = read_bundle(str(bundle))
    for position in range(0, len(whole), 997):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        bundle.write_bytes(bytes(damaged))
        try:
            got = read_bundle(str(bundle))
        except BundleError:
            continue
        assert got == want, "only fields that mean nothing, such as dates, may change unnoticed"


def test_other_files_are_no_bundles(tmp_path):
    for name, content in (("pickle", b"\x80\x04K\x01."), ("empty", b""), ("text", b"hello")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BundleError):
            read_bundle(str(path))
    with pytest.raises(BundleError, match="no such file"):
        read_bundle(str(tmp_path / "absent"))


def test_a_link_in_the_archive_is_refused(bundle):
    with zipfile.ZipFile(bundle, "a") as archive:
        info = zipfile.ZipInfo("link.bin")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(BundleError, match="not a regular file"):
        read_bundle(str(bundle))


def test_a_bomb_is_refused_before_it_is_unpacked(bundle):
    with zipfile.ZipFile(bundle, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.bin", b"\0" * (1 << 20))
    with pytest.raises(BundleError, match="compressed in a way"):
        read_bundle(str(bundle))


# -- graphs ---------------------------------------------------------------------------------------


def stored_graph():
    graph = Graph()
    x = graph.add_input("x", [2, 3], "float32")
    w = graph.literal(np.arange(12, dtype="float32").reshape(3, 4), "w")
    y = graph.add(
        "linear", [x, w, None], {"post_ops": [("clip", 0.0, 6.0)]}, shape=[2, 4], dtype="float32"
    )
    graph.outputs = [y]
    file = io.BytesIO()
    stored = graph_to_dict(graph, ConstantWriter(file))
    return graph, json.loads(json.dumps(stored)), np.frombuffer(file.getvalue(), np.uint8)


def test_a_graph_comes_back_as_it_was():
    graph, stored, content = stored_graph()
    again = graph_from_dict(stored, content)
    assert print_graph(again) == print_graph(graph)
    assert again.nodes[0].attrs == graph.nodes[0].attrs
    assert again.constants[0].compute().tolist() == graph.constants[0].compute().tolist()


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s["constants"][0].update(offset=1 << 40),
        lambda s: s["constants"][0].update(offset=-64),
        lambda s: s["constants"][0].update(shape=[1 << 40]),
        lambda s: s["constants"][0].update(shape=[-1]),
        lambda s: s["constants"][0].update(dtype="object"),
        lambda s: s["nodes"][0].update(op="__import__"),
        lambda s: s["nodes"][0].update(op="run_program"),
        lambda s: s["nodes"][0].update(op=["linear"]),
        lambda s: s["nodes"][0].update(inputs=[99]),
        lambda s: s["nodes"][0].update(attrs=7),
        lambda s: s["nodes"][0]["outputs"][0].update(shape=["a"]),
        lambda s: s.update(outputs=[12345]),
        lambda s: s.pop("nodes"),
    ],
)
def test_a_damaged_graph_is_refused(damage):
    _, stored, content = stored_graph()
    damage(stored)
    with pytest.raises(BundleError):
        graph_from_dict(stored, content)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("dilations", []), ("strides", [1]), ("paddings", [0, 0]), ("strides", [1, "a"]),
     ("dilations", [1, 1 << 40]), ("dilations", None)],
)  # fmt: skip
def test_a_window_of_another_geometry_is_refused(attribute, value):
    """The native engine would read past the end of such lists."""
    graph = Graph()
    x = graph.add_input("x", [1, 3, 8, 8], "float32")
    w = graph.literal(np.zeros((4, 3, 3, 3), "float32"), "w")
    attrs = {"strides": [1, 1], "dilations": [1, 1], "paddings": [0] * 4, "groups": 1}
    y = graph.add("fused_conv2d", [x, w, None], attrs, shape=[1, 4, 6, 6], dtype="float32")
    graph.outputs = [y]
    file = io.BytesIO()
    stored = json.loads(json.dumps(graph_to_dict(graph, ConstantWriter(file))))
    content = np.frombuffer(file.getvalue(), np.uint8)
    graph_from_dict(stored, content)
    stored["nodes"][0]["attrs"][attribute] = value
    with pytest.raises(BundleError, match="damaged"):
        graph_from_dict(stored, content)


# -- by chance ------------------------------------------------------------------------------------


def mutated(random, content):
    """``content`` with a few bytes changed, cut out, put in or repeated, mostly near its end,
    where a zip file has its directory."""
    data = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 5, 20])):
        near_end = len(data) - 1 - int(random.expovariate(1 / 300))
        at = random.choice([random.randrange(len(data)), max(0, near_end)])
        kind = random.randrange(5)
        if kind == 0:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[at : at + 4] = random.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"])
        elif kind == 2:
            del data[at : at + random.randrange(1, 200)]
        elif kind == 3:
            other = random.randrange(len(data))
            data[at:at] = data[other : other + random.randrange(1, 100)]
        else:
            del data[at + 1 :]
        if not data:
            data = bytearray(b"x")
    return bytes(data)


def test_bytes_changed_by_chance_are_refused_or_mean_nothing(bundle):
    random = Random(5)
    whole = bundle.read_bytes()
    want = read_bundle(str(bundle))
    refused = 0
    for _ in range(600):
        bundle.write_bytes(mutated(random, whole))
        try:
            assert read_bundle(str(bundle)) == want
        except BundleError:
            refused += 1
    assert refused > 450


def test_what_an_author_got_wrong_is_refused_though_the_hashes_fit(tmp_path):
    """Values of a manifest and of a graph changed, one at a time, with hashes that fit."""
    random = Random(6)
    report = pfb.export(lambda x: x * 2.0 + 1.0, str(tmp_path / "out"), to="bundle", shapes="x=2,3")
    assert report.ok
    path = str(tmp_path / "out" / "model.pfb")
    manifest, contents = read_bundle(path)
    refused = 0
    for _ in range(40):
        changed = {**contents}
        new = json.loads(json.dumps(manifest))
        target = random.choice([new, json.loads(contents["graphs/0.json"])])
        where, key = random.choice(list(places(target)))
        where[key] = random.choice([None, -1, 2**70, 0.5, "", "x", [], {}, [[1]], {"tensor": 9}])
        if target is not new:
            changed["graphs/0.json"] = json.dumps(target).encode()
        if isinstance(new.get("files"), dict):
            new["files"] = {
                name: {"size": len(one), "sha256": hashlib.sha256(one).hexdigest()}
                for name, one in changed.items()
            }
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(MANIFEST, json.dumps(new))
            for name, one in changed.items():
                archive.writestr(name, one)
        try:
            pfb.load(path).close()
        except BundleError:
            refused += 1
    assert refused > 15


def places(value):
    """(container, key) of everything in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from places(inner)


# -- weights that several files hold ---------------------------------------------------------------


@pytest.fixture
def sharing(tmp_path):
    """A bundle of three files that share two weights, and what is in them."""
    random = np.random.RandomState(0)
    one, other = random.bytes(5000), random.bytes(9001)
    contents = {
        "paddle/model.pdiparams": b"head" + one + b"-" + other + b"tail",
        "graphs/constants.bin": other + b"\0" * 55 + one,
        "onnx/model.onnx": b"x" * 17 + one + one + b"y",
        "graphs/0.json": b"{}",
    }
    files = {}
    for number, (name, content) in enumerate(contents.items()):
        files[name] = str(tmp_path / str(number))
        (tmp_path / str(number)).write_bytes(content)
    path = tmp_path / "shared.pfb"
    write_bundle(str(path), {"card": {}}, files, [one, other, one[:4096], b"tiny"])
    return path, contents


def test_weights_are_stored_once(sharing):
    path, contents = sharing
    assert read_bundle(str(path))[1] == contents
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    assert sizes["paddle/model.pdiparams"] == 4 + 5000 + 1 + 9001 + 4
    assert sizes["graphs/constants.bin"] == 55
    assert sizes["onnx/model.onnx"] == 17 + 5000 + 1, "of a repetition, one is found"


@pytest.mark.parametrize(
    ("range_", "says"),
    [
        ([0, 9001, "paddle/model.pdiparams", 10**9], "outside"),
        ([0, 9001, "graphs/constants.bin", 0], "outside"),
        ([0, 9001, "../secret", 0], "outside"),
        ([-1, 9001, "paddle/model.pdiparams", 0], "not a shared range"),
        ([0, 2**70, "paddle/model.pdiparams", 0], "not a shared range"),
        ([0, "9001", "paddle/model.pdiparams", 0], "not a shared range"),
        ([0, 9001], "not a list"),
        (None, "not a list"),
    ],
)
def test_a_shared_range_that_is_none_is_refused(sharing, range_, says):
    path, _ = sharing

    def change(entries):
        manifest = json.loads(entries[MANIFEST])
        ranges = manifest["files"]["graphs/constants.bin"]["shared"]
        assert len(ranges) == 2
        ranges[0] = range_
        entries[MANIFEST] = json.dumps(manifest).encode()

    rewrite(path, change)
    with pytest.raises(BundleError, match=says):
        read_bundle(str(path))


def test_a_small_archive_does_not_become_a_large_one(sharing):
    path, _ = sharing

    def change(entries):
        manifest = json.loads(entries[MANIFEST])
        ranges = [[n * 9001, 9001, "paddle/model.pdiparams", 4] for n in range(100000)]
        manifest["files"]["graphs/constants.bin"].update(size=9001 * 100000, shared=ranges)
        entries[MANIFEST] = json.dumps(manifest).encode()
        entries["graphs/constants.bin"] = b""

    rewrite(path, change)
    with pytest.raises(BundleError, match="far larger than the archive"):
        read_bundle(str(path))
