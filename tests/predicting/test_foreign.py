"""Predictions from traces of code that is not ours: order, waits and host synchronisations, by hand; nothing is guessed towards speed."""

import gzip
import json
import re
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis.overlap import span_ns
from streamscope.devices.cost_model import CostModel
from streamscope.errors import EngineError, TraceError
from streamscope.predicting.prediction import _measured_ns
from streamscope.predicting.tasks import (
    GAPS_STAY,
    Task,
    blocking_copies,
    check_foreign,
    launch_order,
    newest,
    tasks_of_foreign,
    usual_launch_ns,
)
from streamscope.trace import DeviceInfo, Origins, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo
from streamscope.trace.file_checks import MOST_NS
from streamscope.trace.origins import Trait
from streamscope.trace.spans import DEVICE_KINDS

H200 = CostModel.load()
KERNEL_NS = 800  # shorter than the shortest that works, so that gaps are the model's
ROOT_NS = round(H200.graph_root_ns)
"""What comes after nothing is put on the device by the host, one after the other."""


def foreign(kernels, *, syncs=(), waits=(), complete=True, copies=()):
    """Return a Kineto-like trace: kernels as (stream, called at µs, starts at µs, lasts ns), host waits as (from µs, to µs)."""
    lanes = ["thread 1", *sorted({f"stream {stream}" for stream, *_ in kernels})]
    builder = SpanBuilder(lanes)
    for number, (stream, called, starts, lasts) in enumerate(kernels):
        kind = SpanKind.COPY if number in copies else SpanKind.KERNEL
        name = "Memcpy HtoD (Pinned -> Device)" if number in copies else f"k{number}"
        builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", called * 1e3, called * 1e3 + 4_000, correlation=number)
        builder.add(kind, name, f"stream {stream}", starts * 1e3, starts * 1e3 + lasts, correlation=number, blocks=16, threads=128)
    for begin, end in syncs:
        builder.add(SpanKind.SYNC, "cudaStreamSynchronize", "thread 1", begin * 1e3, end * 1e3)
    spans = builder.build()
    rows = {int(spans.correlation[row]): row for row in np.flatnonzero(spans.kind >= SpanKind.KERNEL).tolist()}
    pairs = np.array([(rows[a], rows[b]) for a, b in waits], np.int32).reshape(-1, 2)
    info = TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto")
    return Trace(spans, info, Origins(complete=complete, row_waits=pairs))


def kernel_times(prediction):
    spans = prediction.spans.of_kind([SpanKind.KERNEL])
    return {spans.names[code]: (int(s), int(e)) for code, s, e in zip(spans.name, spans.start_ns, spans.end_ns, strict=True)}


def test_a_step_under_a_graph_has_its_kernels_behind_each_other_and_nothing_of_the_host_between():
    """Three kernels of 0.8 µs, called 50 µs apart: one launch, the latency, kernels and two gaps, and the return."""
    trace = foreign([(7, 0, 10, KERNEL_NS), (7, 50, 60, KERNEL_NS), (7, 100, 110, KERNEL_NS)], syncs=[(105, 120)])
    graph = ss.what_if(trace, engine="graph")
    launch_ns = H200.graph_launch_ns(3)
    expected = launch_ns + H200.graph_launch_latency_ns + 3 * KERNEL_NS + 2 * H200.graph_node_gap_ns + H200.synchronize_return_ns
    assert graph.predicted_ns == pytest.approx(expected, abs=2)
    assert graph.before_ns == 120_000
    assert graph.info.device.simulated
    assert "the order on its streams" in graph.info.notes[0]


