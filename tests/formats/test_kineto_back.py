"""What `Trace.to_kineto` wrote is read like any Kineto file, and never takes simulated times for measured ones."""

import json
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.formats.test_parquet import traces
from tests.formats.test_recorded_by_pytorch import FILES

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.trace.spans import DEVICE_KINDS


@pytest.fixture
def simulated():
    function, inputs = ss.workload("branches").build(size=256)
    return ss.compare(function, *inputs, engines="dual", device="simulated", progress=False)["dual"].trace


def test_simulated_or_predicted_times_come_back_as_such(simulated, tmp_path):
    for trace, engine in ((simulated, "dual"), (ss.what_if(simulated, engine="graph"), "graph")):
        found = ss.read(trace.to_kineto(tmp_path / "t.json")).info
        assert (found.engine, found.program, found.recorder) == (engine, trace.info.program, trace.info.recorder)
        assert (found.device.kind, found.device.name) == ("simulated", trace.info.device.name)
        assert not found.profiled


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(original=traces())
def test_any_trace_keeps_its_nature(tmp_path, original):
    assume((original.spans.is_kind(DEVICE_KINDS) & (original.spans.duration_ns > 0)).any())
    with suppress(TraceError):  # Where no work has a time that can be.
        found = ss.read(original.to_kineto(tmp_path / "t.json.gz")).info
        assert found.device.simulated == original.info.device.simulated
        assert (found.engine, found.program) == (original.info.engine, original.info.program)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_work_of_others_comes_back_on_its_streams(tmp_path, path):
    original = ss.read(path)
    found = ss.read(original.to_kineto(tmp_path / "t.json"))
    kept = ["kind", "name", "lane", "start_ns", "end_ns", "blocks", "threads", "bytes", "symbol"]
    one, other = (trace.spans.of_kind(DEVICE_KINDS) for trace in (original, found))
    assert one.to_pandas()[kept].astype(str).equals(other.to_pandas()[kept].astype(str))
    assert (found.info.engine, found.info.recorder, found.info.profiled) == ("kineto", "kineto", True)


@pytest.mark.parametrize(("name", "sizes"), [("branches", {"size": 256}), ("data-parallel", {"width": 64, "rows": 64, "layers": 2})])
def test_launches_and_waits_come_back(tmp_path, name, sizes):
    function, inputs = ss.workload(name).build(**sizes)
    for run in ss.compare(function, *inputs, device="simulated", progress=False).values():
        traces = run.trace, ss.read(run.trace.to_kineto(tmp_path / "t.json"))
        one, other = (ss.analysis.summary(trace).to_dict() for trace in traces)
        for number in ("span_us", "idle_us", "launch_latency_us", "queue_time_us", "api_time_us"):
            assert other[number] == one[number]


def test_correlations_that_count_from_one_stay(tmp_path):
    spans = ss.trace.SpanTable.of(("launch", "a", "host", 0, 4, 7), ("kernel", "a", "main", 10, 15, 7))
    original = ss.Trace.from_spans(spans.to_pandas(), device="card")
    path = original.to_kineto(tmp_path / "t.json")
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert {event["args"]["correlation"] for event in events if "correlation" in event.get("args", {})} == {7}


@pytest.mark.parametrize("engine", ["dual", "graph"])
def test_lines_of_a_program_come_back_or_are_told_to_be_left_out(tmp_path, engine):
    function, inputs = ss.workload("lstm").build(steps=2)
    trace = ss.compare(function, *inputs, engines=engine, device="simulated", progress=False)[engine].trace
    back = ss.read(trace.to_kineto(tmp_path / "t.json"))
    assert ss.analysis.memory(back, "line").rows == ss.analysis.memory(trace, "line").rows
    if engine == "graph":
        assert not len(back.sites)
        assert any("without its line" in note for note in back.info.notes)
    else:
        assert ss.analysis.by_code(back, "line").rows == ss.analysis.by_code(trace, "line").rows
        assert not any("line" in note for note in back.info.notes)


CHANGES = {
    "no device": lambda content: content["streamscope"].pop("device"),
    "a device of another kind": lambda content: content["streamscope"]["device"].update(kind="guessed"),
    "info of another kind": lambda content: content.update(streamscope=[]),
    "no recorder": lambda content: content["streamscope"].pop("recorder"),
    "ours behind the events": lambda content: content.update(streamscope=content.pop("streamscope")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_ours_that_was_changed_is_told(simulated, tmp_path, change):
    path = simulated.to_kineto(tmp_path / "t.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    CHANGES[change](content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(TraceError, match=r"t\.json"):
        ss.read(path)
