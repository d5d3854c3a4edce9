"""``cache list`` and ``cache clear``."""

from __future__ import annotations

import json

from paddle_fluid_boost import cache, cli
from paddle_fluid_boost.cache import store
from paddle_fluid_boost.options import override


def test_list_and_clear(tmp_path, capsys):
    with override(cache=True, cache_dir=str(tmp_path)):
        about = {"inputs": ["float32[1, 3]"], "best": "native", "compiled_ms": 1, "eager_ms": 9}
        store.write("choice", "0" * 32, {"best": "native"}, about)
        store.write("probe", "1" * 32, {}, {"inputs": ["int64[2]"], "wrong": None})
        assert cli.main(["cache", "list"]) == 0
        said = capsys.readouterr().out
        assert "float32[1, 3]: native, 1 ms against 9 eager" in said
        assert "int64[2]: does no harm" in said
        assert f"2 entries, {sum(e.nbytes for e in cache.entries())} bytes in {tmp_path}" in said
        assert cli.main(["cache", "list", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert {entry["kind"] for entry in listed["entries"]} == {"choice", "probe"}
        assert cli.main(["cache", "clear"]) == 0
        assert "2 entries deleted" in capsys.readouterr().out
        assert cli.main(["cache", "clear", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["cleared"] == 0


def test_says_that_it_is_off(capsys):
    with override(cache=False):
        assert cli.main(["cache", "list"]) == 0
    assert "off" in capsys.readouterr().err
