"""What is learnt from a plain call of PyTorch code: here its generators; memory needs a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from streamscope.capturing.operators import PlainOperators


class Generator:
    """One of PyTorch's, on some device; an operator is given another object of the same generator."""

    def __init__(self, kind="cuda", _cdata=None):
        self.device = SimpleNamespace(type=kind)
        self._cdata = _cdata or id(self)

    def seen(self):
        return Generator(self.device.type, self._cdata)

    def __eq__(self, other):
        raise AssertionError("generators are told apart by their address in PyTorch")

    __hash__ = object.__hash__


PYTORCHS = Generator()


@pytest.fixture
def plain(monkeypatch):
    """Notes of a call in which nothing is allocated."""
    torch = SimpleNamespace(Generator=Generator, Tensor=(), cuda=SimpleNamespace(default_generators=(PYTORCHS,)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    constants = SimpleNamespace(lent=lambda *given: (), note=lambda *given: None)
    return PlainOperators(SimpleNamespace(now=lambda: SimpleNamespace(allocations=0)), constants)


def test_generators_of_the_users_own_are_noted_once_wherever_they_are_among_the_arguments(plain):
    first, second, host = Generator(), Generator(), Generator("cpu")
    calls = [
        ((first.seen(), 3), {}),
        ((2,), {"generator": second.seen()}),
        ((), {"generator": first.seen()}),
        ((host,), {"generator": None}),
    ]
    for args, kwargs in calls:
        assert plain.run(lambda *given, **named: (given, named), args, kwargs) == (args, kwargs)
    assert [one._cdata for one in plain.generators] == [first._cdata, second._cdata]


def test_pytorchs_own_generator_is_not_noted_again_where_it_is_passed(plain):
    plain.run(lambda generator: None, (), {"generator": PYTORCHS.seen()})
    assert plain.generators == []
