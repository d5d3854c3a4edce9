"""The folder: whole entries or none, whoever writes and whenever a writer is killed."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback

import pytest

from paddle_fluid_boost import cache
from paddle_fluid_boost.cache import store
from paddle_fluid_boost.cache.surroundings import key
from paddle_fluid_boost.options import override

NAMES = [key(number) for number in range(8)]


def in_forked_child(work):
    """Runs ``work`` in a child and returns its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def outcome_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def file_of(folder, name, kind="choice"):
    return folder / f"{kind}-{name}.json"


# -- reading and writing --------------------------------------------------------------------------


def test_what_is_written_is_read(folder):
    assert store.read("choice", NAMES[0]) is None
    assert store.write("choice", NAMES[0], {"best": "a", "n": [1, 2.5, None]}, {"ops": 3})
    assert store.read("choice", NAMES[0]) == {"best": "a", "n": [1, 2.5, None]}
    assert store.read("choice", NAMES[1]) is None
    assert store.read("probe", NAMES[0]) is None
    (entry,) = cache.entries()
    assert (entry.kind, entry.key, entry.about) == ("choice", NAMES[0], {"ops": 3})
    assert entry.nbytes == file_of(folder, NAMES[0]).stat().st_size


def test_the_folder_is_for_its_user_only(folder):
    store.write("choice", NAMES[0], {}, {})
    assert folder.stat().st_mode & 0o077 == 0
    assert file_of(folder, NAMES[0]).stat().st_mode & 0o077 == 0


def test_clear_leaves_files_of_others(folder):
    for name in NAMES[:3]:
        store.write("choice", name, {}, {})
    (folder / "notes.json").write_text("mine")
    (folder / ".pfb-abandoned.tmp").write_text("half")
    assert cache.clear() == 3
    assert cache.entries() == []
    assert [file.name for file in folder.iterdir()] == ["notes.json"]
    assert cache.clear() == 0


def test_switched_off_nothing_is_read_or_written(folder):
    store.write("choice", NAMES[0], {"best": "a"}, {})
    with override(cache=False):
        assert cache.path() is None
        assert store.read("choice", NAMES[0]) is None
        assert not store.write("choice", NAMES[1], {}, {})
        assert cache.entries() == [] and cache.clear() == 0
    assert [entry.key for entry in cache.entries()] == [NAMES[0]]


def test_where_the_folder_is(monkeypatch):
    with override(cache=True):
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        assert str(cache.path()) == "/somewhere/paddle_fluid_boost"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says XDG
        monkeypatch.setenv("HOME", "/home/somebody")
        assert str(cache.path()) == "/home/somebody/.cache/paddle_fluid_boost"


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[:-10] + b"\0" * 10,
        lambda content: b"\x80\x04cos\nsystem\n",
        lambda content: content.replace(b'"a"', b'"b"'),
        lambda content: content + b" ",
        lambda content: b"[" * 100_000,
        lambda content: b"x" * (store._LARGEST + 5),
    ],
    ids=["empty", "half", "cut", "zeros", "pickle", "changed", "longer", "nested", "huge"],
)
def test_a_damaged_entry_is_deleted_and_logged(folder, damage, caplog):
    store.write("choice", NAMES[0], {"best": "a"}, {})
    file = file_of(folder, NAMES[0])
    file.write_bytes(damage(file.read_bytes()))
    with caplog.at_level("WARNING", logger="paddle_fluid_boost.cache"):
        assert store.read("choice", NAMES[0]) is None
    assert not file.exists()
    assert "damaged" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"format": store._FORMAT + 1},
        {"key": NAMES[1]},
        {"kind": "probe"},
        {"value": [1]},
        {"about": None},
    ],
    ids=str,
)
def test_a_foreign_document_is_deleted(folder, change):
    folder.mkdir()
    whole = {"format": store._FORMAT, "kind": "choice", "key": NAMES[0], "value": {}, "about": {}}
    body = json.dumps({**whole, **change}).encode()
    file_of(folder, NAMES[0]).write_bytes(store._digest(body) + b"\n" + body)
    assert store.read("choice", NAMES[0]) is None
    assert not file_of(folder, NAMES[0]).exists()


def test_an_entry_that_is_listed_while_damaged_is_gone_afterwards(folder):
    store.write("choice", NAMES[0], {}, {"ops": 1})
    file_of(folder, NAMES[0]).write_bytes(b"noise")
    assert [entry.about for entry in cache.entries()] == [{}]
    assert cache.entries() == []


def test_links_and_folders_in_place_of_entries_are_not_followed(folder, tmp_path):
    store.write("choice", NAMES[0], {"best": "a"}, {})
    target = tmp_path / "target"
    os.rename(file_of(folder, NAMES[0]), target)
    file_of(folder, NAMES[0]).symlink_to(target)
    file_of(folder, NAMES[1]).mkdir()
    os.mkfifo(file_of(folder, NAMES[2]))  # whoever opens it waits for a writer
    assert store.read("choice", NAMES[0]) is None
    assert store.read("choice", NAMES[2]) is None
    assert store.read("choice", NAMES[1]) is None
    assert not store.write("choice", NAMES[1], {}, {})
    assert target.exists()


