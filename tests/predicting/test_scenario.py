"""What a prediction is made of, by hand."""

import sys

import pytest

from streamscope.predicting.scenario import is_factor


@pytest.mark.parametrize("value", [1, 0.5, sys.float_info.min, sys.float_info.max])
def test_numbers_above_zero_are_factors(value):
    assert is_factor(value)


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "2", None])
def test_other_values_are_no_factors(value):
    assert not is_factor(value)
