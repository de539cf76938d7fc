"""A CUPTI of Python in the place of the process's own."""

from __future__ import annotations

import pytest
from tests.recording.fake_cupti import CUPTI, ActivityKind, Library, record

from streamscope.recording import record as module
from streamscope.recording import subscription as subscribing
from streamscope.trace.info import DeviceInfo


@pytest.fixture
def library(monkeypatch):
    """A library whose records a test appends; on leaving the block, it waits for the GPU, which is a call, too."""
    library = Library()
    made = subscribing.Subscription(CUPTI, library, library.ask_version)
    monkeypatch.setattr(module, "subscription", lambda: made)
    library.subscription = made
    monkeypatch.setenv(subscribing.NVTX, "")
    monkeypatch.setattr(module, "device_info", lambda gpu: DeviceInfo("cuda", f"GPU {gpu}"))

    def wait():
        library.records.append(record(ActivityKind.DRIVER, cbid=2, start=library.now + 1, end=library.now + 5))
        return True, []

    monkeypatch.setattr(module, "_waited_for_gpus", wait)
    return library
