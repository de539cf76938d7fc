"""``ss.verify``: on the simulated device, what was predicted from the sync trace is what runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope import engine_entry
from streamscope.errors import EngineError, TraceError
from streamscope.predicting import verify
from streamscope.predicting.verify import error_text

ENGINES = list(engine_entry.ENGINES)


@pytest.fixture(scope="module")
def found():
    function, inputs = ss.workload("conv-backward").build(size=8)
    return ss.verify(function, *inputs, device="simulated", progress=False)


def test_every_engine_is_predicted_from_sync_and_run(found):
    assert list(found) == ENGINES
    assert found.source.info.engine == "sync"
    for engine, each in found.items():
        assert each.prediction.info.engine == engine
        assert each.prediction.scenario.source is found.source
    for engine in ("sync", "async", "graph"):
        assert abs(found[engine].error) < 1e-3  # the host's clock is read in whole ns
    assert found.median_error < 1e-3


def test_the_trace_of_the_most_usual_run_counts(monkeypatch):
    """Five traces are recorded between nine runs; of all but the fourth, the host was slower or faster than it usually is."""
    monkeypatch.setattr(verify, "SIMULATED_REPEATS", 9)
    real, shares, recorded = verify.recorded_traces, [3.0, 1.3, 0.6, 1.0, 1.1], []

    def recorded_traces(*arguments):
        ((engine, trace),) = real(*arguments)
        unrecorded_ns = trace.info.ledger["unrecorded_ns"] * shares[len(recorded)]
        recorded.append(replace(trace, info=replace(trace.info, ledger=trace.info.ledger | {"unrecorded_ns": unrecorded_ns})))
        yield engine, recorded[-1]

    monkeypatch.setattr(verify, "recorded_traces", recorded_traces)
    function, inputs = ss.workload("conv-backward").build(size=8)
    found = ss.verify(function, *inputs, device="simulated", progress=False)
    assert len(recorded) == len(shares)
    assert found.source is recorded[3]
    assert [len(each.makespans_ns) for each in found.values()] == [len(each.first_ns) for each in found.values()] == [9] * len(ENGINES)


def test_a_trace_whose_kernels_take_most_or_least_of_five_is_not_usual(found):
    def lasting(share, makespan_ns):
        spans, info = found.source.spans, found.source.info
        ends = spans.start_ns + (share * spans.duration_ns).astype(np.int64)
        return replace(found.source, spans=replace(spans, end_ns=ends), info=replace(info, ledger={"unrecorded_ns": makespan_ns}))

    traces = [lasting(0.7, 100.0), lasting(1.0, 130.0), lasting(1.4, 101.0), lasting(1.1, 109.0), lasting(0.9, 90.0)]
    assert verify.usual_of(traces, 100.0) is traces[3]
    assert verify.usual_of(traces, 91.0) is traces[4]
    assert verify.usual_of(traces[:3], 101.0) is traces[2]
    assert verify.usual_of(traces[:1], 1.0) is traces[0]


def test_errors_in_json_have_four_digits(found):
    each = replace(found["graph"], makespans_ns=(found["graph"].prediction.predicted_ns / 1.23456789,))
    told = verify.Verification("p", found.device, found.source, {"graph": each}).to_dict()
    assert (told["median_error"], told["engines"]["graph"]["error"]) == (0.2346, 0.2346)


def test_it_is_told_as_text_json_and_html(found):
    text = str(found)
    first, second, *_ = text.splitlines()
    assert first.startswith("Simulated, not measured: ")
    assert "proves nothing about a GPU" in second
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["engine", *ENGINES]
    told = json.loads(json.dumps(found.to_dict()))
    assert told["simulated"] is True
    assert told["engines"]["graph"]["predicted_us"] == pytest.approx(found["graph"].measured_ns / 1e3, abs=0.002)
    html = found._repr_html_()
    assert all(engine in html for engine in ENGINES)
    assert "Simulated times, not measured." in html


def test_what_a_simulated_device_runs_is_not_called_measured_and_no_error_has_no_sign(found):
    for shown in (str(found), found._repr_html_()):
        assert "measured µs" not in shown
        assert "run, simulated µs" in shown
        assert "-0.0%" not in shown
    assert [error_text(error) for error in (-0.0001, 0.0001, -0.012, 0.5)] == ["0.0%", "0.0%", "-1.2%", "+50.0%"]


def test_inputs_that_the_program_changes_are_filled_again():
    def step(x):
        return ss.ops.add(x, x, out=x)

    found = ss.verify(ss.program(step), np.ones(4, np.float32), device="simulated", progress=False)
    assert abs(found["async"].error) < 1e-3


def test_wrong_arguments_are_refused():
    x = np.ones(4, np.float32)
    with pytest.raises(EngineError, match="repeats=0"):
        ss.verify(lambda x: x + 1, x, repeats=0, device="simulated", progress=False)
    with pytest.raises(EngineError, match="streams=0"):
        ss.verify(lambda x: x + 1, x, streams=0, device="simulated", progress=False)
    with pytest.raises(TraceError, match="no kernels"):
        ss.verify(lambda x: x + 1, x[:0], device="simulated", progress=False)
