"""The model replays a recording of code that is not ours to the nanosecond, and faster kernels never make a prediction slower."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis.overlap import run_of
from streamscope.cli.main import main
from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo, Origins, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope.trace.spans import DEVICE_KINDS

DATA = Path(__file__).resolve().parents[1] / "data"
SEEDS = (38, 51, 109)
KINDS = {"kernel": SpanKind.KERNEL, "Memcpy HtoD (Pinned -> Device)": SpanKind.COPY, "Memset (Device)": SpanKind.SET}

works = st.fixed_dictionaries({
    "name": st.sampled_from(["kernel"] * 4 + list(KINDS)),
    "stream": st.integers(0, 3),
    "thread": st.integers(1, 2),
    "host_ns": st.integers(0, 30_000),  # what the host does before the call
    "call_ns": st.integers(500, 15_000),
    "latency_ns": st.integers(1_500, 20_000),
    "takes_ns": st.sampled_from([1_000, 7_001, 60_000]) | st.integers(500, 40_000),
    "gap_ns": st.integers(0, 2_000),
    "waits_ns": st.sampled_from([0, 0, 0, 12_000, 250_000]),  # for what nobody knows
    "after": st.none() | st.integers(0, 11),
    "blocks": st.sampled_from([1, 40, 200]),
    "graph": st.booleans(),
    "sync": st.sampled_from([False, False, False, True]),
})  # fmt: skip


@st.composite
def foreign(draw, most=12):
    """A run as a profiler records it: threads, streams, graphs, event waits, host waits, and waits that nothing explains."""
    rows, complete, builder = draw(st.lists(works, min_size=1, max_size=most)), draw(st.booleans()), Recording()
    for number, work in enumerate(rows):
        builder.launch(number, **work)
    return builder.trace(complete=complete)


class Recording:
    """Times of a run that are possible on a GPU, from the first call on."""

    def __init__(self):
        self.builder = SpanBuilder(["thread 1", "thread 2", *(f"stream {stream}" for stream in range(4))])
        self.host_ns, self.free_ns, self.end_ns, self.waits, self.graph = {1: 0, 2: 0}, dict.fromkeys(range(4), 0), [], [], None

    def launch(self, number, name, stream, thread, host_ns, call_ns, latency_ns, takes_ns, gap_ns, waits_ns, after, blocks, graph, sync):
        lane = f"thread {thread}"
        if not graph or self.graph is None:  # Else it is one more node of the graph that was launched last.
            called_ns = self.host_ns[thread] + host_ns
            self.host_ns[thread] = called_ns + call_ns
            kind = SpanKind.GRAPH_LAUNCH if graph else SpanKind.LAUNCH
            self.builder.add(kind, "launch", lane, called_ns, called_ns + call_ns, correlation=number)
            self.graph = (number, called_ns) if graph else None
        correlation, called_ns = self.graph or (number, called_ns)
        ready_ns = [called_ns + latency_ns, self.free_ns[stream] + gap_ns if self.free_ns[stream] else 0]
        if after is not None and after < number and not graph:
            ready_ns.append(self.end_ns[after] + gap_ns)
            self.waits.append((after, number))
        start_ns = max(ready_ns) + waits_ns
        self.free_ns[stream] = start_ns + takes_ns
        self.end_ns.append(start_ns + takes_ns)
        more = {"graph_node": number} if graph else {}
        self.builder.add(
            KINDS[name], name if name != "kernel" else f"k{number}", f"stream {stream}", start_ns, start_ns + takes_ns,
            correlation=correlation, blocks=blocks, threads=256, **more,
        )  # fmt: skip
        if sync:
            back_ns = max(self.host_ns[thread], *self.end_ns) + 3_000
            self.builder.add(SpanKind.SYNC, "cudaDeviceSynchronize", lane, self.host_ns[thread], back_ns)
            self.host_ns[thread], self.graph = back_ns, None

    def trace(self, *, complete):
        spans = self.builder.build()
        device = np.flatnonzero(spans.is_kind(DEVICE_KINDS)).tolist()
        row_of = {(int(spans.start_ns[row]), int(spans.end_ns[row]), spans.lanes[spans.lane[row]]): row for row in device}
        ends = {end_ns: row for (_, end_ns, _), row in row_of.items()}
        pairs = [(ends[self.end_ns[earlier]], ends[self.end_ns[later]]) for earlier, later in self.waits] if complete else []
        pairs = [pair for pair in pairs if spans.end_ns[pair[0]] <= spans.start_ns[pair[1]]]  # Two may end at one time.
        info = TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto")
        return Trace(spans, info, Origins(complete=complete, row_waits=np.array(pairs, np.int32).reshape(-1, 2)))


def device_times(trace):
    spans = trace.spans.of_kind(DEVICE_KINDS)
    zero_ns = run_of(trace.spans).start_ns.min()
    return sorted(zip((spans.start_ns - zero_ns).tolist(), (spans.end_ns - zero_ns).tolist(), strict=True))


@settings(max_examples=30, deadline=None)
@given(foreign())
def test_the_model_replays_a_recording_to_the_nanosecond(trace):
    found = ss.what_if(trace)
    assert device_times(found) == device_times(trace)
    assert found.predicted_ns == found.replay_ns == found.recorded_ns


@settings(max_examples=12, deadline=None)
@given(foreign(), st.sampled_from([0.2, 1]), st.integers(0, 2**16))
def test_without_launch_calls_it_is_replayed_to_the_microsecond(trace, share, seed):
    spans, random = trace.spans, np.random.default_rng(seed)
    lost = spans.is_kind(DEVICE_KINDS) & (random.random(len(spans)) < share)
    without = replace(trace, spans=replace(spans, correlation=np.where(lost, -1, spans.correlation)))
    found = ss.what_if(without)
    assert found.replay_ns == pytest.approx(found.recorded_ns, abs=2_000)


@settings(max_examples=25, deadline=None)
@given(foreign(), st.sampled_from(["async", "graph", "sync"]), st.sampled_from(["*", "k*", "k1", "Memcpy*"]), st.data())
def test_faster_kernels_never_make_it_slower(trace, engine, pattern, data):
    prediction = ss.what_if(trace, engine=engine)
    try:
        kernels = prediction.kernel(pattern)
    except TraceError:
        return
    factors = sorted(data.draw(st.lists(st.sampled_from([0.001, 0.1, 0.3, 0.5, 0.9, 1.0]), min_size=2, max_size=2)))
    less_ns, more_ns = (kernels.scale(factor).predicted_ns for factor in factors)
    assert less_ns <= more_ns <= prediction.predicted_ns
    assert kernels.scale(1.5).predicted_ns >= prediction.predicted_ns


def crowded(seed):
    """Return kernels of one thread on four streams, called faster than they run."""
    random, recording = Random(seed), Recording()
    for number in range(random.randint(8, 30)):
        after = random.randrange(number) if number and random.random() < 0.3 else None
        recording.launch(
            number, name="kernel", stream=random.randrange(4), thread=1, host_ns=random.randint(0, 5_000), call_ns=3_000, latency_ns=4_000,
            takes_ns=int(10 ** random.uniform(3, 5)), gap_ns=1_000, waits_ns=0, after=after, blocks=random.choice([20, 60, 130, 300]),
            graph=False, sync=False,
        )  # fmt: skip
    return recording.trace(complete=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kernel_that_ends_earlier_holds_up_no_other(seed):
    """Simulated anew, one of them that takes less made the run under a graph longer: another one was then beside a third."""
    prediction = ss.what_if(crowded(seed), engine="graph")
    for number in range(8):
        half, without = prediction.kernel(f"k{number}").scale(0.5), prediction.without(f"k{number}")
        assert without.predicted_ns <= half.predicted_ns <= prediction.predicted_ns
        assert len(without.spans.of_kind(DEVICE_KINDS)) == len(prediction.spans.of_kind(DEVICE_KINDS)) - 1
        again = half.without(f"k{number}")
        assert again.predicted_ns == without.predicted_ns


@pytest.mark.parametrize("name", ["resnet50_eager", "resnet50_graph", "streams", "streams_cuda_only", "streams_graph", "transformer_train"])
def test_real_files_are_replayed_to_the_nanosecond(name):
    trace = ss.read(DATA / f"kineto/{name}.json.gz")
    found = ss.what_if(trace)
    assert device_times(found) == device_times(trace)
    assert found.predicted_ns == found.replay_ns == found.recorded_ns


def test_kernels_that_overlap_on_their_stream_are_replayed():
    trace = ss.read(DATA / "issue31/pdl_overlap.json")
    found = ss.what_if(trace)
    assert device_times(found) == device_times(trace)
    assert found.kernel("*").scale(0.5).predicted_ns < found.predicted_ns


def test_waits_that_nothing_explains_stay_under_every_engine_unless_they_are_left_out():
    trace = ss.read(DATA / "issue31/launched_early_ran_late.json")
    for engine in ("async", "graph", "sync"):
        kept = ss.what_if(trace, engine=engine)
        assert 463_000_000 < kept.predicted_ns < 463_500_000
        assert any(note.startswith("1 wait of 30 µs or more, 463 ms in all, stay as long") for note in kept.notes)
        assert ss.what_if(trace, engine=engine, waits=False).predicted_ns < 100_000
        assert kept.what_if(waits=False).predicted_ns < 100_000
    # Without the wait, the model takes far less for the run than it took: it says so.
    without = ss.what_if(trace, waits=False)
    assert without.replay_ns == without.predicted_ns
    assert without.notes[1].endswith("of 463 ms: that is 100 % off, so what it predicts may be as far off")


def test_a_prediction_tells_how_well_the_model_replays_the_recording():
    function, inputs = ss.workload("branches").build()
    trace = ss.compare(function, *inputs, engines=["graph"], device="simulated", progress=False)["graph"].trace
    found = ss.what_if(trace, engine="async")
    assert found.replay_ns == pytest.approx(found.recorded_ns, rel=0.001)
    assert found.notes[1] == "the model replays the recording in 46.1 µs of 46.1 µs"
    assert found.notes[1] in str(found)
    longer = replace(trace, info=replace(trace.info, ledger={"unrecorded_ns": 1.2 * found.recorded_ns}))
    assert ss.what_if(longer).notes[1] == (
        "the model replays the recording in 46.1 µs of 55.4 µs: that is 17 % off, so what it predicts may be as far off"
    )


def test_the_command_tells_it_too(tmp_path, capsys):
    path = str(DATA / "issue31/launched_early_ran_late.json")
    assert main(["what-if", path, "--engine", "graph"]) == 0
    assert "the model replays the recording in 463 ms of 463 ms" in capsys.readouterr().out
    assert main(["what-if", path, "--engine", "graph", "--no-waits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recorded_us"] == 463_315
    assert found["replay_us"] < 100
    assert found["notes"][1].startswith("the model replays the recording in ")


@pytest.mark.parametrize("factor", [1e15, 10**400, 1e6 + 1, float("inf"), float("nan"), 0, -1, "2"])
def test_factors_that_no_kernel_can_have_are_refused_by_name(factor):
    trace = ss.read(DATA / "kineto/streams.json.gz")
    for engine in ("async", "graph"):
        with pytest.raises(TraceError, match=r"^kernels cannot take .{1,40} times as long") as error:
            ss.what_if(trace, engine=engine).kernel("*").scale(factor)
        assert "1,000,000" in error.value.hint


def test_factors_are_bounded_together_and_by_the_time_that_a_run_may_take():
    trace = ss.read(DATA / "kineto/streams.json.gz")
    assert ss.what_if(trace).kernel("*").scale(1e6).predicted_ns > 4e11
    with pytest.raises(TraceError, match="cannot take 10,000,000,000 times as long"):
        ss.what_if(trace).kernel("*").scale(1e5).kernel("*").scale(1e5)
    long = ss.Trace.from_spans([("a", 1, 2 * second * 10**9, (2 * second + 1) * 10**9) for second in range(10)])
    with pytest.raises(TraceError, match="would take up to 10,000,009 s with kernels 1e"):
        ss.what_if(long).kernel("a").scale(1e6)
    with pytest.raises(TraceError, match="measured_us=1e"):
        ss.what_if(trace, measured_us=1e300)


def test_factors_of_the_command_line_that_are_too_large_together_are_refused_with_a_hint(capsys):
    assert main(["what-if", str(DATA / "kineto/streams.json.gz"), "--scale", "*=1e6", "--scale", "*=10"]) == 1
    error = capsys.readouterr().err
    assert "kernels cannot take 10,000,000 times as long" in error
    assert "1,000,000 times is the most" in error
