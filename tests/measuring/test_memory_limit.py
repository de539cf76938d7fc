"""Sizes as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.arguments import UNITS, memory_bytes
from streamscope.errors import EngineError


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
    assert memory_bytes(limit) == expected


@given(st.integers(1, 2**60))
def test_a_number_of_bytes_is_itself(count):
    assert memory_bytes(count) == memory_bytes(str(count)) == memory_bytes(f"{count} B") == count


@given(st.integers(1, 2**40), st.sampled_from(["B", "kB", "MiB", "GB", "TiB"]))
def test_digits_behind_the_point_are_exact(count, unit):
    assert memory_bytes(f"{count}.5 {unit}") == count * UNITS[unit.upper()] + UNITS[unit.upper()] // 2


@pytest.mark.parametrize("limit", ["", "much", "12 apples", "-3", "1e9", "nan", "inf GB", "9" * 5000, 0, -1, 1.5, None, True, "0.1 B"])
def test_what_is_no_size(limit):
    with pytest.raises(EngineError, match="memory limit") as caught:
        memory_bytes(limit)
    assert "512 MiB" in caught.value.hint
