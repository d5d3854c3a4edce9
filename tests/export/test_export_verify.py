"""What counts as the same result."""

from __future__ import annotations

import numpy as np
import pytest

from paddle_fluid_boost.errors import ExportError
from paddle_fluid_boost.export.cases import Case
from paddle_fluid_boost.export.verify import check


def case(want, rerun=None):
    return Case("seed=0", [np.ones(3, "float32")], [np.asarray(want)], rerun)


def judge(got, want, **options):
    return check([case(want)], [[np.asarray(got)]], ["y"], **options)


@pytest.mark.parametrize(
    ("got", "want", "says"),
    [
        (np.float32([1, 2, 3.001]), np.float32([1, 2, 3]), "of the range"),
        (np.float32([[1, 2]]), np.float32([1, 2]), r"shape \[1, 2\] instead of \[2\]"),
        (np.float64([1, 2]), np.float32([1, 2]), "dtype float64 instead of float32"),
        (np.int32([1, 2]), np.int64([1, 2]), "dtype int32"),
        (np.int64([1, 3]), np.int64([1, 2]), "1 of 2 values differ"),
        (np.float32([1, np.nan]), np.float32([1, 2]), "NaN or infinity"),
        (np.float32([1, np.inf]), np.float32([1, -np.inf]), "NaN or infinity"),
    ],
)
def test_differences_are_found(got, want, says):
    with pytest.raises(ExportError, match=f"output 'y' is wrong for seed=0: .*{says}"):
        judge(got, want)


def test_a_missing_output_is_a_difference():
    with pytest.raises(ExportError, match="0 outputs instead of 1"):
        check([case(np.float32([1]))], [[]], ["y"])


def test_rounding_is_no_difference():
    found = judge(np.float32([1, np.nan, 3.0001]), np.float32([1, np.nan, 3]))
    assert found.cases == 1
    assert 0 < found.max_rel < 1e-4
    judge(np.int32([1, 2]), np.int64([1, 2]), narrow=True)
    judge(np.float32([1.2e-7]), np.float32([1e-9]))  # a sigmoid near 0


def test_a_badly_conditioned_model_is_held_to_its_own_sensitivity():
    def sensitive(inputs):
        return [(inputs[0] - np.float32(1)) * np.float32(1e6)]

    want = sensitive([np.ones(3, "float32")])[0]
    one = Case("seed=0", [np.ones(3, "float32")], [want], sensitive)
    check([one], [[want + np.float32(0.1)]], ["y"])
    with pytest.raises(ExportError, match="of the range"):
        check([one], [[want + np.float32(10)]], ["y"])


def test_both_parts_of_complex_numbers_count():
    want = np.array([3 + 4j, 1 - 2j], "complex64")
    assert check([Case("x", [], [want])], [[want.copy()]], ["y"]).max_abs == 0
    with pytest.raises(ExportError, match="output 'y' is wrong"):
        check([Case("x", [], [want])], [[want.real.astype("complex64")]], ["y"])
