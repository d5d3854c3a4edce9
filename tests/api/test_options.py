"""Options: defaults, environment, configure, override, and clear errors."""

from __future__ import annotations

import pytest

from paddle_fluid_boost import OptionError, configure, options, override
from paddle_fluid_boost.options import Options, describe, load_environment


@pytest.fixture(autouse=True)
def restored():
    before = vars(options).copy()
    yield
    configure(**before)


def test_unknown_name_suggests_the_right_one() -> None:
    with pytest.raises(OptionError, match="unknown option 'max_version'; did you mean"):
        configure(max_version=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sync": 1}, "option 'sync' needs bool, got 1"),
        ({"max_versions": 0}, "must be at least 1"),
        ({"capture_duty": 2.0}, "must be at least 0.01 and at most 1.0"),
        ({"training": "fast"}, "must be one of auto, eager, stock"),
        ({"log": "compiles,everything"}, "unknown log channel 'everything'"),
        ({"max_versions": "three"}, "needs int, got 'three'"),
    ],
)
def test_wrong_values_name_option_value_and_need(changes, message) -> None:
    with pytest.raises(OptionError, match=message):
        configure(**changes)


def test_all_or_nothing() -> None:
    with pytest.raises(OptionError):
        configure(max_versions=3, nonsense=1)
    assert options.max_versions == Options().max_versions


def test_environment() -> None:
    load_environment({"PFB_SYNC": "1", "PFB_HOT_CALLS": "7", "PFB_MIN_GAIN": "2"})
    assert (options.sync, options.hot_calls, options.min_gain) == (True, 7, 2.0)


@pytest.mark.parametrize(
    ("name", "text"), [("PFB_SYNC", "maybe"), ("PFB_HOT_CALLS", "many"), ("PFB_HOT_CALLS", "-1")]
)
def test_environment_errors_name_the_variable(name, text) -> None:
    with pytest.raises(OptionError, match=f"environment variable {name}"):
        load_environment({name: text})


def test_override_restores_also_after_an_error() -> None:
    with pytest.raises(RuntimeError), override(max_versions=2):
        assert options.max_versions == 2
        raise RuntimeError
    assert options.max_versions == Options().max_versions


def test_every_option_is_documented() -> None:
    for name, _, _, help_text in describe():
        assert len(help_text) > 10, name
