"""Streams that are held while work is queued: let go whatever happens."""

from __future__ import annotations

import gc
import signal

import pytest

from streamscope.calibrating.launch_times import LaunchTimer
from streamscope.devices import gates
from streamscope.devices.gates import held
from streamscope.devices.simulated import SimulatedDevice
from streamscope.devices.simulated.streams import SimulatedStream
from streamscope.errors import DeviceError, RecordingError
from streamscope.recording.calibration import calibrate


class Gate:
    """Counts, and may say that it was opened too late."""

    def __init__(self, *, late=False):
        self.late = late
        self.calls = []

    def gate(self):
        return self

    def hold(self, stream):
        self.calls.append(stream)

    def open(self):
        self.calls.append("open")
        if self.late:
            raise DeviceError("a gate opened by itself", hint="do not synchronise")


def test_the_gate_opens_at_the_end():
    gate = Gate()
    with held(gate, ["main", "aux"]):
        assert gate.calls == ["main", "aux"]
    assert gate.calls == ["main", "aux", "open"]


def test_a_gate_that_opened_by_itself_is_an_error_that_names_what_was_timed():
    with (
        pytest.raises(RecordingError, match=r"^impatient waited for the device while it was timed: .*\(do not synchronise\)"),
        held(Gate(late=True), ["main"], "impatient"),
    ):
        pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_block_opens_it(error):
    gate = Gate()
    with pytest.raises(error), held(gate, ["main"]):
        raise error
    assert gate.calls == ["main", "open"]


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_it_is_closed(collects):
    """A stream of a program that nobody holds any more may be among the garbage: to give it back waits for its end."""
    (gc.enable if collects else gc.disable)()
    try:
        with held(Gate(), ["main"]):
            assert not gc.isenabled()
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_ctrl_c_waits_until_it_is_open():
    gate = Gate()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def queue():
        with held(gate, ["main"]):
            signal.raise_signal(signal.SIGINT)
            gate.calls.append("queued")

    try:
        with pytest.raises(KeyboardInterrupt):
            queue()
    finally:
        signal.signal(signal.SIGINT, before)
    assert gate.calls == ["main", "queued", "open"]


def test_streams_of_the_simulated_device():
    device = SimulatedDevice()
    stream, event = device.stream("main"), device.event()
    with held(device, [stream]):
        stream.record(event)
        assert not event.done()
    stream.synchronize()
    assert event.done()


@pytest.mark.parametrize("measure", [calibrate, lambda device: LaunchTimer(device).step_ns(lambda: None)])
def test_what_is_measured_on_a_stream_of_its_own_waits_for_it_when_it_breaks_off(measure, monkeypatch):
    """Ctrl-C comes as a gate has opened: what was queued behind it is still to run, on memory that is about to go."""
    device, waited = SimulatedDevice(), []
    make, synchronize = device.stream, SimulatedStream.synchronize
    own = []
    monkeypatch.setattr(device, "stream", lambda name: own.append(make(name)) or own[-1])
    monkeypatch.setattr(SimulatedStream, "synchronize", lambda stream: (waited.append(stream), synchronize(stream)))

    def interrupted(gate, what):
        waited.clear()
        raise KeyboardInterrupt

    monkeypatch.setattr(gates, "_open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(device)
    assert waited == own
