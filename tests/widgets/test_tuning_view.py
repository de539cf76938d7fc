"""What tuning has found, as HTML: its sentence, its numbers, that it is safe and small, and that a browser shows it in light and dark."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.compiling.tuning import LEAST_GAIN, VARIANTS, TunedKernel, Tuning, fastest
from streamscope.kernels.compile.compilation_log import CompilationLog
from streamscope.kernels.form import DEFAULT, Variant
from streamscope_widgets.tuning_view import MOST_SHOWN, headline, tuning_html

NARROW = Variant(8, 2)
SAFE_TAGS = {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}


def kernel(name="erf_float16_x8", *, default=20_000.0, narrow=10_000.0, shapes=((4096, 1024), (4096, 1024))):
    medians = {DEFAULT: default, NARROW: narrow, Variant(16, 1): 2 * default}
    return TunedKernel(name, shapes, medians, fastest(medians))


def html_of(*kernels, device="NVIDIA H200"):
    return tuning_html(Tuning(device, kernels, CompilationLog()))


def cells(html, table=0):
    """Return the words of each row of a table."""
    found = re.findall("<table.*?</table>", html, re.DOTALL)[table]
    rows = re.findall("<tr>.*?</tr>", found, re.DOTALL)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall("<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def test_a_faster_variant_is_named_with_its_gain():
    heads, row = cells(html_of(kernel()))
    assert heads == ["kernel", "result", "default µs", "chosen µs", "gain", "choice"]
    assert row == ["erf_float16_x8", "4,096 × 1,024", "20.0", "10.0", "2.00×", "vectors of 8 bytes, 2 a thread"]


def test_where_the_default_stays_nothing_is_gained():
    _, row = cells(html_of(kernel(narrow=20_000.0 / LEAST_GAIN + 1)))
    assert row[2:] == ["20.0", "20.0", "–", "the default"]


def test_all_variants_are_there_with_the_fastest_first():
    html = html_of(kernel())
    assert html.index("<details") < html.rindex("<table")
    head, *rows = cells(html, table=1)
    assert head == ["erf_float16_x8 4,096 × 1,024", "µs", ""]
    assert [row[1] for row in rows] == ["10.0", "20.0", "40.0"]
    assert [("default" in row[0]) for row in rows] == [False, True, False]
    # Bars are as long as times: the slowest has 200 px.
    assert re.findall(r'"width:(\d+)px', html) == ["50", "100", "200"]


@pytest.mark.parametrize(
    ("gains", "sentence"),
    [
        ([1], "The default variant stays for the only kernel"),
        ([1, 1], "The default variant stays for all 2 kernels"),
        ([1.5], "The only kernel is faster in another variant than the default, 1.50×"),
        ([1, 1.25], "1 of 2 kernels is faster in another variant than the default, 1.25×"),
        ([2, 1, 1.25], "2 of 3 kernels are faster in another variant than the default, up to 2.00×"),
    ],
)
def test_the_sentence(gains, sentence):
    assert headline([kernel(narrow=20_000.0 / gain) for gain in gains]) == sentence
    assert sentence in html_of(*[kernel(narrow=20_000.0 / gain) for gain in gains])


@given(st.lists(st.floats(0.5, 4.0), min_size=1, max_size=MOST_SHOWN + 5))
def test_the_largest_gains_are_listed_first_and_what_is_left_out_is_counted(gains):
    html = html_of(*[kernel(f"k{number}", narrow=20_000.0 / gain) for number, gain in enumerate(gains)])
    listed = [float(row[4].removesuffix("×")) if row[4] != "–" else 1.0 for row in cells(html)[1:]]
    assert listed == sorted(listed, reverse=True)
    assert len(listed) == min(len(gains), MOST_SHOWN)
    left_out = re.findall(r"(\d+) more are not listed", html)
    assert left_out == ([str(len(gains) - MOST_SHOWN)] if len(gains) > MOST_SHOWN else [])


def test_one_number_and_no_kernel():
    assert cells(html_of(kernel(shapes=((), ()))))[1][1] == "one number"
    assert "no element-wise kernel to tune" in html_of()


def test_it_is_small_and_holds_only_what_an_untrusted_notebook_shows():
    medians = dict.fromkeys(VARIANTS, 1234.5)
    kernels = [TunedKernel("fused_" + 74 * "k", ((4096, 4096),), medians, DEFAULT) for _ in range(500)]
    html = html_of(*kernels)
    assert len(html.encode()) < 200_000
    assert set(re.findall(r"<(\w+)", html)) <= SAFE_TAGS
    assert "http" not in html


def test_names_are_no_markup():
    html = html_of(kernel("<script>"), device="<b>&")
    assert "<script>" not in html
    assert "<b>" not in html
    assert html.count("&lt;script&gt;") == 2
