"""A log of compilations as HTML: its numbers, that it is safe and small, and a browser shows it."""

from __future__ import annotations

import re
from html import unescape

from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, KernelRecord, LaunchCost, StageTime
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope_widgets.compilation_view import MOST_FOLDED, MOST_SHOWN, asked_kernels, compilation_html, headline

MS = 1_000_000


def unit(compile_ms, kernels=1):
    return Cubin(b"no ELF", "sm_90", "13.0", compile_ms * MS, kernels)


def log_of(*records, stages=((CompileStage.COMPILE, "worker 1", 0, 80),)):
    log = CompilationLog()
    for name, origin, cubin in records:
        log.add_kernel(KernelRecord(name, "sm_90", origin, cubin))
    for stage, lane, start, end in stages:
        log.add_stage(StageTime(stage, "k", lane, start * MS, end * MS))
    return log


def text_of(html):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def rows(html):
    return [[unescape(cell) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", row)] for row in re.findall(r"<tr>(.*?)</tr>", html)]


def test_kernels_that_were_asked_for_again_count_once():
    log = log_of(("a", Origin.COMPILED, unit(8, 2)), ("b", Origin.DISK, unit(8, 2)), ("a", Origin.MEMORY, unit(8, 2)))
    assert headline(log).startswith("2 kernels, asked for 3 times: 1 compiled, 1 from disk, 1 from memory; in 80.0 ms; ")
    assert headline(log_of(("a", Origin.FAILED, None))).startswith("1 kernel: 1 failed; in 80.0 ms")
    assert [(kernel.name, dict(kernel.origins)) for kernel in asked_kernels(log.kernels)] == [
        ("a", {Origin.COMPILED: 1, Origin.MEMORY: 1}),
        ("b", {Origin.DISK: 1}),
    ]


def test_the_failed_come_first_then_the_costliest():
    log = log_of(("a", Origin.COMPILED, unit(8, 2)), ("b", Origin.COMPILED, unit(9)), ("c", Origin.FAILED, None))
    assert [kernel.name for kernel in asked_kernels(log.kernels)] == ["c", "b", "a"]
    found = {row[0]: row[1:3] for row in rows(compilation_html(log)) if len(row) == 7}
    assert found == {"c": ["failed", "–"], "b": ["compiled", "9.00"], "a": ["compiled", "4.00"]}


def test_shares_are_said_to_be_shares():
    """Visibly: an untrusted notebook may not show what stands in tooltips."""
    assert "each is given an equal share" in text_of(compilation_html(log_of(("a", Origin.COMPILED, unit(8, 2)))))


def test_stages_add_up_and_the_wall_clock_does_not():
    stages = ((CompileStage.LOOK_UP, "host", 0, 5), (CompileStage.COMPILE, "worker 1", 5, 45), (CompileStage.COMPILE, "worker 2", 5, 65))
    found = {row[0]: row[1] for row in rows(compilation_html(log_of(("a", Origin.COMPILED, unit(8)), stages=stages))) if len(row) in (2, 3)}
    assert found == {"look up": "5.00", "compile": "100.0", "wall clock": "65.0"}


def test_the_cost_of_a_launch():
    log = log_of(("a", Origin.COMPILED, unit(8)))
    log.note_launch_cost(LaunchCost("<GPU>", 1000.0, 2500.0, 9990.0))
    text = text_of(compilation_html(log))
    assert "2.50 µs from a prepared program and 9.99 µs by Engine.push, a plain launch of the same kernel 1.00 µs" in text


def test_nothing_was_asked_for():
    assert text_of(compilation_html(CompilationLog())).strip() == "No kernel has been asked for yet."


def test_markup_in_names_is_text():
    html = compilation_html(log_of(('<script>alert("1")</script>', Origin.FAILED, None), ("x" * 500, Origin.COMPILED, unit(1))))
    assert "<script" not in html
    assert '<script>alert("1")</script>' in unescape(html)
    tags = {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "img", "style", "details", "summary"}
    assert set(re.findall(r"<(\w+)", html)) <= tags
    assert "http" not in html


def test_it_is_small_however_much_was_compiled():
    count = 4000
    records = [(f"kernel_{number:04}_{'x' * 90}", Origin.COMPILED, unit(number)) for number in range(count)]
    html = compilation_html(log_of(*records, stages=[(CompileStage.COMPILE, f"worker {n % 64}", n, n + 50) for n in range(20_000)]))
    assert len(html.encode()) < 200_000
    assert f"{MOST_FOLDED} more kernels; another {count - MOST_SHOWN - MOST_FOLDED:,} are not listed" in html
