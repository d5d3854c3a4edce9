"""What the READMEs claim about options and commands is what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from paddle_fluid_boost.options import describe

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")


def option_rows(text: str) -> dict[str, str]:
    """Option -> default, from the rows of the options table."""
    known = {name for name, *_ in describe()}
    rows = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) < 4:
            continue
        names, defaults = (re.findall(r"`([^`]+)`", cell) for cell in cells[1:3])
        if names and set(names) <= known:
            rows.update(zip(names, defaults or [""] * len(names)))
    return rows


@pytest.mark.parametrize("readme", READMES)
def test_option_defaults(readme):
    rows = option_rows((ROOT / readme).read_text(encoding="utf-8"))
    assert len(rows) >= 10
    for name, _, default, _ in describe():
        if name in rows:
            shown = rows[name]
            assert (
                shown == default if isinstance(default, str) else ast.literal_eval(shown) == default
            )


@pytest.mark.parametrize("readme", READMES)
def test_named_files_and_commands_exist(readme):
    text = (ROOT / readme).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    for tool in set(re.findall(r"\btools/(\w+)", text)):
        assert (ROOT / "tools" / tool).exists(), tool


def test_both_languages_show_the_same_commands():
    texts = [(ROOT / readme).read_text(encoding="utf-8") for readme in READMES]
    commands = [set(re.findall(r"`((?:pfb\.|python -m |tools/)[^`]*)`", text)) for text in texts]
    # The placeholders of arguments are translated, so only the first words are compared.
    first_words = [{re.split(r" (?=[A-Z一-鿿])", c)[0] for c in found} for found in commands]
    assert first_words[0] == first_words[1]