def test_a_call_has_the_time_since_the_one_before_and_nodes_of_a_graph_have_none_of_their_own():
    builder = SpanBuilder(["thread 1", "stream 7"])
    builder.add(SpanKind.GRAPH_LAUNCH, "graph", "thread 1", 0, 10, correlation=0)
    builder.add(SpanKind.LAUNCH, "launch", "thread 1", 12, 15, correlation=1)
    for name, start_ns, correlation in (("node", 20, 0), ("called", 32, 1), ("uncalled", 45, -1)):
        builder.add(SpanKind.KERNEL, name, "stream 7", start_ns, start_ns + 8, correlation=correlation)
    builder.add(SpanKind.LAUNCH, "launch", "thread 1", 60, 64, correlation=2)
    builder.add(SpanKind.KERNEL, "last", "stream 7", 70, 78, correlation=2)
    tasks = tasks_of_foreign(Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto")))
    assert [(task.name, task.call_ns) for task in tasks] == [
        ("node", pytest.approx(float("nan"), nan_ok=True)), ("called", 15), ("uncalled", 0), ("last", 49),
    ]  # fmt: skip


def test_issued_as_before_the_host_keeps_its_own_time_between_calls():
    trace = foreign([(7, 0, 10, KERNEL_NS), (7, 50, 60, KERNEL_NS), (7, 100, 110, KERNEL_NS)])
    times = kernel_times(ss.what_if(trace))
    starts = [start for start, _ in times.values()]
    assert np.diff(starts).tolist() == [50_000, 50_000]
    assert ss.what_if(trace).info.engine == "async"


def test_streams_keep_their_order_and_event_waits_and_run_beside_each_other_where_waits_are_known():
    """k0 on one stream; k1 and k2 on two others, k2 after k0; k3 on the first after k1."""
    kernels = [(1, 0, 10, 20_000), (2, 5, 12, 20_000), (3, 10, 40, 20_000), (1, 15, 40, 20_000)]
    times = kernel_times(ss.what_if(foreign(kernels, waits=[(0, 2), (1, 3)]), engine="graph"))
    assert times["k1"][0] - times["k0"][0] == ROOT_NS
    assert times["k2"][0] >= times["k0"][1]
    assert times["k3"][0] >= max(times["k0"][1], times["k1"][1])
    assert times["k2"][0] < times["k3"][1]


def test_kernels_that_ran_beside_others_are_counted():
    words = "1 kernel ran beside others in the trace, so their durations alone may be shorter"
    assert words in ss.what_if(foreign([(1, 0, 10, 20_000), (2, 5, 12, 20_000)])).notes
    assert words not in ss.what_if(foreign([(1, 0, 10, 20_000), (2, 5, 30, 20_000)])).notes


def test_a_kernel_whose_call_is_known_waited_for_nothing_since_another_began():
    spans = SpanTable.of(
        ("launch", "a", "thread 1", 0, 3, 0), ("kernel", "uncalled", "stream 20", 2, 4), ("kernel", "a", "stream 7", 10, 20, 0),
        ("kernel", "uncalled", "stream 20", 9, 12),
    )  # fmt: skip
    trace = Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto"), Origins(complete=True))
    assert {(task.rows, task.gap_ns) for task in tasks_of_foreign(trace)} == {((1,), 0), ((3,), 0), ((2,), 5)}


@pytest.mark.parametrize(("begins_ns", "after"), [(20, (0,)), (19, ())])
def test_where_waits_are_not_known_what_ended_as_a_kernel_began_stays_before(begins_ns, after):
    spans = SpanTable.of(("kernel", "a", "stream 7", 0, 20), ("kernel", "b", "stream 20", begins_ns, 30))
    trace = Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto"))
    assert [task.after for task in tasks_of_foreign(trace)] == [(), after]


def test_a_copy_blocks_whose_call_returned_after_its_end():
    builder = SpanBuilder(["thread 1", "stream 7"])
    ends = {"cudaMemcpy": 40, "cudaMemcpyAsync": 14, "cuMemcpyDtoH": 30, "cudaLaunchKernel": 40}
    for number, (call, ends_ns) in enumerate(ends.items()):
        kind, at_ns = SpanKind.KERNEL if call == "cudaLaunchKernel" else SpanKind.COPY, 100 * number
        builder.add(SpanKind.LAUNCH, call, "thread 1", at_ns, at_ns + ends_ns, correlation=number)
        builder.add(kind, "work", "stream 7", at_ns + 20, at_ns + 30, correlation=number)
    spans = builder.build()
    assert blocking_copies(spans, *launch_order(spans)).tolist() == [True, False, True, False]


def test_one_operation_of_ours_without_dependencies_is_refused():
    builder = SpanBuilder(["main"])
    builder.add(SpanKind.KERNEL, "relu", "main", 0, 5, operation=0)
    with pytest.raises(TraceError, match="the trace of 'step' does not say what its launches depend on"):
        check_foreign(Trace(builder.build(), TraceInfo("async", "step", DeviceInfo("cuda", "card"))))


def test_a_launch_takes_what_calls_take_that_are_known():
    spans = SpanTable.of(
        ("launch", "a", "thread 1", 0, 4, 0), ("kernel", "a", "stream 7", 10, 20, 0), ("kernel", "b", "stream 7", 30, 40),
        ("kernel", "c", "stream 7", 50, 150),
    )  # fmt: skip
    assert usual_launch_ns(spans, np.array([0, -1, -1]), np.zeros(3, bool)) == 4
    assert usual_launch_ns(spans, np.array([-1, -1]), np.zeros(2, bool)) == float("inf")


def test_the_host_comes_after_all_that_nothing_comes_after_up_to_its_last_stretch():
    def task(*after, trait=Trait.CAPTURED):
        return Task((-1, 0), "k", trait, after)

    tasks = [task(), task(), task(0, 1, trait=Trait.HOST), task(), task(3), task()]
    assert newest(tasks) == (2, 4, 5)
    assert newest(tasks[:2]) == (0, 1)


def test_where_waits_are_not_known_what_had_ended_before_stays_before():
    """The same without waits: k2 and k3 began after k0 and k1 had ended, so they come after both, and the note says why."""
    kernels = [(1, 0, 10, 20_000), (2, 5, 12, 20_000), (3, 10, 40, 20_000), (1, 15, 40, 20_000)]
    graph = ss.what_if(foreign(kernels, complete=False), engine="graph")
    times = kernel_times(graph)
    assert times["k1"][0] - times["k0"][0] == ROOT_NS
    for later in ("k2", "k3"):
        assert times[later][0] >= max(times["k0"][1], times["k1"][1])
    assert "event waits are not known, so what had ended before a kernel began stays before it" in graph.info.notes


def test_a_wait_of_the_host_in_the_middle_makes_two_graphs_with_its_work_between():
    trace = foreign([(7, 0, 10, KERNEL_NS), (7, 50, 60, KERNEL_NS)], syncs=[(6, 20), (60, 70)])
    graph = ss.what_if(trace, engine="graph")
    assert graph.info.plan["graphs_instantiated"] == 2
    assert "the host waits 1 time in the middle, so there are 2 graphs with its work between" in graph.info.notes
    for engine in (None, "sync"):
        assert "graphs" not in " ".join(ss.what_if(trace, engine=engine).notes)
    with pytest.raises(TraceError, match=r"nothing is left without '\*'"):  # What the host does between graphs is no work by itself.
        graph.without("*")
    (host,) = graph.spans.of_kind([SpanKind.HOST]).duration_ns.tolist()
    assert host == 30_000  # from the end of the wait, at 20, to the next call, at 50
    times = kernel_times(graph)
    assert times["k1"][0] >= times["k0"][1] + 30_000


def test_copies_to_the_device_use_the_bus_beside_kernels():
    trace = foreign([(1, 0, 10, 50_000), (2, 5, 12, 50_000)], copies=[0])
    graph = ss.what_if(trace, engine="graph")
    copy = graph.spans.of_kind([SpanKind.COPY])
    assert copy.duration_ns.tolist() == [50_000]
    assert "copy in" in graph.spans.lanes
    assert kernel_times(graph)["k1"][0] - copy.start_ns[0] == ROOT_NS


def test_more_streams_are_refused_since_nothing_says_what_could_run_side_by_side():
    trace = foreign([(7, 0, 10, KERNEL_NS)])
    for call in (
        lambda: ss.what_if(trace, streams=2),
        lambda: ss.what_if(trace, engine="dual"),
        lambda: ss.what_if(trace, engine="graph").what_if(streams=2),
    ):
        with pytest.raises(EngineError, match="does not say which of its kernels depend on each other"):
            call()


def test_a_trace_without_kernels_has_nothing_to_predict():
    trace = foreign([(7, 0, 10, KERNEL_NS)])
    empty = trace.spans.select(trace.spans.kind == SpanKind.LAUNCH)
    with pytest.raises(TraceError, match="has no kernels"):
        ss.what_if(Trace(empty, trace.info), engine="graph")


def test_kernels_of_such_a_trace_can_be_changed_too():
    trace = foreign([(7, 0, 10, 5_000), (7, 50, 60, 5_000)])
    graph = ss.what_if(trace, engine="graph")
    assert graph.kernel("k0").scale(2).predicted_ns == pytest.approx(graph.predicted_ns + 5_000, abs=2)
    assert set(kernel_times(graph.without("k0"))) == {"k1"}


@pytest.mark.parametrize("name", ["resnet50_eager", "streams", "streams_cuda_only", "transformer_train"])
def test_issued_as_before_it_takes_as_long_as_in_the_file(repository, name):
    """Until the first wait that noticed the last work: the waits after that are the profiler's, which stops."""
    trace = ss.read(repository / f"tests/data/kineto/{name}.json.gz")
    spans = trace.spans
    waits_ns = spans.of_kind([SpanKind.SYNC]).end_ns
    stops_ns = spans.end_ns.max() - waits_ns[waits_ns >= spans.of_kind(DEVICE_KINDS).end_ns.max()].min()
    assert ss.what_if(trace).predicted_ns == pytest.approx(span_ns(spans) - stops_ns, rel=0.05)


def test_what_the_host_did_before_the_first_launch_is_not_predicted():
    builder = SpanBuilder(["thread 1", "stream 7"])
    builder.add(SpanKind.API, "cudaMalloc", "thread 1", 0, 1_000_000)
    builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", 2_000_000, 2_004_000, correlation=0)
    builder.add(SpanKind.KERNEL, "k0", "stream 7", 2_005_000, 2_105_000, correlation=0, blocks=16, threads=128)
    trace = Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto"), Origins(complete=True))
    assert ss.what_if(trace).predicted_ns == pytest.approx(105_000, rel=0.1)


@pytest.mark.parametrize(
    ("names", "lane"),
    [
        (["copy to device", "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD", "MEMORY_COPY_HOST_TO_DEVICE", "CopyHostToDevice"], "copy in"),
        (["copy to host", "Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH", "MEMORY_COPY_DEVICE_TO_HOST", "CopyDeviceToHost"], "copy out"),
        (["copy on device", "Memcpy DtoD (Device -> Device)", "MEMORY_COPY_DEVICE_TO_DEVICE", "copy between devices"], "main"),
    ],
)
@pytest.mark.parametrize("engine", ["async", "graph"])
def test_copies_and_sets_stay_what_they_are_and_run_where_they_belong(names, lane, engine):
    for name in names:
        builder = SpanBuilder(["thread 1", "stream 7"])
        for number, (kind, text) in enumerate([(SpanKind.COPY, name), (SpanKind.SET, "Memset (Device)"), (SpanKind.KERNEL, "k")]):
            at = number * 10_000
            builder.add(SpanKind.LAUNCH, "cudaMemcpyAsync", "thread 1", at, at + 4_000, correlation=number)
            builder.add(kind, text, "stream 7", at + 5_000, at + 9_000, correlation=number, blocks=1, threads=32)
        info = TraceInfo("recorded", "step", DeviceInfo("cuda", "NVIDIA H200"), "cupti")
        spans = ss.what_if(Trace(builder.build(), info, Origins(complete=True)), engine=engine).spans
        device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
        found = {spans.names[spans.name[row]]: (SpanKind(int(spans.kind[row])), spans.lanes[spans.lane[row]]) for row in device.tolist()}
        kinds = {text: kind for text, (kind, _) in found.items()}
        assert kinds == {name: SpanKind.COPY, "Memset (Device)": SpanKind.SET, "k": SpanKind.KERNEL}
        assert (found[name][1] == lane) if lane != "main" else (found[name][1] not in ("copy in", "copy out"))


def blocking_copy(*, waits_after=False):
    """Return kernel, blocking copy to the host, 880 µs of the host's work, kernel."""
    builder = SpanBuilder(["thread 1", "stream 7"])
    builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", 0, 4_000, correlation=0)
    builder.add(SpanKind.KERNEL, "k0", "stream 7", 5_000, 15_000, correlation=0, blocks=16, threads=128)
    builder.add(SpanKind.LAUNCH, "cudaMemcpy", "thread 1", 5_000, 20_000, correlation=1)
    builder.add(SpanKind.COPY, "Memcpy DtoH (Device -> Pageable)", "stream 7", 16_000, 18_000, correlation=1)
    if waits_after:
        builder.add(SpanKind.SYNC, "cudaDeviceSynchronize", "thread 1", 890_000, 892_000)
    builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", 900_000, 904_000, correlation=2)
    builder.add(SpanKind.KERNEL, "k1", "stream 7", 905_000, 915_000, correlation=2, blocks=16, threads=128)
    return Trace(builder.build(), TraceInfo("kineto", "s", DeviceInfo("cuda", "NVIDIA H200"), "kineto"), Origins(complete=True))


@pytest.mark.parametrize(("waits_after", "host_ns"), [(False, 880_000), (True, 878_000)])
def test_the_host_waits_for_a_copy_that_blocks_and_its_work_after_that_stays(waits_after, host_ns):
    trace = blocking_copy(waits_after=waits_after)
    graph = ss.what_if(trace, engine="graph")
    assert graph.spans.of_kind([SpanKind.HOST]).duration_ns.tolist() == [host_ns]
    assert any("the host waits 1 time in the middle" in note for note in graph.info.notes)
    assert ss.what_if(trace).predicted_ns == pytest.approx(915_000, rel=0.02)


@pytest.mark.parametrize(("second", "several"), [((20, 30), True), ((21, 30), False), ((9, 30), False)])
def test_ranges_one_after_the_other_in_which_all_launches_lie_are_steps(second, several):
    """A launch at the start of a range lies in it; in ranges that overlap, and outside of all, there are no steps."""
    builder = SpanBuilder(["thread 1", "thread 1 ranges", "stream 7"])
    for number, (begin_ns, end_ns) in enumerate([(0, 10), second]):
        builder.add(SpanKind.RANGE, "step", "thread 1 ranges", begin_ns, end_ns)
        builder.add(SpanKind.LAUNCH, "launch", "thread 1", 20 * number, 20 * number + 2, correlation=number)
        builder.add(SpanKind.KERNEL, "k", "stream 7", 20 * number + 5, 20 * number + 8, correlation=number)
    trace = Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto"))
    graph = ss.what_if(trace, engine="graph")
    assert any("the trace holds 2 ranges 'step'" in note for note in graph.notes) is several


def test_the_longest_run_that_can_be_measured():
    assert _measured_ns(MOST_NS / 1e3) == MOST_NS
    for measured_us in (MOST_NS / 999, MOST_NS):
        with pytest.raises(TraceError, match="a run cannot take measured_us="):
            _measured_ns(measured_us)


def test_one_range_is_no_several_steps_and_several_were_measured_as_one_run():
    def step(*starts_ns):
        builder = SpanBuilder(["thread 1", "thread 1 ranges", "stream 7"])
        for number, start_ns in enumerate(starts_ns):
            builder.add(SpanKind.RANGE, "step", "thread 1 ranges", start_ns, start_ns + 40)
            builder.add(SpanKind.LAUNCH, "launch", "thread 1", start_ns, start_ns + 2, correlation=number)
            builder.add(SpanKind.KERNEL, "called", "stream 7", start_ns + 5, start_ns + 8, correlation=number)
            builder.add(SpanKind.KERNEL, "uncalled", "stream 7", start_ns + 10, start_ns + 12)
        trace = Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto"))
        return ss.what_if(trace, engine="graph", measured_us=1)

    assert "the run was measured at 1.00 µs" in str(step(0))
    assert "the run of all steps was measured at 1.00 µs" in str(step(0, 50))
    assert GAPS_STAY in step(0, 50).notes  # The note that says how many steps it is of is not the only one.


def test_a_recording_that_a_profiler_stretched_is_told_and_not_compared(repository):
    trace = ss.read(repository / "tests/data/kineto/resnet50_eager.json.gz")
    graph = ss.what_if(trace, engine="graph")
    head = str(graph).splitlines()[0]
    assert head.endswith("predicted; the recorded run took 20.8 ms with the profiler on")
    assert "as fast" not in head
    assert np.isnan(graph.speedup)
    assert graph.to_dict()["speedup"] is None
    assert any(note.startswith("a profiler stretched the recorded run") for note in graph.notes)
    assert set(trace.info.notes) <= set(graph.notes)
    notes = ("the profiler itself took 1.2 µs of host time within the span", "5 records were dropped, so all numbers are lower bounds")
    noted = replace(trace, info=replace(trace.info, notes=notes))
    assert set(notes) <= set(ss.what_if(noted, engine="graph").notes)
    assert "the trace holds 2 ranges 'step': all of them are predicted as one run, and measured_us is the time of all" in graph.notes
    measured = ss.what_if(trace, engine="graph", measured_us=2 * 3118)
    assert measured.speedup == pytest.approx(6_236_000 / graph.predicted_ns)
    assert "the run of all steps was measured at 6.24 ms: 3.6" in str(measured)
    with pytest.raises(TraceError, match="measured_us=-1"):
        ss.what_if(trace, measured_us=-1)


def test_a_supposition_is_compared_with_the_same_prediction_without_it():
    trace = foreign([(7, 0, 10, 50_000), (7, 5, 60, 50_000)])
    graph = ss.what_if(trace, engine="graph")
    faster = graph.kernel("k0", "k1").scale(0.5)
    assert re.search(r"without the change: .*, so the change makes it [0-9,]{5,}\.\d\d times as slow", str(graph.kernel("*").scale(1e6)))
    assert faster.unchanged_ns == graph.predicted_ns
    assert faster.speedup == graph.predicted_ns / faster.predicted_ns
    assert "predicted without the change" in str(faster)


def test_what_is_changed_is_counted_by_its_kind():
    trace = foreign([(7, 0, 10, 5_000), (7, 50, 60, 5_000), (7, 100, 110, 5_000)], copies=[0, 1], syncs=[(62, 70)])
    assert "durations of 1 kernel, 2 copies and 4 calls, and the order on its streams; the cost model" in ss.what_if(trace).notes[0]
    assert ss.what_if(trace).without("copy").scenario.changes == ("without 2 copies",)
    assert ss.what_if(trace).kernel("*").scale(2).scenario.changes == ("3 operations × 2",)  # not what the host does between the graphs
    with pytest.raises(TraceError, match="a name of kernels is missing"):
        ss.what_if(trace).kernel()
    with pytest.raises(TraceError) as error:
        ss.what_if(trace).kernel("emcpy*")
    assert "'*emcpy*'" in error.value.hint


def table_of_spans():
    """Return kernels of 5 µs on two streams, 10 µs apart, without launch calls: by hand, 4 of them, and 35 µs in all."""
    return ss.Trace.from_spans(
        [("gemm", 1, 0, 5_000), ("relu", 2, 10_000, 15_000), ("gemm", 1, 20_000, 25_000), ("relu", 2, 30_000, 35_000)]
    )


def test_a_table_without_a_profiler_is_compared_and_says_nothing_of_one():
    trace = table_of_spans()
    prediction = ss.what_if(trace)
    assert prediction.speedup == pytest.approx(1, rel=0.15)
    assert "profiler on" not in str(prediction)
    assert not any(note.startswith("a profiler stretched") for note in prediction.notes)
    assert any(note.startswith("the times of the table are taken as they are") for note in prediction.notes)
    simulated = replace(trace, info=replace(trace.info, device=DeviceInfo("simulated", "a model")))
    assert "profiler" not in str(ss.what_if(simulated, engine="graph"))


@pytest.mark.parametrize("engine", ["async", "graph", "sync"])
def test_gaps_that_no_launch_call_explains_stay_under_every_engine(engine):
    """Two streams take turns, so each kernel comes 5 µs after the one that had ended; half of gemm is 2.5 µs less, twice."""
    trace = table_of_spans()
    prediction = ss.what_if(trace, engine=engine)
    starts = [start for start, _ in sorted(zip(prediction.spans.of_kind([SpanKind.KERNEL]).start_ns.tolist(), range(4), strict=True))]
    assert min(np.diff(starts)) >= 10_000
    assert prediction.predicted_ns >= 35_000
    assert GAPS_STAY in prediction.notes
    assert "of 4 calls" not in prediction.notes[0]
    assert prediction.kernel("gemm").scale(0.5).predicted_ns == pytest.approx(prediction.predicted_ns - 5_000, abs=4)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9_000), st.integers(1, 9_000)), min_size=1, max_size=12))
