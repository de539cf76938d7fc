"""The doors for guests: what a package adds by entry points, and what is left out with a warning."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from streamscope import doors
from streamscope.doors import Door, GuestWarning

OWN = {"ours": "collections:OrderedDict"}


@pytest.fixture
def door(monkeypatch):
    """A function of entry points, as ``name=place``: a door that finds them."""

    def made(form=object, reserved=(), **places):
        points = [EntryPoint(name, place, "streamscope.tests") for name, place in places.items()]
        monkeypatch.setattr(doors, "entry_points", lambda group: points if group == "streamscope.tests" else [])
        return Door("test", OWN, form, reserved)

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
        ({"bare": "math:pi"}, "left out: it is a float, not a type"),
        ({"any": "collections:OrderedDict"}, "test 'any' of the package 'collections' is left out: that cannot be its name"),
        ({"a,b": "collections:OrderedDict"}, "test 'a,b' of the package 'collections' is left out: that cannot be its name"),
        ({"ape": "asking:NAMED"}, "test 'ape' of the package 'asking' is left out: it calls itself 'zebra'"),
    ],
)
def test_a_guest_that_does_not_fit_is_named_and_left_out(door, monkeypatch, places, said):
    monkeypatch.setitem(sys.modules, "asking", SimpleNamespace(NAMED=type("Named", (), {"name": "zebra"})))
    found = door(type, ("any",), **places)
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


def test_a_warning_that_is_an_error_keeps_no_other_guest_out(door):
    found = door(ape="no_such_module:X", zebra="math:pi")
    with warnings.catch_warnings():
        warnings.simplefilter("error", GuestWarning)
        with pytest.raises(GuestWarning, match="ape"):
            list(found)
    assert list(found) == ["ours", "zebra"]
