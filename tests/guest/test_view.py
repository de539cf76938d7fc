"""A view of another package: below ours in the notebook, in the report and in Markdown, and among the pictures of a comparison."""

from __future__ import annotations

import warnings

import pytest
from tests.results.kinds import comparison

from streamscope.cli.main import main
from streamscope.doors import GuestWarning
from streamscope.results.views import VIEWS, View

pytestmark = pytest.mark.usefixtures("bundle", "guest")
SAID = "Slowest under sync: "


def test_it_is_found_after_ours():
    assert list(VIEWS) == [*VIEWS.own, "slowest"]


def test_notebook_report_and_markdown_show_it_below_ours(tmp_path):
    runs = comparison()
    html = runs._repr_html_()
    assert html.index("<table") < html.index(SAID)
    assert SAID in runs.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"- {SAID}" in runs.to_markdown()
    assert SAID not in runs["sync"].trace._repr_html_()


def test_its_picture_is_written_in_python_and_in_a_terminal(tmp_path):
    runs = comparison()
    assert SAID in runs.picture(tmp_path / "a.svg", of="slowest").read_text(encoding="utf-8")
    folder = runs.save(tmp_path / "runs")
    assert main(["export", str(folder), str(tmp_path / "b.svg"), "--of", "slowest"]) == 0
    assert SAID in (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert SAID not in runs.save(tmp_path / "c.svg").read_text(encoding="utf-8")


def test_a_trace_has_the_pictures_of_its_views(tmp_path, monkeypatch):
    trace = comparison()["sync"].trace
    monkeypatch.setattr(VIEWS, "_guests", {"mine": View(of="trace", html=lambda _: "", pictures={"mine": lambda _: "<svg/>"})})
    assert trace.picture(tmp_path / "mine.svg", of="mine").read_text(encoding="utf-8") == "<svg/>"
    assert "<svg" in trace.picture(tmp_path / "first.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("one <!-- two", "a comment, tag or script has no end"),
        ('<a title="one', "a comment, tag or script has no end"),
        ("<div><b>one</b>", "<div> is not closed"),
        ("one</div>", "</div> has no start"),
        ("<p>one</div></p>", "<p> is not closed"),
        ("<div/>", "<div> is not closed"),
        (None, "its html returned a NoneType, not a string"),
        (1, "its html returned an int, not a string"),
        ("<p>one<br>&amp two <svg><path/></svg></p>one &amp", ""),
    ],
)
def test_html_that_would_swallow_the_page_is_left_out(monkeypatch, html, said):
    runs = comparison()
    assert VIEWS.guests()
    monkeypatch.setitem(VIEWS.guests(), "slowest", View(of="comparison", html=lambda _: html))
    with warnings.catch_warnings(record=True, action="always") as caught:
        page = runs._repr_html_()
    assert page.endswith(str(html)) == (not said)
    swallow = "its HTML would swallow what follows: " if isinstance(html, str) else ""
    left_out = [f"view 'slowest' of the package 'steplog' is left out: {swallow}{said}"]
    assert [str(each.message) for each in caught] == (left_out if said else [])


def test_a_view_that_fails_or_of_no_kind_is_told_with_its_package(monkeypatch):
    runs = comparison()
    monkeypatch.setitem(VIEWS.guests(), "slowest", View(of="comparison", html=lambda _: 1 / 0))
    with pytest.warns(GuestWarning, match="view 'slowest' of the package 'steplog' is left out: ZeroDivisionError"):
        runs._repr_html_()
    monkeypatch.setitem(VIEWS.guests(), "slowest", View(of="tarce", html=lambda _: ""))
    with pytest.warns(GuestWarning, match="'steplog' is left out: no result is a 'tarce'; the kinds are advice, audit, .*, trace, "):
        runs._repr_html_()
