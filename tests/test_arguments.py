"""Whole numbers, sizes and paths as users give them."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.arguments import UNITS, given_path, shown, size_in_bytes, whole_number
from streamscope.engines.plan import MOST_STREAMS
from streamscope.errors import EngineError, OutputError, WorkloadError
from streamscope.options import COMPARE_OPTIONS, STREAMS


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([int, np.int64]))
def test_whole_numbers_are_themselves(number, kind):
    found = whole_number("n", kind(number))
    assert (found, type(found)) == (number, int)


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-5, 5))
def test_a_range_has_both_its_ends(number, least, most):
    if least <= number <= most:
        assert whole_number("n", number, least, most) == number
    else:
        with pytest.raises(EngineError, match=rf"^n={number} is out of range \({least} to {most}\)$"):
            whole_number("n", number, least, most)


@pytest.mark.parametrize("value", [None, 1.0, math.nan, math.inf, "1", True, False, [1], np.ones(2, int), np.float32(1), Decimal(1)])
def test_what_is_no_whole_number(value):
    with pytest.raises(WorkloadError, match=r"^n=.* is not a whole number \(1 or more\)$"):
        whole_number("n", value, 1, error=WorkloadError)


def test_the_limit_of_streams_is_stated_alike():
    assert STREAMS.most == MOST_STREAMS


def test_options_are_spelled_as_the_user_wrote_them():
    name = next(option for option in COMPARE_OPTIONS if option.name == "name")
    assert name.on_a_line("one kernel") == "--name 'one kernel'"
    assert name.on_a_line("one") == "--name one"


@pytest.mark.parametrize("path", ["a", Path("a"), "a b/ü", "a\udcff"])
def test_paths_are_themselves(path):
    assert given_path(path, error=OutputError) == Path(path)


@pytest.mark.parametrize("value", [None, 3, b"a", object(), [], "", "a\0b"])
def test_what_is_no_path(value):
    with pytest.raises(OutputError, match="cannot be a path") as caught:
        given_path(value, error=OutputError)
    assert caught.value.hint


@given(st.one_of(st.integers(), st.text(), st.lists(st.text()), st.builds(np.zeros, st.integers(0, 3000))))
def test_values_are_shown_on_one_short_line(value):
    text = shown(value)
    assert len(text.splitlines()) <= 1
    assert len(text) < 250


def test_short_values_are_shown_as_they_are():
    assert [shown(value) for value in (None, 1.5, "x y", [1])] == ["None", "1.5", "'x y'", "[1]"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, 1),
        ("17", 17),
        ("512 MiB", 512 * 1024**2),
        ("512mib", 512 * 1024**2),
        ("1.5 GB", 1_500_000_000),
        (" 2 kB ", 2000),
        ("1KiB", 1024),
        ("0.5 TiB", 2**39),
    ],
)
def test_sizes(limit, expected):
    assert size_in_bytes("the limit", limit) == expected


@given(st.integers(1, 2**60))
def test_a_number_of_bytes_is_itself(count):
    assert size_in_bytes("n", count) == size_in_bytes("n", str(count)) == size_in_bytes("n", f"{count} B") == count


@given(st.integers(1, 2**40), st.sampled_from(["B", "kB", "MiB", "GB", "TiB"]))
def test_digits_behind_the_point_are_exact(count, unit):
    assert size_in_bytes("n", f"{count}.5 {unit}") == count * UNITS[unit.upper()] + UNITS[unit.upper()] // 2


@pytest.mark.parametrize(
    "limit", ["", "much", "12 apples", "-3", "1e9", "nan", "inf GB", "9" * 5000, 0, -1, 1.5, None, True, "0.1 B", "٣ MB"]
)
def test_what_is_no_size(limit):
    with pytest.raises(EngineError, match="is not a size for the limit") as caught:
        size_in_bytes("the limit", limit)
    assert "512 MiB" in caught.value.hint