def test_without_a_change_a_table_without_launch_calls_is_never_faster(rows):
    """Each row begins so long after the one before it had begun."""
    starts = np.cumsum([after for _, after, _ in rows]).tolist()
    trace = ss.Trace.from_spans([("k", stream, at, at + length) for (stream, _, length), at in zip(rows, starts, strict=True)])
    for engine in ("async", "graph"):
        assert ss.what_if(trace, engine=engine).predicted_ns >= span_ns(trace.spans)


@pytest.mark.parametrize(
    ("name", "pattern", "count"),
    [
        ("resnet50_eager", "aten::batch_norm", 318),
        ("resnet50_eager", "*conv2d*", 106),
        ("streams", "left", 10),
        ("transformer_train", "AddmmBackward0", 12),
        ("transformer_train", "Optimizer.step*", 1),
    ],
)
def test_a_name_of_a_range_means_what_was_launched_in_it(repository, name, pattern, count):
    """The file says the same, read here by itself: calls of one thread that begin within a range, and their correlations."""
    path = repository / f"tests/data/kineto/{name}.json.gz"
    events = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"]
    ranges = [event for event in events if event["cat"] in ("cpu_op", "user_annotation") and fnmatchcase(event["name"], pattern)]
    launched = {
        call["args"]["correlation"]
        for call in events
        if call["cat"] in ("cuda_runtime", "cuda_driver")
        and any(each["tid"] == call["tid"] and each["ts"] <= call["ts"] < each["ts"] + each["dur"] for each in ranges)
    }
    work = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    graph = ss.what_if(ss.read(path), engine="graph")
    assert len(graph.kernel(pattern)) == sum(event["args"]["correlation"] in launched for event in work) == count
    assert len(graph.without(pattern).scenario.tasks) == len(graph.scenario.tasks) - count


