"""Streams that captures take over from captures that have gone."""

from __future__ import annotations

import sys
from contextlib import nullcontext
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


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_workspaces_are_made_where_only_deterministic_algorithms_are_allowed(gpu, mode, fails):
    """Without CUBLAS_WORKSPACE_CONFIG, PyTorch refuses each product then, though the user's function may have none."""
    torch, seen = sys.modules["torch"], []
    modes = [mode]

    def multiplied(*_):
        seen.append(modes[-1])
        if fails:
            raise KeyboardInterrupt

    torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode = lambda: modes[-1], modes.append
    torch.cuda.stream, torch.cuda.use_mem_pool = nullcontext, nullcontext
    torch.cuda.current_stream = lambda: SimpleNamespace(synchronize=lambda: None)
    torch.inference_mode, torch.no_grad = lambda mode: nullcontext(), nullcontext
    torch.ones, torch.mm, torch.addmm = lambda *_, device: [0], multiplied, multiplied
    lent = SideStream()
    lent.stream = SimpleNamespace(device=0)
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        lent.products()
    assert set(seen) == {0}
    assert modes[-1] == mode
