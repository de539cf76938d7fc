"""Streams that captures take over from captures that have gone."""

from __future__ import annotations

import sys
from itertools import count
from types import SimpleNamespace

import pytest

from streamscope.capturing import side_streams
from streamscope.capturing.side_streams import SideStream


@pytest.fixture
def gpu(monkeypatch):
    """The current GPU, on which streams are numbers."""
    found = SimpleNamespace(number=0)
    pointers = count(1)
    cuda = SimpleNamespace(current_device=lambda: found.number, ExternalStream=lambda pointer: pointer, MemPool=object)
    stream = SimpleNamespace(Stream=lambda non_blocking: SimpleNamespace(ptr=next(pointers)))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(side_streams, "libraries", lambda: SimpleNamespace(cupy=SimpleNamespace(cuda=stream)))
    monkeypatch.setattr(side_streams, "_FREE", {})
    return found


def test_no_two_captures_have_one_stream_and_those_of_captures_that_went_are_taken_over_on_their_gpu(gpu):
    first, second = SideStream(), SideStream()
    assert (first.stream, second.stream) == (1, 2)
    pool = first._parts[2]
    del first
    gpu.number = 1
    elsewhere = SideStream()
    assert elsewhere.stream == 3
    gpu.number = 0
    again, further = SideStream(), SideStream()
    assert (again.stream, further.stream) == (1, 4)
    assert again._parts[2] is pool
