"""What is learnt from a plain call of PyTorch code: here its generators; memory needs a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from streamscope.capturing.workspaces import Workspaces


class Generator:
    """One of PyTorch's, on some device."""

    def __init__(self, kind="cuda"):
        self.device = SimpleNamespace(type=kind)

    def __eq__(self, other):
        raise AssertionError("generators are told apart by identity")

    __hash__ = object.__hash__


PYTORCHS = Generator()


@pytest.fixture
def workspaces(monkeypatch):
    """Notes of a call in which nothing is allocated."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Generator=Generator, cuda=SimpleNamespace(default_generators=(PYTORCHS,))))
    return Workspaces(SimpleNamespace(now=lambda: SimpleNamespace(allocations=0)))


def test_generators_of_the_users_own_are_noted_once_wherever_they_are_among_the_arguments(workspaces):
    first, second, host = Generator(), Generator(), Generator("cpu")
    for args, kwargs in [((first, 3), {}), ((2,), {"generator": second}), ((), {"generator": first}), ((host,), {"generator": None})]:
        assert workspaces.run(lambda *given, **named: (given, named), args, kwargs) == (args, kwargs)
    assert len(workspaces.generators) == 2
    assert workspaces.generators[0] is first
    assert workspaces.generators[1] is second


def test_pytorchs_own_generator_is_not_noted_again_where_it_is_passed(workspaces):
    workspaces.run(lambda generator: None, (), {"generator": PYTORCHS})
    assert workspaces.generators == []
