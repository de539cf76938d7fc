"""Numbers, times and lists in words."""

import numpy as np
import pytest

from streamscope.words import (
    a_kind,
    aligned,
    capitalised,
    counted,
    exact_time_text,
    format_ms,
    listed,
    percent,
    shortened,
    shortened_inside,
    signed_time_text,
    time_text,
    time_unit,
    times_text,
    wrapped,
)


def test_kinds():
    assert [a_kind(value) for value in (3, [], np.zeros(1), np.uint8(1), {})] == ["an int", "a list", "an ndarray", "a uint8", "a dict"]


def test_counts():
    assert counted(1, "wait") == "1 wait"
    assert counted(3000, "wait") == "3,000 waits"
    assert counted(2, "index", "indices") == "2 indices"


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("graph launch", "graph launches"),
        ("flush", "flushes"),
        ("access", "accesses"),
        ("box", "boxes"),
        ("copy", "copies"),
        ("day", "days"),
    ],
)
def test_plurals_are_those_of_the_language(one, many):
    assert [counted(number, one) for number in (0, 1, 3)] == [f"0 {many}", f"1 {one}", f"3 {many}"]


@pytest.mark.parametrize(("parts", "words"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_lists(parts, words):
    assert listed(parts) == words


def test_lines_keep_numbers_with_their_units_and_names_whole():
    assert wrapped("the same within 1 %, for 0.27 µs", 17, then="  ") == ["the same within", "  1 %, for", "  0.27 µs"]
    assert wrapped("a kernel_with_a_long_name", 10) == ["a", "kernel_with_a_long_name"]
    assert wrapped("fastest: graph and graph-dual", 25) == ["fastest: graph and", "graph-dual"]


@pytest.mark.parametrize(
    ("fraction", "words"), [(0, "0 %"), (0.0004, "<0.1 %"), (0.004, "0.4 %"), (0.01, "1 %"), (0.694, "69 %"), (1.2, "120 %")]
)
def test_shares(fraction, words):
    assert percent(fraction) == words


@pytest.mark.parametrize(
    ("fraction", "error", "words"),
    [(0.69, 0.06, "69 ± 6 %"), (0.69, 0.003, "69.0 ± 0.3 %"), (0.69, 0.0, "69 %"), (0.69, None, "69 %"), (0, 0.1, "0 ± 10 %")],
)
def test_a_share_that_may_be_off(fraction, error, words):
    assert percent(fraction, error) == words


@pytest.mark.parametrize(("time_ns", "words"), [(81_400, "0.08"), (9_990_000, "9.99"), (12_340_000, "12.3"), (2_000_000_000, "2,000.0")])
def test_milliseconds(time_ns, words):
    assert format_ms(time_ns) == words


@pytest.mark.parametrize(
    ("time_ns", "words"),
    [
        (0, "0 µs"), (50, "0.050 µs"), (830, "0.830 µs"), (10_930, "10.9 µs"), (268_000, "268 µs"),
        (9_995, "10.0 µs"), (999_400, "999 µs"), (999_500, "1.00 ms"),
        (999_800, "1.00 ms"), (2_114_000, "2.11 ms"), (12e9, "12.0 s"), (4e12, "4,000 s"), (-2500, "-2.50 µs"),
        (float("inf"), "inf s"), (float("nan"), "nan µs"),
    ],
)  # fmt: skip
def test_a_time_has_the_unit_that_suits_it(time_ns, words):
    assert time_text(time_ns) == words


def test_a_rough_time_has_fewer_digits():
    assert [time_text(time_ns, 1) for time_ns in (300, 4_870, 12_300)] == ["0.3 µs", "5 µs", "12 µs"]
    assert time_text(872, 2) == "0.87 µs"


def test_one_rule_says_the_unit_of_a_time():
    times_ns = (0, 999, 999_499, 999_500, 4e6, 999_499_999, 1e9, 4e12)
    assert [time_text(time_ns).split(" ")[1] for time_ns in times_ns] == ["µs", "µs", "µs", "ms", "ms", "ms", "s", "s"]
    assert [time_unit(time_ns) for time_ns in (0, -999_999, 1e6, -4e6, 1e9)] == [(1e3, "µs")] * 2 + [(1e6, "ms")] * 2 + [(1e9, "s")]
    assert times_text(339e3, " → ", 123e3) == "339 → 123 µs"
    assert times_text(999e3, " to ", 1.01e6) == "999 µs to 1.01 ms"
    assert [signed_time_text(time_ns) for time_ns in (4e6, -12_000, 0, 0.1, -0.1)] == [
        "+4.00 ms",
        "−12.0 µs",
        "0 µs",
        "0.000 µs",
        "0.000 µs",
    ]


def test_an_exact_time_is_told_to_the_nanosecond():
    assert exact_time_text(113_050) == "113.050 µs"
    assert exact_time_text(1_234_567) == "1.234567 ms"
    assert exact_time_text(4_147_972_202) == "4.147972202 s"
    assert exact_time_text(3_600_000_000_001) == "3,600.000000001 s"


def test_only_the_first_letter_becomes_a_capital():
    assert capitalised("a CUDA graph") == "A CUDA graph"
    assert capitalised("") == ""


def test_what_is_too_long_ends_in_an_ellipsis():
    assert shortened("abc", 3) == "abc"
    assert shortened_inside("abcdefgh", 8) == "abcdefgh"
    assert shortened_inside("abcdefghi", 8) == "abcde…hi"
    assert shortened("abcd", 3) == "ab…"


def test_columns_stand_in_line():
    rows = [("engine", "time"), ("a", "1,000"), ("graph", "7")]
    assert aligned(rows) == ["engine  time", "a       1,000", "graph   7"]
    assert aligned(rows, numbers=True) == ["engine   time", "------  -----", "a       1,000", "graph       7"]
