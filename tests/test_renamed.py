"""Names that are gone: the error tells the new one, and a property that fails tells its own error."""

from __future__ import annotations

import copy
import pickle

import pytest

from streamscope.errors import UnknownAttributeError
from streamscope.renamed import Renamed


class Base(Renamed):
    renamed = {"old": "new"}  # noqa: RUF012


class Thing(Base):
    renamed = {"older": "newer()"}  # noqa: RUF012

    @property
    def failing(self):
        return self.nothing_there


def test_an_old_name_tells_the_new_one_also_that_of_a_base_class():
    for name, new in (("old", "new"), ("older", "newer()")):
        with pytest.raises(UnknownAttributeError, match=f"'Thing' object has no attribute '{name}' any more") as told:
            getattr(Thing(), name)
        assert told.value.hint == f"write {new}"
        assert not hasattr(Thing(), name)


def test_a_property_that_fails_tells_why():
    with pytest.raises(UnknownAttributeError, match="'Thing' object has no attribute 'nothing_there'"):
        Thing().failing  # noqa: B018


def test_it_can_be_copied_and_pickled():
    assert isinstance(copy.deepcopy(Thing()), Thing)
    assert isinstance(pickle.loads(pickle.dumps(Thing())), Thing)
