"""Traits: what others ask of a device instead of its name."""

from __future__ import annotations

import pytest

from streamscope.devices.simulated import SimulatedDevice
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.events import EventRecorder
from streamscope.recording.recorders import recorder_of
from streamscope.trace.info import DeviceInfo


@pytest.mark.parametrize(("kind", "expected"), [("simulated", True), ("cuda", False)])
def test_a_description_says_whether_times_are_simulated_and_exact(kind, expected):
    info = DeviceInfo(kind, "card")
    assert (info.simulated, info.exact) == (expected, expected)


def test_the_simulated_device_has_one_clock_and_records_by_its_own_log():
    device = SimulatedDevice()
    assert device.single_threaded
    recorder = recorder_of(device)
    assert isinstance(recorder, DeviceLogRecorder)
    assert recorder.log is device.log


def test_a_device_without_a_log_is_recorded_by_events():
    class WithoutLog(SimulatedDevice):
        log = None

    recorder = recorder_of(WithoutLog())
    assert isinstance(recorder, EventRecorder)
    assert recorder.passes == 1, "its times are exact"
