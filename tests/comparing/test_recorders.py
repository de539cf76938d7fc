"""The choice of a recorder, and the ledger of what each costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.cli.main import main
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import KeywordError, RecordingError
from streamscope.measuring import recordings
from streamscope.options import RECORDER
from streamscope.recorder_entry import RECORDERS
from streamscope.recording import recorders, subscription
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.recorders import STAYED, recorder_of

X = np.ones((8, 8), np.float32)


def step(x):
    return x @ x + x


class WithoutLog(SimulatedDevice):
    """A device that keeps no log, as a GPU."""

    log = None


def compared(device=None, **options):
    return ss.compare(step, X, engines="async,graph", device=device or SimulatedDevice(), repeats=1, progress=False, **options)


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_device_with_a_log_is_recorded_by_it_whatever_was_chosen(recorder):
    runs = compared(recorder=recorder, ledger=True)
    assert {run.trace.info.recorder for run in runs.values()} == {"device log"}
    assert all(run.trace.info.ledger["recorded_ns"] == run.trace.info.ledger["unrecorded_ns"] for run in runs.values())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"recorder": "event"}, r"recorder='event' is unknown \(did you mean events\?\)"),
        ({"recorder": "nsight"}, "one of auto, events, stamps, cupti"),
        ({"recorder": None}, "recorder=None is unknown"),
        ({"ledger": "yes"}, "ledger='yes' must be True or False"),
    ],
)
def test_wrong_choices_are_refused(options, match):
    with pytest.raises(RecordingError, match=match):
        compared(**options)


def test_a_misspelt_keyword_is_corrected():
    with pytest.raises(KeywordError, match="did you mean recorder"):
        compared(recoder="cupti")


def test_a_recorder_that_cannot_serve_says_so_before_anything_runs():
    ran = []
    host = ss.host_function(lambda values: ran.append(1) or values)
    with pytest.raises(RecordingError):
        ss.compare(lambda x: ss.ops.to_device(host(ss.ops.to_host(x))), X, device=WithoutLog(), repeats=1, progress=False, recorder="cupti")
    assert len(ran) <= 1  # the reference, on the host


def test_auto_is_events_on_a_device_without_a_log():
    runs = compared(WithoutLog())
    assert {run.trace.info.recorder for run in runs.values()} == {"events"}


class Recorder:
    """Records by the device's log, and says that it was another that takes some times as long."""

    def __init__(self, name, factor, seen):
        self.name, self.factor, self.seen = name, factor, seen

    def record(self, prepared, reload):
        self.seen.append((self.name, prepared.plan.engine))
        log = SimulatedDevice.log.fget(prepared.device)
        trace = DeviceLogRecorder(prepared.device, log).record(prepared, reload)
        recorded = trace.info.ledger["unrecorded_ns"] * self.factor
        name = "events" if self.name == "auto" else self.name
        return replace(trace, info=replace(trace.info, recorder=name, ledger={**trace.info.ledger, "recorded_ns": recorded}))


@pytest.mark.parametrize("chosen", ["auto", "events", "stamps", "cupti"])
def test_the_ledger_has_what_each_recorder_costs_and_cupti_comes_last(monkeypatch, chosen):
    seen = []
    factors = {"events": 1.25, "stamps": 1.5, "cupti": 3.0}
    monkeypatch.setattr(recordings, "recorder_of", lambda _, name: Recorder(name, factors.get(name, 1.25), seen))
    runs = compared(WithoutLog(), recorder=chosen, ledger=True)
    assert seen == [
        (name, engine) for name in (*["auto"] * (chosen == "auto"), "events", "stamps", "cupti") for engine in ("async", "graph")
    ]
    for run in runs.values():
        ledger = run.trace.info.ledger
        assert run.trace.info.recorder == ("events" if chosen == "auto" else chosen)
        assert {name: ledger[f"{name}_ns"] / ledger["unrecorded_ns"] for name in factors} == pytest.approx(factors, rel=1e-3)  # whole ns
        assert ledger["recorded_ns"] == pytest.approx(ledger[f"{run.trace.info.recorder}_ns"], rel=0 if chosen != "auto" else 1e-3)


def test_a_recorder_of_the_ledger_that_cannot_serve_is_told_and_the_others_stay(monkeypatch):
    def recorder(_, name):
        if name == "cupti":
            raise RecordingError("CUPTI cannot be loaded")
        return Recorder(name, 2.0, [])

    monkeypatch.setattr(recordings, "recorder_of", recorder)
    for run in compared(WithoutLog(), ledger=True).values():
        assert "cupti_ns" not in run.trace.info.ledger
        assert run.trace.info.ledger["stamps_ns"] > 0
        assert "the cost of cupti is unknown: CUPTI cannot be loaded" in run.trace.info.notes


def test_where_cupti_stayed_in_the_process_each_later_trace_says_so(monkeypatch):
    stayed = iter((False, True))
    monkeypatch.setattr(recordings, "cupti_stayed", lambda: next(stayed))
    delayed = SimulatedDevice(delays=lambda launch, stream: (0, 1))
    assert [STAYED in run.trace.info.notes for run in compared(delayed).values()] == [False, True]


def test_the_command_line_has_the_same_choices(capsys):
    line = ["compare", "elementwise-chain", "--set", "length=3", "--device", "simulated", "--engines", "async", "--ledger", "--json"]
    for recorder in RECORDER.choices:
        assert main([*line, "--recorder", recorder]) == 0
    capsys.readouterr()
    assert main([*line, "--recorder", "kineto"]) == 2
    assert "kineto" in capsys.readouterr().err


def test_a_recorder_fits_a_device():
    assert isinstance(recorder_of(SimulatedDevice()), DeviceLogRecorder)


def test_cupti_that_was_loaded_is_asked_whether_it_stayed():
    assert subscription.is_attached in recorders.STAYS
    assert not recorders.cupti_stayed()


def test_a_recorder_of_another_package_is_chosen_on_the_command_line(monkeypatch):
    monkeypatch.setattr(RECORDERS, "_guests", {"mine": RECORDERS["events"]})
    assert main(["compare", "branches", "--engines", "async", "--device", "simulated", "--recorder", "mine"]) == 0
