"""Captured code in a notebook, in a comparison of it, and in the report of that."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import streamscope as ss
from streamscope.capturing.memory import MemoryHeld
from streamscope.errors import TraceError
from streamscope.program.foreign import CaptureInfo
from streamscope_widgets.capture_view import capture_html, capture_lines, capture_section

RECORDED = Path(__file__).parents[2] / "notebooks" / "recorded" / "captured"
HOSTILE = "</script><b>"


@pytest.fixture(scope="module")
def experts():
    """Recorded experts, as if a file of today's version said what the capture held: one piece for each stretch of memory."""
    loaded = ss.load_captured(RECORDED / "mixture_of_experts.captured.json")
    ends, pieces = 0, []
    for start, end in sorted((one.start, one.end) for memory in loaded.memories for one in memory.accesses):
        if start >= ends:
            pieces.append((start, end))
        elif end > ends:
            pieces[-1] = pieces[-1][0], end
        ends = max(ends, end)
    return replace(loaded, date="2026-11-22T20:42:07+00:00", versions={"torch": "2.11"}, memory=MemoryHeld(1 << 20, tuple(pieces)))


@pytest.fixture(scope="module")
def runs(experts):
    return ss.compare(experts, engines="graph,graph-dual", progress=False)


def test_a_notebook_shows_what_there_is_to_gain_and_why_the_order_is_right(experts):
    page = experts._repr_html_()
    assert len(page) < 200_000
    for words in (str(experts.bound())[3:], experts.certificate().headline, "on an NVIDIA H200, 2026-11-22 20:42 UTC, with torch 2.11"):
        assert words in page
    assert "41 kernels, copies and sets" in page
    hostile = capture_html(replace(experts, name=HOSTILE, versions={HOSTILE: HOSTILE}))
    assert "</script>" not in hostile
    assert "<b>" not in hostile


def test_an_older_file_does_not_say_what_the_capture_holds(experts):
    older = replace(experts, memory=None, versions={}, date="2026-11-21")
    assert older.facts.memory == ""
    assert older.facts.captured == "on an NVIDIA H200, 2026-11-21"


def test_a_comparison_and_its_report_say_what_is_known_of_the_capture(experts, runs, tmp_path, bundle):
    facts = experts.facts
    assert runs.capture == facts
    page = runs.report(tmp_path / "report.html").read_text(encoding="utf-8")
    for words in (facts.captured, facts.bound, facts.certificate, *facts.evidence, facts.memory):
        assert words in page.replace("&#x27;", "'"), words
        if words not in facts.evidence:
            assert words in runs._repr_html_()


def test_each_operation_has_its_operator_module_and_line_beside_a_readable_name(experts, runs, tmp_path, bundle):
    page = runs.report(tmp_path / "report.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr>(<td>.*?)</tr>", page.partition('class="screen told"')[2].partition("</table>")[0])
    operations = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    assert len(operations) == len(experts.nodes)
    for (first, operator, module, line, *_), node in zip(operations, experts.nodes, strict=True):
        assert (operator, module, line) == (node.operator, node.module, node.where)
        assert node.name in first
    assert any('title="void at::native::vectorized_elementwise_kernel' in first for first, *_ in operations)


def test_it_is_saved_with_the_comparison(runs, tmp_path):
    assert ss.load_comparison(runs.save(tmp_path / "saved")).capture == runs.capture


def test_programs_of_our_own_have_none(tmp_path, bundle):
    function, inputs = ss.workload("branches").build(length=2)
    own = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)
    assert own.capture is None
    assert "The captured code" not in own.report(tmp_path / "own.html").read_text(encoding="utf-8")


def test_what_is_escaped_in_a_report():
    facts = CaptureInfo(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, (HOSTILE,))
    for section in (capture_section(facts), capture_lines(facts)):
        assert "<b>" not in section
        assert "</script>" not in section


def test_what_the_capture_does_beside_a_plain_call_is_said_at_once():
    assert "Captured is not called." in capture_lines(CaptureInfo("here", "nothing", "ordered", notes=("Captured is not called.",)))


def test_a_comparison_of_an_older_version_has_no_notes(runs):
    stored = runs.capture.to_dict()
    del stored["notes"]
    assert CaptureInfo.from_dict(stored).notes == ()


@pytest.mark.parametrize("wrong", [{"bound": 3}, {"evidence": [3]}, {"notes": [3]}])
def test_what_is_stored_is_checked(runs, wrong):
    stored = runs.capture.to_dict()
    assert CaptureInfo.from_dict(stored) == runs.capture
    with pytest.raises(TraceError, match="is not"):
        CaptureInfo.from_dict(stored | wrong)


def test_a_report_says_that_no_engine_is_a_plain_call(runs, tmp_path):
    assert runs.report(tmp_path / "experts.html").read_text(encoding="utf-8").count("None of these times is that of a plain call") == 1