def test_ranges_that_overlap_stand_on_lanes_of_their_own_and_count_alike():
    builder = SpanBuilder(["thread 1", "thread 1 ranges", "thread 1 ranges · 2", "thread 2", "thread 2 ranges", "stream 7"])
    ranges = [
        ("a", "thread 1 ranges", 0, 20),
        ("b", "thread 1 ranges · 2", 10, 30),
        ("b", "thread 2 ranges", 31, 40),
        ("c", "thread 1 ranges", 31, 40),
    ]
    for name, lane, start, end in ranges:
        builder.add(SpanKind.RANGE, name, lane, start * 1000, end * 1000)
    for number, (thread, at) in enumerate([(1, 5), (1, 15), (1, 20), (2, 15), (2, 31), (1, 39), (1, 40)]):
        builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", f"thread {thread}", at * 1000, at * 1000 + 500, correlation=number)
        builder.add(SpanKind.KERNEL, "k", "stream 7", 50_000 + number * 1000, 50_900 + number * 1000, correlation=number)
    graph = ss.what_if(Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto")), engine="graph")
    # A call that begins as a range ends is outside.
    assert [len(graph.kernel(name)) for name in "abc"] == [2, 3, 1]


def test_what_is_called_like_a_pattern_goes_before_ranges(repository):
    graph = ss.what_if(ss.read(repository / "tests/data/kineto/resnet50_eager.json.gz"), engine="graph")
    assert len(graph.kernel("*batch_norm*")) == 212 < len(graph.kernel("aten::batch_norm"))
    assert repr(graph.kernel("*batch_norm*")) == "<Kernels '*batch_norm*': 212>"


def test_a_range_without_a_launch_is_told(repository):
    graph = ss.what_if(ss.read(repository / "tests/data/kineto/resnet50_eager.json.gz"), engine="graph")
    with pytest.raises(TraceError) as error:
        graph.kernel("aten::as_strided")
    assert error.value.hint.startswith("nothing was launched in the range 'aten::as_strided'; ")
    assert "what takes longest is" in error.value.hint
