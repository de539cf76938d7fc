"""The watchdog that opens gates."""

from __future__ import annotations

import threading
import time

import pytest

import streamscope as ss
from streamscope.devices.cuda.watchdog import Watchdog
from streamscope.errors import DeviceError


def test_what_takes_too_long_is_called_once_and_not_before():
    called, start = threading.Event(), time.monotonic()
    times = []

    def action():
        times.append(time.monotonic())
        called.set()

    watchdog = Watchdog(0.2)
    watchdog.arm("slow", action)
    assert called.wait(10)
    assert times[0] - start >= 0.2
    assert not watchdog.disarm("slow")
    time.sleep(0.3)
    assert len(times) == 1


def test_what_is_disarmed_is_not_called():
    calls = []
    watchdog = Watchdog(0.1)
    for number in range(1000):
        watchdog.arm(number, lambda: calls.append(1))
        assert watchdog.disarm(number)
        assert not watchdog.disarm(number)
    watchdog.arm("again", lambda: calls.append("first"))
    watchdog.arm("again", lambda: calls.append("second"))  # begins anew
    assert watchdog.disarm("again")
    time.sleep(0.3)
    assert calls == []


def test_one_thread_watches_all_and_goes_on_after_a_pause():
    before, done = threading.active_count(), [threading.Event() for _ in range(20)]
    watchdog = Watchdog(0.05)
    for event in done[:10]:
        watchdog.arm(event, event.set)
    assert all(event.wait(10) for event in done[:10])
    time.sleep(0.2)  # it has nothing to do and sleeps
    for event in done[10:]:
        watchdog.arm(event, event.set)
    assert all(event.wait(10) for event in done[10:])
    assert threading.active_count() == before + 1


@pytest.mark.gpu
def test_a_gate_opens_by_itself_and_says_so(monkeypatch):
    from streamscope.devices.cuda import gate as module

    monkeypatch.setattr(module, "_watchdog", Watchdog(0.5))
    device = ss.open_device("cuda")
    stream = device.stream("main")
    for _ in range(2):
        gate, start = device.gate(), time.monotonic()
        gate.hold(stream)
        stream.synchronize()
        assert 0.5 <= time.monotonic() - start < 5
        with pytest.raises(DeviceError, match="a gate opened by itself"):
            gate.open()
        gate.open()  # It says so once.
    gate = device.gate()
    gate.hold(stream)
    gate.open()
    stream.synchronize()


def test_arming_is_cheap():
    watchdog, action = Watchdog(60.0), lambda: None
    watchdog.arm("first", action)
    start = time.perf_counter()
    for number in range(10_000):
        watchdog.arm(number, action)
        watchdog.disarm(number)
    assert (time.perf_counter() - start) / 10_000 < 50e-6  # a Timer takes longer by far
