"""A run that hangs is given up with an error; one that ends is waited for."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import DeviceError, HungError
from streamscope.parallelising import proving
from streamscope.parallelising.proving import run_watched, time_limit_s


@pytest.fixture
def prepared():
    return ss.prepare(lambda x: x * 2 + 1, np.ones(4, np.float32), engine="dual", device="simulated", progress=False)


def test_a_run_that_ends_is_waited_for(prepared):
    run_watched(prepared, 10.0)
    np.testing.assert_array_equal(prepared.outputs()[0], np.full(4, 3, np.float32))


class NeverDone:
    """An event that is never done, as behind a kernel that hangs."""

    timing = False

    def done(self):
        return False


class HungDevice:
    """A device whose work does not end; whoever waits for it fails the test."""

    def __init__(self, device):
        self._device = device

    def __getattr__(self, name):
        return getattr(self._device, name)

    def event(self):
        return NeverDone()

    def let_finish(self, streams):
        raise AssertionError("something waits for what hangs")


def test_a_run_that_hangs_is_given_up_and_never_waited_for(prepared, monkeypatch):
    prepared.device = HungDevice(prepared.device)
    for stream in prepared.streams.values():
        monkeypatch.setattr(stream, "record", lambda event: None)
    names = [f"node {number}, semaphore" for number in range(7)]
    with pytest.raises(HungError) as caught:
        run_watched(prepared, 0.01, lambda: names, "kept")
    assert caught.value.message.startswith("<lambda> under 'dual' did not finish within 10.0 ms; under way: node 0, semaphore, ")
    assert caught.value.message.endswith("node 4, semaphore and 2 others")
    assert "restart the kernel" in caught.value.hint
    assert isinstance(caught.value, DeviceError)
    assert proving._GIVEN_UP[-1][0] is prepared
    proving._GIVEN_UP.pop()
    del prepared
    gc.collect()


def test_the_limit_is_generous():
    assert time_limit_s(0) == 10
    assert time_limit_s(1e6) == 110
