"""What becomes of each network in each format is what ``matrix.toml`` says, losses included."""

from __future__ import annotations

import pytest
from export_matrix import MATRIX, TARGETS, agrees, outcomes

from paddle_fluid_boost.export.targets import by_name

#: Few and small: one with nested results, one that has to be refused.
QUICK = ("nested", "simple_rnn")


def check(name):
    available = tuple(target for target in TARGETS if not by_name(target).missing())
    if by_name("onnx").missing():
        pytest.skip("needs the extra 'export'")
    found = {target: outcome for target, (outcome, _) in outcomes(name, available).items()}
    expected = {target: MATRIX[name].get(target, "ok") for target in available}
    wrong = {
        target: f"{found[target]!r} instead of {expected[target]!r}"
        for target in available
        if not agrees(found[target], expected[target])
    }
    assert not wrong


@pytest.mark.parametrize("name", QUICK)
def test_some_of_the_matrix(name):
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MATRIX if name not in QUICK])
def test_the_matrix(name):
    check(name)


def test_outcomes_are_spelled_as_the_matrix_says():
    for name, entry in MATRIX.items():
        assert set(entry) <= {"inputs", "ranges", *TARGETS}, name
        for target in TARGETS:
            assert entry.get(target, "ok").startswith(("ok", "refused: ", "fails: ")), name
    assert agrees("ok, no plan", "ok, no plan")
    assert not agrees("ok, no plan", "ok")
    assert agrees("fails: onnx: does not know nms (line 3)", "refused: does not know nms")
    assert not agrees("ok", "fails: does not know nms")
