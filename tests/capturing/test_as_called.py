"""Whether captured code is what is called: the verdict and its words."""

from __future__ import annotations

import numpy as np
import pytest

from streamscope.capturing.as_called import AsCalled, as_called
from streamscope.capturing.operators import Operator, Parting
from streamscope.program.user_line import UserLine

RIGHT = np.array([1, -2, 4], np.float32)
MM, ADD = (Operator(name, "layer", UserLine("model.py:7", ""), (), (), (), range(0)) for name in ("aten.mm.default", "aten.add.Tensor"))


def never():
    raise AssertionError("nothing is apart")


def test_results_that_are_equal_in_each_bit_are_looked_at_no_further():
    found = as_called([RIGHT, np.array([np.nan])], [RIGHT.copy(), np.array([np.nan])], None, never)
    assert found == AsCalled(2)
    assert (found.verdict, "equal in each bit" in str(found)) == ("equal", True)
    assert "nothing to compare" in str(as_called([], [], None, never))


def test_without_results_and_operators_nobody_knows():
    found = as_called([], [], None, never, heard=False)
    assert (found.verdict, "Nobody knows" in str(found)) == ("unknown", True)
    assert as_called([RIGHT], [RIGHT.copy()], None, never, heard=False).verdict == "equal"
    parted = Parting("aten.mul.Tensor", "")
    assert as_called([], [], parted, never, heard=False).verdict == "different"


@pytest.mark.parametrize(("off", "verdict", "first"), [(1e-4, "rounding", MM), (0.4, "different", ADD)])
def test_results_that_are_apart_say_how_far_and_by_which_operator(off, verdict, first):
    found = as_called([RIGHT + np.float32(off)], [RIGHT], None, lambda: (MM, ADD))
    assert found.verdict == verdict
    assert found.error == pytest.approx(off / 4, rel=1e-2)
    assert found.first == f"{first.name} (layer, model.py:7)"
    assert found.first in str(found)


def test_whole_numbers_have_no_rounding_and_what_is_not_finite_is_different():
    assert as_called([np.array([5])], [np.array([4])], None, lambda: (None, None)).verdict == "different"
    found = as_called([np.array([np.nan], np.float32)], [np.array([1], np.float32)], None, lambda: (None, None))
    assert (found.verdict, "not finite" in str(found)) == ("different", True)


@pytest.mark.parametrize(
    ("parting", "words"),
    [
        (Parting("aten.mul.Tensor", "aten.ones.default", "masks.py:3"), "aten.ones.default (masks.py:3) where a plain call calls aten.mul"),
        (Parting("", "aten.ones.default", "masks.py:3"), "after the end of a plain call"),
        (Parting("aten.mul.Tensor", ""), "without aten.mul.Tensor"),
        (Parting("aten.mm.default", "aten.mm.default", "masks.py:3"), "other shapes"),
    ],
)
def test_another_way_is_told_and_different_unless_results_are_equal_in_each_bit(parting, words):
    off = as_called([RIGHT + np.float32(1e-4)], [RIGHT], parting, never)
    same = as_called([RIGHT], [RIGHT], parting, never)
    nothing = as_called([], [], parting, never)
    assert (off.verdict, same.verdict, nothing.verdict) == ("different", "equal", "different")
    assert all(words in str(one) for one in (off, same, nothing))
    assert "Its results differ by up to 2.5e-05 of the largest value" in str(off)
