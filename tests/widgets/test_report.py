"""The report as a file, without a browser."""

from __future__ import annotations

import json
import re
import stat
import sys
from dataclasses import replace

import pytest

from streamscope.errors import OutputError
from streamscope.trace.spans import SpanBuilder, SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import time_text
from streamscope_widgets.payload import as_groups, encode
from streamscope_widgets.report import fit, pack, report, script_json

HOSTILE = "</script><img src=x onerror=alert(1)><!--"

pytestmark = pytest.mark.usefixtures("bundle")


def element(page: str, name: str) -> str:
    match = re.search(rf'<script type="[^"]+" id="{name}"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert match
    return match.group(1)


def test_report_is_one_small_file_that_names_no_other(five_engines, tmp_path):
    path = report(
        five_engines(), tmp_path / "step.html", title="step", sections=["<p class='verdict'>Launch-bound</p>"], below=["<p>chart</p>"]
    )
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "step.html"
    assert path.stat().st_size < 200_000
    markup = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)  # the code makes a link to download by
    assert markup.count("<script") == 3
    assert not re.search(r"(src|href)\s*=", markup, re.IGNORECASE)
    assert page.index("Launch-bound") < page.index('id="timeline"') < page.index("<p>chart</p>")
    assert json.loads(element(page, "timeline-header")) == encode(as_groups(five_engines()), paths=True).header
    assert list(tmp_path.iterdir()) == [path]


def test_the_foot_says_what_is_known_and_nothing_of_the_rest(make_trace, tmp_path):
    trace = make_trace("kineto", SpanBuilder(["host"]).build())
    trace = Trace(trace.spans, replace(trace.info, recorder="kineto", created="", versions={}))
    page = report([trace], tmp_path / "step.html", title="step").read_text(encoding="utf-8")
    assert re.search("<footer>(.*?)</footer>", page)[1] == "NVIDIA H200 · times by kineto"


def test_names_cannot_leave_their_place(make_trace, tmp_path):
    builder = SpanBuilder([HOSTILE])
    builder.add(SpanKind.LAUNCH, HOSTILE, HOSTILE, 0, 5)
    trace = make_trace(HOSTILE, builder.build(), program=HOSTILE, notes=(HOSTILE,))
    page = report([trace], tmp_path / "hostile.html", title=HOSTILE).read_text(encoding="utf-8")
    assert "<img" not in page
    assert "<!--" not in page
    assert page.count("</script>") == 3
    assert json.loads(element(page, "timeline-header"))["names"] == [HOSTILE]


def test_script_json_is_json():
    value = {"a": [HOSTILE, 1.5, None, "µ\u2028&"]}
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028") & set(text)


def test_blocks_are_packed_only_where_it_pays(large_trace):
    block = encode(as_groups([large_trace(2000)])).block
    assert len(pack(block)) < 0.9 * len(block)
    noise = bytes(range(256))
    assert pack(noise) is noise


def test_too_many_spans_are_cut_and_the_page_says_so(large_trace, tmp_path):
    trace = large_trace(40_000)
    whole = report([trace], tmp_path / "whole.html", title="t").stat().st_size
    path = report([trace], tmp_path / "cut.html", title="t", budget_bytes=whole - 50_000)
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size <= whole - 50_000
    header = json.loads(element(page, "timeline-header"))["groups"][0]
    kept = header["count"]
    assert 0.3 * 40_000 < kept < 40_000
    assert header["shown_until_ns"] == trace.spans.start_ns[kept]
    assert f"async is shown up to {time_text(trace.spans.start_ns[kept])} of" in page
    assert "not all spans" not in (tmp_path / "whole.html").read_text(encoding="utf-8")


def test_an_impossible_budget_still_gives_a_report(large_trace):
    payload, _ = fit(as_groups([large_trace(10_000)]), -1)
    assert payload.header["groups"][0]["count"] == 10


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(five_engines, tmp_path):
    with pytest.raises(OutputError, match="no-such-folder"):
        report(five_engines(3), tmp_path / "no-such-folder" / "r.html", title="t")
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(OutputError, match="taken"):
        report(five_engines(3), taken, title="t")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_older_report_survives_a_failure(five_engines, tmp_path, monkeypatch):
    path = report(five_engines(3), tmp_path / "r.html", title="first")
    before = path.read_bytes()

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OutputError, match="No space left"):
        report(five_engines(3), path, title="second")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_reports_can_be_read_by_others_as_far_as_the_umask_allows(five_engines, tmp_path):
    path = report(five_engines(3), tmp_path / "r.html", title="t")
    plain = tmp_path / "plain"
    plain.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
