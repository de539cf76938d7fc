"""Every result renders in every form that it has, and is written by the suffix of a file's name."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from tests.results.kinds import KINDS

import streamscope as ss
from streamscope.errors import OutputError, UnknownAttributeError
from streamscope.results import views
from streamscope.results.views import VIEWS

pytestmark = pytest.mark.usefixtures("bundle")
MOST_BYTES = 200_000
VOID = {"img", "area", "br", "wbr", "meta"}


class Tags(HTMLParser):
    """Tags that are open; none is left at the end of HTML that is whole."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen = [], set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module", params=VIEWS.own)
def result(request):
    return KINDS[request.param]()


def test_its_class_names_its_view(result):
    assert views.kinds(result)[0] in VIEWS.own


def test_html_is_whole_small_and_without_scripts(result):
    html = result._repr_html_()
    tags = Tags(html)
    assert tags.open == []
    assert not tags.seen & {"script", "link", "iframe"}
    assert 100 < len(html) < MOST_BYTES


def test_text_and_markdown_say_something(result):
    assert len(str(result)) > 10
    markdown = result.to_markdown()
    assert len(markdown) > 10
    assert markdown.endswith("\n")


def test_its_data_is_json(result):
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))


def test_its_pictures_are_svg(result):
    for name, draw in views.pictures(result).items():
        assert ET.fromstring(draw()).tag == "{http://www.w3.org/2000/svg}svg", name


def test_its_timeline_is_live(result):
    if views.renderer(result, "timeline"):
        assert result.timeline().engines


def test_it_is_saved_in_each_form(result, tmp_path):
    with pytest.raises(OutputError, match=r"its name ends with '\.docx'") as refused:
        result.save(tmp_path / "r.docx")
    suffixes = [each.rstrip(".,") for each in re.findall(r"\.[a-z.-]+", refused.value.hint)]
    assert {".html", ".pdf", ".md"} <= set(suffixes)
    for suffix in set(suffixes) - {".pdf", ".png"}:
        if suffix == ".json" and isinstance(result, ss.capturing.captured.CapturedProgram):
            continue
        path = tmp_path / f"r{suffix}"
        assert result.save(path) == path
        assert path.stat().st_size > 10
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert re.search("<title>..+</title>", page)
    assert (tmp_path / "r.md").read_text(encoding="utf-8") == result.to_markdown()
    assert result.report(tmp_path / "report") == tmp_path / "report"


def test_old_names_tell_the_new_ones_and_no_other_name_is_there(result, repository):
    page = (repository / "docs/renamed.md").read_text(encoding="utf-8")
    for name, new in vars(type(result)).get("renamed", {}).items():
        assert not hasattr(result, name)
        assert f".{name}(" in page
        with pytest.raises(UnknownAttributeError, match=f"has no attribute '{name}' any more") as told:
            getattr(result, name)
        assert told.value.hint == f"write {new}"
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'"):
        result.nonesuch  # noqa: B018


def test_there_is_a_result_of_each_kind():
    assert list(KINDS) == list(VIEWS.own)
    for name in VIEWS.own:
        assert VIEWS[name].of == name
