"""One by one against together, as HTML: its sentence, one time axis for both, that it is safe and small, and a browser shows it."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree as ET

import pytest

from streamscope.compiling.compare_compilation import CompilationComparison
from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, KernelRecord, StageTime
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope_widgets.compilation_view import COLOURS, GUTTER, MARGIN, WIDTH, compilation_comparison_html

SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000


def log_of(*stages, kernels=4):
    """Return a log of compiling, of bars given as lane, start and end in ms."""
    log = CompilationLog()
    for number in range(kernels):
        log.add_kernel(KernelRecord(f"k{number}", "sm_90", Origin.COMPILED))
    for lane, start, end in stages:
        log.add_stage(StageTime(CompileStage.COMPILE, "k", lane, start * MS, end * MS))
    return log


def comparison(program="layer", kernels=4):
    """Four kernels of 100 ms on one worker, then 80 ms on two."""
    one_by_one = log_of(*[("worker 1", number * 100, (number + 1) * 100) for number in range(4)], kernels=kernels)
    together = log_of(("worker 1", 1000, 1080), ("worker 2", 1000, 1070), kernels=kernels)
    return CompilationComparison(program, one_by_one, together, (one_by_one.wall_ns / together.wall_ns,) * 6)


def pictures(html):
    return [ET.fromstring(base64.b64decode(found)) for found in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)]


def bars(picture):
    """Return left edge and width of the bars of what was compiled, in pixels; the legend's square is 10 high, a bar 12."""
    rectangles = [
        each for each in picture.iter(f"{SVG}rect") if each.get("fill") == COLOURS[CompileStage.COMPILE] and each.get("height") == "12"
    ]
    return [(float(each.get("x")), float(each.get("width"))) for each in rectangles]


def test_it_says_how_much_faster_and_for_what():
    html = compilation_comparison_html(comparison())
    assert "layer: 4 kernels compile in 400 ms one by one and in 80.0 ms together, 5.0× faster" in html
    assert "NVRTC for sm_90" in html
    assert html.index("one by one, 400 ms") < html.index("together, 80.0 ms")


def test_both_pictures_have_the_same_time_axis():
    one_by_one, together = pictures(compilation_comparison_html(comparison()))
    whole = WIDTH - GUTTER - MARGIN
    for number, (left, width) in enumerate(sorted(bars(one_by_one))):
        assert left == pytest.approx(GUTTER + number * whole / 4, abs=0.1)
        assert width == pytest.approx(whole / 4, abs=0.1)
    # The second begins at its own zero; 80 of 400 ms are a fifth of the axis.
    assert [left for left, _ in bars(together)] == [GUTTER, GUTTER]
    assert sorted(width for _, width in bars(together)) == pytest.approx([whole * 70 / 400, whole * 80 / 400], abs=0.1)
    ticks = [
        [text.text for text in picture.iter(f"{SVG}text") if text.get("text-anchor") == "middle"] for picture in (one_by_one, together)
    ]
    assert ticks[0] == ticks[1] == ["0", "50", "100", "150", "200", "250", "300", "350", "400"]


def test_each_worker_has_a_row():
    one_by_one, together = pictures(compilation_comparison_html(comparison()))
    rows = [
        [text.text for text in picture.iter(f"{SVG}text") if text.get("text-anchor") == "end"][1:] for picture in (one_by_one, together)
    ]
    assert rows == [["worker 1"], ["worker 1", "worker 2"]]


def test_it_is_small_however_much_was_compiled():
    busy = log_of(*[(f"worker {number % 64}", number, number + 50) for number in range(20_000)], kernels=5_000)
    html = compilation_comparison_html(CompilationComparison("all", busy, busy, (1.0,)))
    assert len(html.encode()) < 200_000


def test_it_holds_only_what_an_untrusted_notebook_shows():
    html = compilation_comparison_html(comparison("<script>"))
    assert set(re.findall(r"<(\w+)", html)) == {"div", "p", "img", "style"}
    assert "http" not in html
