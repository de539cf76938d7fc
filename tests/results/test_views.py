"""The door of views: our own in one table, those of other packages beside them, and a result without any."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest
from tests.results.kinds import KINDS, comparison

from streamscope import doors
from streamscope.doors import Door, GuestWarning
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.results.views import VIEWS, View

BROKEN = View(of="comparison", html=lambda runs: 1 / 0, pictures={"gone": "no_such_module:picture"})


class Mine(Result):
    """A result of another package."""

    view = "mine"

    def to_dict(self):
        return {"answer": 42}

    def __str__(self):
        return "forty-two"


MINE = View(of="mine", html=lambda mine: "<p>42</p>")


@pytest.fixture
def guests(monkeypatch):
    """A function of entry points, as ``name=attribute of this module``: the door that finds them."""

    def made(**places):
        points = [EntryPoint(name, f"{__name__}:{place}", "streamscope.views") for name, place in places.items()]
        monkeypatch.setattr(doors, "entry_points", lambda group: points if group == "streamscope.views" else [])
        monkeypatch.setattr(views, "VIEWS", Door("view", VIEWS.own, View))

    return made


def test_a_guest_that_fails_is_named_and_ours_is_there(guests, tmp_path):
    guests(broken="BROKEN")
    with pytest.warns(GuestWarning, match="view 'broken' of the package '.*' is left out: ZeroDivisionError"):
        assert "<table" in comparison()._repr_html_()
    assert comparison().save(tmp_path / "runs.json").is_file()


def test_a_result_of_another_package_has_all_that_ours_have(guests, tmp_path):
    guests(mine="MINE")
    mine = Mine()
    assert mine._repr_html_() == "<p>42</p>"
    assert mine.to_markdown() == "    forty-two\n"
    assert "<p>42</p>" in mine.save(tmp_path / "m.html").read_text(encoding="utf-8")
    assert mine.save(tmp_path / "m.json").read_text(encoding="utf-8") == '{\n "answer": 42\n}\n'


def test_a_subclass_is_shown_as_its_base():
    log = KINDS["compilation"]()
    assert views.html(type("Longer", (type(log),), {})()) == views.html(type(log)())


def test_without_the_widgets_a_notebook_shows_the_text(monkeypatch):
    found = KINDS["audit"]()
    assert "<div" in found._repr_html_()
    monkeypatch.setitem(sys.modules, "streamscope_widgets", None)
    assert found._repr_html_() is None
    assert found.to_markdown().startswith("    Audit of")
