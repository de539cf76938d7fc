"""A case for one engine, by hand."""

import math

import pytest

from streamscope.measuring.case import Checked


@pytest.mark.parametrize(
    ("error", "tolerance", "correct"),
    [(0.0, 0.0, True), (0.5, 0.5, True), (0.6, 0.5, False), (math.nan, math.nan, True), (math.inf, 0.0, False)],
)
def test_results_are_right_up_to_their_tolerance_and_where_nothing_is_expected(error, tolerance, correct):
    assert Checked(None, error, tolerance).correct is correct
