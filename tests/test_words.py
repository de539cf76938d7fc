"""Numbers, times and lists in words."""

import pytest

from streamscope.words import aligned, capitalised, counted, format_ms, listed, percent, shortened


def test_counts():
    assert counted(1, "wait") == "1 wait"
    assert counted(3000, "wait") == "3,000 waits"
    assert counted(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(("parts", "words"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_lists(parts, words):
    assert listed(parts) == words


@pytest.mark.parametrize(("fraction", "words"), [(0, "0 %"), (0.004, "0.4 %"), (0.01, "1 %"), (0.694, "69 %"), (1.2, "120 %")])
def test_shares(fraction, words):
    assert percent(fraction) == words


@pytest.mark.parametrize(("time_ns", "words"), [(81_400, "0.08"), (9_990_000, "9.99"), (12_340_000, "12.3"), (2_000_000_000, "2,000.0")])
def test_milliseconds(time_ns, words):
    assert format_ms(time_ns) == words


def test_only_the_first_letter_becomes_a_capital():
    assert capitalised("a CUDA graph") == "A CUDA graph"
    assert capitalised("") == ""


def test_what_is_too_long_ends_in_an_ellipsis():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"


def test_columns_stand_in_line():
    rows = [("engine", "time"), ("a", "1,000"), ("graph", "7")]
    assert aligned(rows) == ["engine  time", "a       1,000", "graph   7"]
    assert aligned(rows, numbers=True) == ["engine   time", "------  -----", "a       1,000", "graph       7"]