def test_a_file_of_another_user_is_not_believed(folder, monkeypatch):
    store.write("choice", NAMES[0], {"best": "a"}, {})
    monkeypatch.setattr(os, "geteuid", lambda: file_of(folder, NAMES[0]).stat().st_uid + 1)
    assert store.read("choice", NAMES[0]) is None
    assert file_of(folder, NAMES[0]).exists()


@pytest.mark.parametrize("obstacle", ["a file", "read only"])
def test_a_folder_that_cannot_be_written_to_costs_nothing(folder, obstacle, monkeypatch):
    if obstacle == "a file":
        folder.write_text("in the way")
    else:  # root may write anywhere, so the system's answer is played

        def refuse(*args, **kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(store.tempfile, "mkstemp", refuse)
    assert not store.write("choice", NAMES[0], {}, {})
    assert store.read("choice", NAMES[0]) is None
    assert cache.entries() == [] and cache.clear() == 0


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch):
    store.write("choice", NAMES[0], {"best": "a"}, {})

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    assert not store.write("choice", NAMES[0], {"best": "b"}, {})
    assert store.read("choice", NAMES[0]) == {"best": "a"}
    assert len(list(folder.iterdir())) == 1


# -- bound ----------------------------------------------------------------------------------------


def test_the_least_recently_used_go(folder):
    text = "x" * 200_000
    now = time.time()
    with override(cache_mb=1):
        for age, name in enumerate(NAMES[:5]):
            assert store.write("choice", name, {"text": text}, {})
            os.utime(file_of(folder, name), (now - 5000 + age, now - 5000 + age))
        assert store.read("choice", NAMES[0]) is not None  # used: now the youngest
        assert store.write("choice", NAMES[5], {"text": text}, {})
        kept = {entry.key for entry in cache.entries()}
        assert {NAMES[0], NAMES[5]} <= kept
        assert NAMES[1] not in kept
        assert sum(entry.nbytes for entry in cache.entries()) <= 1 << 20


def test_an_entry_that_is_too_large_is_not_kept(folder):
    assert not store.write("choice", NAMES[0], {"text": "x" * store._LARGEST}, {})
    assert cache.entries() == []


def test_what_a_killed_writer_left_is_cleaned_after_a_while(folder):
    store.write("choice", NAMES[0], {}, {})
    old, young = folder / ".pfb-old.tmp", folder / ".pfb-young.tmp"
    for file in (old, young):
        file.write_text("half")
    os.utime(old, (1, 1))
    store.write("choice", NAMES[1], {}, {})
    assert not old.exists() and young.exists()


# -- several processes ----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_writers_and_readers_never_meet_half_an_entry(folder):
    def write(number):
        for turn in range(40):
            for name in NAMES[:3]:
                # Comes to nothing where another process clears the cache at that very moment.
                store.write("choice", name, {"by": number, "text": "x" * 3000}, {})
            if turn % 10 == 9:
                cache.clear()

    def read():
        for _ in range(400):
            for name in NAMES[:3]:
                value = store.read("choice", name)
                assert value is None or len(value["text"]) == 3000
            assert all(entry.kind == "choice" for entry in cache.entries())

    children = [in_forked_child(lambda n=number: write(n)) for number in range(3)]
    children += [in_forked_child(read) for _ in range(2)]
    assert [outcome_of(child) for child in children] == [0] * 5
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("moment", ["half written", "before the rename", "after the rename"])
def test_a_writer_that_is_killed_damages_nothing(folder, moment):
    store.write("choice", NAMES[0], {"best": "old"}, {})

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def write_and_die():
        replace = os.replace

        def last_step(temporary, file):
            if moment == "half written":
                os.truncate(temporary, 20)
            if moment == "after the rename":
                replace(temporary, file)
            die()

        os.replace = last_step
        store.write("choice", NAMES[0], {"best": "new"}, {})

    assert outcome_of(in_forked_child(write_and_die)) == -signal.SIGKILL
    expected = "new" if moment == "after the rename" else "old"
    assert store.read("choice", NAMES[0]) == {"best": expected}
    assert store.write("choice", NAMES[0], {"best": "next"}, {})
    assert store.read("choice", NAMES[0]) == {"best": "next"}
    cache.clear()
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_writers_killed_at_any_moment_leave_whole_entries(folder):
    def write():
        while True:
            store.write("choice", NAMES[0], {"text": "x" * 50_000}, {})

    for number in range(10):
        child = in_forked_child(write)
        while not cache.entries():
            time.sleep(0.001)
        time.sleep(0.003 * number)
        os.kill(child, signal.SIGKILL)
        assert outcome_of(child) == -signal.SIGKILL
        value = store.read("choice", NAMES[0])
        assert value is not None and len(value["text"]) == 50_000
