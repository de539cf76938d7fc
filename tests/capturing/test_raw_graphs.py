"""Captured graphs are destroyed outside captures, whichever thread lets them go; with a runtime that only notes its calls."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from streamscope.capturing import stream_capture
from streamscope.devices.cuda.captures import CAPTURES


class CaptureError(RuntimeError):
    """What the runtime raises."""


class Runtime:
    """Notes what is called, and whether somebody captures meanwhile."""

    CUDARuntimeError = CaptureError
    streamCaptureModeThreadLocal = 1  # noqa: N815

    def __init__(self):
        self.destroyed, self.capturing, self.broken = [], set(), False

    def streamBeginCapture(self, stream, mode):  # noqa: N802
        if self.broken:
            raise CaptureError("begin")
        self.capturing.add(stream)

    def streamEndCapture(self, stream):  # noqa: N802
        self.capturing.discard(stream)
        return 40 + stream

    def graphDestroy(self, graph):  # noqa: N802
        assert not self.capturing, "destroyed while a thread captures"
        self.destroyed.append(graph)


@pytest.fixture
def runtime(monkeypatch):
    fake = Runtime()
    monkeypatch.setattr(stream_capture, "libraries", lambda: SimpleNamespace(runtime=fake))
    return fake


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_it_goes_at_once_where_nobody_captures(runtime):
    stream_capture._RawGraph(7)
    assert runtime.destroyed == [7]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_it_waits_for_a_capture(runtime, elsewhere):
    graph = [stream_capture._RawGraph(7)]
    with stream_capture._captured(1) as graphs:
        in_a_thread(graph.clear) if elsewhere else graph.clear()
        assert runtime.destroyed == []
    assert graphs == [41]
    assert runtime.destroyed == [7]


def test_it_waits_no_longer_when_a_capture_breaks_off(runtime):
    graph = [stream_capture._RawGraph(7)]
    with pytest.raises(ValueError, match="in the function"), stream_capture._captured(1):  # noqa: PT012 — the block is what is tested
        graph.clear()
        raise ValueError("in the function")
    assert runtime.destroyed == [7]
    assert not CAPTURES.active


def test_a_capture_that_cannot_begin_is_none(runtime):
    runtime.broken = True
    with pytest.raises(CaptureError, match="begin"), stream_capture._captured(1):
        pass
    assert not CAPTURES.active
