"""The watchdog that opens gates."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from tests.counting import calls_of

import streamscope as ss
from streamscope.devices.cuda import gate as watchdog_module
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.gate import Watchdog
from streamscope.errors import DeviceError


class Clock:
    """Time that stands still until the test moves it; the watchdog looks, sleeps, and looks again as often as it can."""

    def __init__(self):
        self.now_s = 0.0
        self.looks = 0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.looks += 1
        time.sleep(0)

    def wait_for_looks(self):
        """Wait until the watchdog has looked at what is armed, all of it."""
        before = self.looks
        until(lambda: self.looks > before + 1)


def until(condition):
    while not condition():  # pytest's own limit ends it where that never comes.
        time.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(watchdog_module, "time", clock)
    return clock


def test_what_takes_too_long_is_called_once_and_not_before(clock):
    watchdog, calls = Watchdog(0.2), []
    watchdog.arm("slow", lambda: calls.append("slow"))
    clock.now_s = 0.19
    clock.wait_for_looks()
    assert calls == []
    clock.now_s = 0.2
    until(lambda: calls)
    assert not watchdog.disarm("slow")
    watchdog.arm("another", lambda: calls.append("another"))
    clock.now_s = 0.41
    until(lambda: len(calls) > 1)
    assert calls == ["slow", "another"]


def test_what_is_disarmed_is_not_called(clock):
    watchdog, calls = Watchdog(0.1), []
    for number in range(1000):
        watchdog.arm(number, lambda: calls.append(1))
        assert watchdog.disarm(number)
        assert not watchdog.disarm(number)
    watchdog.arm("again", lambda: calls.append("first"))
    clock.now_s = 0.09
    watchdog.arm("again", lambda: calls.append("second"))  # begins anew
    clock.now_s = 0.15
    clock.wait_for_looks()
    assert watchdog.disarm("again")
    watchdog.arm("last", lambda: calls.append("last"))
    clock.now_s = 10.0
    until(lambda: calls)
    assert calls == ["last"]


def test_one_thread_watches_all_and_goes_on_after_a_pause(clock):
    before, called = threading.active_count(), []
    watchdog = Watchdog(0.05)
    for turn in range(2):
        for number in range(10):
            watchdog.arm((turn, number), lambda: called.append(1))
        clock.now_s += 1
        until(lambda turn=turn: len(called) == 10 * (turn + 1))
    assert threading.active_count() == before + 1


def test_arming_is_cheap(clock):
    """A Timer would start a thread for each."""
    before = threading.active_count()
    watchdog = Watchdog(60.0)

    def arm(count):
        for number in range(count):
            watchdog.arm(number, list)
            watchdog.disarm(number)

    arm(1)
    assert calls_of(arm, 1000) < 20 * 1000
    assert threading.active_count() == before + 1


@pytest.mark.gpu
def test_a_gate_opens_by_itself_and_says_so(monkeypatch):
    from streamscope.devices.cuda import gate as module

    monkeypatch.setattr(module, "_watchdog", Watchdog(0.5))
    device = ss.open_device("cuda")
    stream = device.stream("main")
    for _ in range(2):
        gate = device.gate()
        gate.hold(stream)
        stream.synchronize()
        with pytest.raises(DeviceError, match="a gate opened by itself"):
            gate.open()
        gate.open()  # It says so once.
    gate = device.gate()
    gate.hold(stream)
    gate.open()
    stream.synchronize()


@pytest.mark.parametrize(("value", "refused"), [("1", True), ("0", False), ("", False)])
def test_a_gate_is_refused_where_every_launch_waits(monkeypatch, value, refused):
    """Each launch behind it would wait for the watchdog: 5 s, and then an error that names the code that is timed."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", value)
    device = SimpleNamespace(_gates=SimpleNamespace(gate=lambda: "gate"))
    if not refused:
        assert CudaDevice.gate(device) == "gate"
        return
    with pytest.raises(DeviceError, match="CUDA_LAUNCH_BLOCKING is set") as caught:
        CudaDevice.gate(device)
    assert "unset it" in caught.value.hint
