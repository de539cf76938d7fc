"""A view of another package: below ours in the notebook, in the report and in Markdown, and among the pictures of a comparison."""

from __future__ import annotations

import pytest
from tests.results.kinds import comparison

from streamscope.cli.main import main
from streamscope.results.views import VIEWS

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
