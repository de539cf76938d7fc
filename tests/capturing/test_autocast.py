"""Casts of weights are part of what is captured, though PyTorch keeps them inside one block of autocast."""

from __future__ import annotations

import sys

import pytest

from streamscope.capturing.stream_capture import casting_each_time


class Autocast:
    """PyTorch's cache of casts; here a weight is cast to an integer."""

    def __init__(self):
        self.kept, self.keeps = {}, True

    def is_autocast_cache_enabled(self):
        return self.keeps

    def set_autocast_cache_enabled(self, keeps):
        self.keeps = keeps

    def clear_autocast_cache(self):
        self.kept.clear()

    def cast(self, weight):
        found = self.kept[id(weight)] if self.keeps and id(weight) in self.kept else int(weight[0])
        if self.keeps:
            self.kept[id(weight)] = found
        return found


@pytest.fixture
def torch(monkeypatch):
    found = Autocast()
    monkeypatch.setitem(sys.modules, "torch", found)
    return found


@pytest.mark.parametrize("keeps", [True, False])
def test_each_call_casts_its_weights_and_what_the_user_chose_stays(torch, keeps):
    torch.keeps, weight = keeps, [1.5]
    assert torch.cast(weight) == 1
    casting = casting_each_time(lambda: torch.cast(weight))
    for weight[0] in (2.5, 3.5):
        assert casting() == int(weight[0])
    assert torch.keeps == keeps


def test_a_block_inside_that_keeps_casts_begins_without_any_and_leaves_none(torch):
    weight = [1.5]

    def inner():
        torch.set_autocast_cache_enabled(True)
        return torch.cast(weight)

    casting = casting_each_time(inner)
    torch.cast(weight)
    weight[0] = 2.5
    assert casting() == 2
    assert torch.kept == {}


def test_what_the_user_chose_stays_where_the_function_fails(torch):
    with pytest.raises(ZeroDivisionError):
        casting_each_time(lambda: 1 // 0)()
    assert torch.keeps


def test_without_pytorch_the_function_is_as_it_was(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert casting_each_time(len) is len
