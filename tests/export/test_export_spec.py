"""What --shape and --range mean."""

from __future__ import annotations

import pytest

from paddle_fluid_boost.errors import SpecError
from paddle_fluid_boost.export.job import ladder
from paddle_fluid_boost.export.spec import TensorSpec, parse_signature


def test_names_numbers_and_dtypes_are_read():
    signature = parse_signature(
        ["x=batch,3,h,w", "ids:int64=batch,seq", "scale="], ["h=64..128:32"]
    )
    assert signature.inputs == (
        TensorSpec("x", ("batch", 3, "h", "w")),
        TensorSpec("ids", ("batch", "seq"), "int64"),
        TensorSpec("scale", ()),
    )
    assert signature.names == ["batch", "h", "w", "seq"]
    assert list(signature.sizes("h")) == [64, 96, 128]
    assert str(signature.inputs[1]) == "ids:int64=batch,seq"


@pytest.mark.parametrize(
    ("shapes", "ranges", "says"),
    [
        (["x"], [], "needs NAME=SIZE"),
        (["x=0,3"], [], "'0'"),
        (["x=a,-1"], [], "'-1'"),
        (["x:float33=1"], [], "float33"),
        (["x=1", "x=2"], [], "twice"),
        (["x=n"], ["m=1..2"], "'m'"),
        (["x=n"], ["n=5..2"], "needs NAME=FIRST..LAST"),
        (["x=n"], ["n=a"], "needs NAME=FIRST..LAST"),
        (["x=n"], ["n=0..3"], "at least 1"),
    ],
)
def test_what_cannot_be_read_is_named(shapes, ranges, says):
    with pytest.raises(SpecError, match=says.replace(".", r"\.")):
        parse_signature(shapes, ranges)


def test_samples_move_every_name_and_never_two_in_step():
    signature = parse_signature(["x=batch,3,h,w"], ["h=32..96:32", "w=32..96:32"])
    samples = signature.samples()
    assert samples[0] == {"batch": 1, "h": 32, "w": 32}
    for name in signature.names:
        assert len({sizes[name] for sizes in samples}) > 1
    assert any(sizes["h"] != sizes["w"] for sizes in samples)
    assert all(sizes["h"] in (32, 64, 96) for sizes in samples)


def test_a_fixed_name_gets_its_first_size():
    signature = parse_signature(["x=batch,3,h,w"], ["h=48,64"]).fixed(["h", "w"])
    assert signature.inputs[0].dims == ("batch", 3, 48, 64)
    assert signature.names == ["batch"]


def test_the_ladder_fixes_ever_more():
    names = [s.names for s in ladder(parse_signature(["x=batch,3,h,w"]))]
    assert names == [["batch", "h", "w"], ["batch", "w"], ["batch", "h"], ["batch"], []]
    assert [s.names for s in ladder(parse_signature(["x=1,2"]))] == [[]]
