"""Each door's own entries stand in its table and in pyproject.toml alike, and can be loaded."""

from __future__ import annotations

import pytest

from streamscope.analysis import METRICS
from streamscope.device_entry import DEVICES
from streamscope.engine_entry import ENGINES, EngineEntry
from streamscope.recorder_entry import RECORDERS
from streamscope.results.views import VIEWS, View
from streamscope.trace import FORMATS

DOORS = {"devices": DEVICES, "engines": ENGINES, "formats": FORMATS, "metrics": METRICS, "recorders": RECORDERS, "views": VIEWS}


@pytest.mark.parametrize("name", DOORS)
def test_the_table_and_pyproject_list_the_same_entries(name, pyproject):
    door = DOORS[name]
    assert door.group == f"streamscope.{name}"
    assert pyproject["project"]["entry-points"][door.group] == dict(door.own)
    assert list(pyproject["project"]["entry-points"][door.group]) == list(door.own)


@pytest.mark.parametrize("name", DOORS)
def test_own_entries_have_what_a_guest_must_have(name):
    door = DOORS[name]
    for each in door.own:
        assert isinstance(door[each], door.form)
        assert getattr(door[each], "name", each) == each


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: EngineEntry(name="x", line="", plan=len, rank="9"), "rank of engine 'x' is a str, not a whole number"),
        (lambda: View(of="trace", html=None), "html of a view of 'trace' is a NoneType, not a function"),
        (lambda: View(of="trace", html=str, pictures=None), "pictures of a view of 'trace' is a NoneType, not a mapping of"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(make, said):
    with pytest.raises(TypeError, match=said):
        make()


def test_every_group_is_a_door(pyproject):
    assert set(pyproject["project"]["entry-points"]) == {door.group for door in DOORS.values()}
