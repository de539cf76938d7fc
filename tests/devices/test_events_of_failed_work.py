"""An event behind work that failed is an error; CuPy takes it for one that is not done yet, so whoever waits would wait for ever."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamscope.devices.cuda import streams
from streamscope.errors import DeviceError
from streamscope.kernels.library import libraries


class RuntimeFailedError(Exception):
    def __init__(self, status):
        super().__init__(f"error {status}")
        self.status = status


@pytest.fixture
def answering(monkeypatch):
    """Let CUDA answer with a status when it is asked for an event."""

    def answer(status):
        runtime = SimpleNamespace(eventQuery=lambda pointer: status, CUDARuntimeError=RuntimeFailedError)
        memory = SimpleNamespace(OutOfMemoryError=MemoryError)
        driver = SimpleNamespace(CUDADriverError=RuntimeFailedError)
        lib = SimpleNamespace(runtime=runtime, driver=driver, cupy=SimpleNamespace(cuda=SimpleNamespace(memory=memory)))
        for module in (streams, libraries):
            monkeypatch.setattr(module, "libraries", lambda: lib)

    return answer


@pytest.mark.parametrize(("status", "done"), [(0, True), (600, False)])
def test_an_event_is_done_or_not(answering, status, done):
    answering(status)
    assert streams.event_done(1) is done


def test_what_failed_is_an_error(answering):
    answering(710)
    with pytest.raises(DeviceError, match="waiting for an event: error 710"):
        streams.event_done(1)
