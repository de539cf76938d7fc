"""The doors for guests: what a package adds by entry points, and what is left out with a warning."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from streamscope import doors
from streamscope.doors import Door, GuestWarning

OWN = {"ours": "collections:OrderedDict"}


@pytest.fixture
def door(monkeypatch):
    """A function of entry points, as ``name=place``: a door that finds them."""

    def made(*needs, **places):
        points = [EntryPoint(name, place, "streamscope.tests") for name, place in places.items()]
        monkeypatch.setattr(doors, "entry_points", lambda group: points if group == "streamscope.tests" else [])
        return Door("test", OWN, needs)

    return made


def test_own_entries_come_first_then_guests_by_name(door):
    found = door(zebra="math:pi", ape="math:e")
    assert list(found) == ["ours", "ape", "zebra"]
    assert (len(found), found["ape"], "zebra" in found, "none" in found) == (3, 2.718281828459045, True, False)
    with pytest.raises(KeyError):
        found["none"]


def test_own_entries_need_no_entry_points_and_may_stand_there_too(door):
    found = door(ours="collections:OrderedDict")
    assert list(found) == ["ours"]
    assert found["ours"].__name__ == "OrderedDict"


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"ours": "math:pi"}, "test 'ours' of the package 'math' is left out: another one has that name"),
        ({"gone": "no_such_module:X"}, "left out: ModuleNotFoundError: No module named 'no_such_module'"),
        ({"bare": "math:pi"}, "left out: it has no attribute 'read'"),
    ],
)
def test_a_guest_that_does_not_fit_is_named_and_left_out(door, places, said):
    found = door("read", **places)
    with pytest.warns(GuestWarning, match=said):
        assert list(found) == ["ours"]


def test_a_guest_that_raises_anything_while_it_is_imported_is_left_out(door, monkeypatch, tmp_path):
    (tmp_path / "breaks_at_import.py").write_text("raise SystemError('\\x1b[31mred')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(GuestWarning, match="SystemError"):
        assert "broken" not in door(broken="breaks_at_import:X")
    assert "breaks_at_import" not in sys.modules


def test_a_guest_may_use_the_door_while_it_is_imported(door, monkeypatch):
    found = door(ape="asking:VALUE")
    monkeypatch.setitem(sys.modules, "asking", SimpleNamespace(VALUE=1))
    monkeypatch.setattr(EntryPoint, "load", lambda self: list(found) or 1)
    assert found["ape"] == ["ours"]
