"""Traces as Perfetto's protobuf, read back with Perfetto's own messages."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
from tests.formats.test_parquet import traces

from streamscope.errors import OutputError
from streamscope.trace import Basis, DeviceInfo, LaunchSites, Origins, Site, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope.trace.spans import HOST_KINDS

INFO = TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"), notes=("one note",))
BEGIN, END = proto.TrackEvent.TYPE_SLICE_BEGIN, proto.TrackEvent.TYPE_SLICE_END


def trace_of(lanes, add, info=INFO, origins=None):
    builder = SpanBuilder(lanes)
    add(builder.add)
    return Trace(builder.build(), info, origins or Origins())


def small(add):
    """A launch with its kernel, a graph of a copy and a kernel on two streams, and a host function inside a range."""
    add(SpanKind.LAUNCH, "launch relu", "host", 0, 3_000, operation=0, correlation=4)
    add(SpanKind.KERNEL, "relu", "main", 5_000, 6_500, operation=0, correlation=4, blocks=132, threads=256, nbytes=1024, symbol="relu_fp32")
    add(SpanKind.GRAPH_LAUNCH, "launch graph", "host", 4_001, 6_001, correlation=7)
    add(SpanKind.COPY, "x", "aux", 8_000, 9_000, operation=1, correlation=7, graph_node=12)
    add(SpanKind.KERNEL, "matmul", "main", 9_500, 12_000, operation=2, correlation=7, basis=Basis.PLACED, graph_node=11)
    add(SpanKind.RANGE, "step", "host", 12_000, 20_000)
    add(SpanKind.HOST, "mean", "host", 12_000, 15_000, operation=3)


class Written:
    """What a file holds, with its names in the place of their numbers."""

    def __init__(self, trace, tmp_path):
        self.packets = list(proto.Trace.FromString(trace.to_perfetto(tmp_path / "t.pftrace").read_bytes()).packet)
        (data,) = (packet.interned_data for packet in self.packets if packet.HasField("interned_data"))
        self.events = {one.iid: one.name for one in data.event_names}
        self.annotations = {one.iid: one.name for one in data.debug_annotation_names}
        self.specifications = {one.iid: one for one in data.gpu_specifications}
        self.context = data.graphics_contexts[0]
        self.tracks = {p.track_descriptor.uuid: p.track_descriptor for p in self.packets if p.HasField("track_descriptor")}

    def stages(self):
        return [(p.timestamp, p.gpu_render_stage_event) for p in self.packets if p.HasField("gpu_render_stage_event")]

    def slices(self):
        """Return name, start, end, depth and event of each slice, by track, as a reader that keeps a stack sees them."""
        found, open_slices = defaultdict(list), defaultdict(list)
        for packet in self.packets:
            if not packet.HasField("track_event"):
                continue
            event, stack = packet.track_event, open_slices[packet.track_event.track_uuid]
            if event.type == BEGIN:
                stack.append((self.events[event.name_iid], packet.timestamp, event))
            else:
                assert event.type == END
                name, start, begun = stack.pop()
                found[event.track_uuid].append((name, start, packet.timestamp, len(stack), begun))
        assert not any(open_slices.values())
        return found


def correlation(event):
    """Decode the extension that Perfetto's package has no message for: bytes that are small enough to have one byte a number."""
    content = event.SerializeToString()
    tag = bytes([0xC2, 0xBB, 0x01])  # field 3000 with a length
    if tag not in content:
        return {}
    length = content[content.index(tag) + 3]
    body = content[content.index(tag) + 4 :][:length]
    found = defaultdict(list)
    for field, number in zip(body[::2], body[1::2], strict=True):
        found[field >> 3].append(number)
    return dict(found)


def test_a_kernel_is_a_render_stage_with_its_launch(tmp_path):
    written = Written(trace_of(["host", "main", "aux"], small), tmp_path)
    stages = {written.events[stage.name_iid]: (start, stage) for start, stage in written.stages()}
    start, stage = stages["relu"]
    assert (start, stage.duration) == (5_000, 1_500)
    assert written.specifications[stage.hw_queue_iid].name == "main"
    kind = written.specifications[stage.stage_iid]
    assert (kind.name, kind.description, kind.category) == ("kernel", "relu_fp32", proto.InternedGpuRenderStageSpecification.COMPUTE)
    assert (stage.launch.grid_size.x, stage.launch.workgroup_size.x) == (132, 256)
    assert {one.name: one.value for one in stage.extra_data} == {"operation": "0", "correlation": "4", "bytes": "1024"}
    assert (stage.context, written.context.iid, written.context.api) == (1, 1, proto.InternedGraphicsContext.CUDA)
    _, copy = stages["x"]
    assert written.specifications[copy.stage_iid].name == "copy"
    assert not copy.HasField("launch")
    _, placed = stages["matmul"]
    assert {one.name: one.value for one in placed.extra_data} == {
        "operation": "2", "correlation": "7", "graph_node": "11", "basis": "placed"
    }  # fmt: skip


def test_a_kernel_says_where_it_was_launched(tmp_path):
    sites = LaunchSites(
        np.array([2, 4]), np.array([0, 1]), (Site("step", "train.py", 3, "Net_0"), Site("forward", "model.py", 7, defined=True))
    )
    trace = replace(trace_of(["host", "main", "aux"], small), sites=sites)
    said = {int(stage.event_id): {one.name: one.value for one in stage.extra_data} for _, stage in Written(trace, tmp_path).stages()}
    assert said[3].items() >= {"line": "train.py:3", "function": "step", "module": "Net_0"}.items()
    assert said[5].items() >= {"defined at": "model.py:7", "function": "forward"}.items()


def test_calls_are_slices_that_nest_and_lead_to_what_they_launched(tmp_path):
    written = Written(trace_of(["host", "main", "aux"], small), tmp_path)
    ((track, slices),) = written.slices().items()
    assert written.tracks[track].name == "host"
    assert sorted((start, end, depth, name) for name, start, end, depth, _ in slices) == [
        (0, 3_000, 0, "launch relu"), (4_001, 6_001, 0, "launch graph"), (12_000, 15_000, 1, "mean"), (12_000, 20_000, 0, "step"),
    ]  # fmt: skip
    ids = {written.events[stage.name_iid]: stage.event_id for _, stage in written.stages()}
    leads = {name: correlation(event) for name, _, _, _, event in slices}
    assert leads == {"launch relu": {1: [ids["relu"]]}, "launch graph": {1: [ids["x"], ids["matmul"]]}, "mean": {}, "step": {}}
    assert len(set(ids.values())) == 3
    shown = {written.annotations[one.name_iid]: one.int_value for one in slices[0][-1].debug_annotations}
    assert shown == {"operation": 0, "correlation": 4}


def test_waits_are_ids_of_what_was_waited_for(tmp_path):
    """The kernel of operation 2 waited for the copy of operation 1, and the host function 3 for that kernel."""
    origins = Origins(waits=np.array([[1, 0, 2, 0], [2, 0, 3, 0]]))
    written = Written(trace_of(["host", "main", "aux"], small, origins=origins), tmp_path)
    stages = {written.events[stage.name_iid]: stage for _, stage in written.stages()}
    assert {name: list(stage.event_wait_ids) for name, stage in stages.items()} == {
        "relu": [], "x": [], "matmul": [stages["x"].event_id]
    }  # fmt: skip
    (mean,) = (event for slices in written.slices().values() for name, *_, event in slices if name == "mean")
    assert correlation(mean) == {2: [stages["matmul"].event_id]}


def test_the_clock_begins_at_the_traces_zero(tmp_path):
    written = Written(trace_of(["host", "main", "aux"], small), tmp_path)
    clock = written.packets[0].clock_snapshot
    assert [(one.clock_id, one.timestamp) for one in clock.clocks] == [(clock.primary_trace_clock, 0)]
    assert {packet.trusted_packet_sequence_id for packet in written.packets} == {1}
    assert [packet.sequence_flags for packet in written.packets if packet.HasField("interned_data")] == [1]

    def early(add):
        add(SpanKind.HOST, "early", "host", -2_000, -500)
        add(SpanKind.HOST, "late", "host", 0, 1_000)

    ((_, moved),) = Written(trace_of(["host"], early), tmp_path).slices().items()
    assert [(name, start, end) for name, start, end, _, _ in moved] == [("early", 0, 1_500), ("late", 2_000, 3_000)]


def test_simulated_times_are_called_so(tmp_path):
    process = Written(trace_of(["host", "main", "aux"], small), tmp_path).tracks[1]
    assert (process.process.process_name, list(process.process.process_labels)) == ("step · async", [])
    assert process.description == "recorded by: events\none note"
    info = replace(INFO, device=DeviceInfo("simulated", "simulated NVIDIA H200"))
    written = Written(trace_of(["host", "main", "aux"], small, info), tmp_path)
    assert written.tracks[1].process.process_name == "step · async (simulated times)"
    assert list(written.tracks[1].process.process_labels) == ["simulated times"]
    assert [gpu.name for packet in written.packets for gpu in packet.gpu_info.gpus] == ["simulated NVIDIA H200"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(original=traces())
def test_any_trace_can_be_drawn(tmp_path, original):
    """Every span is there once, with its times, on its lane; slices of a track nest; stages of a queue are apart, but for graphs."""
    spans, written = original.spans, Written(original, tmp_path)
    shift = max(0, -int(spans.start_ns.min(initial=0)))
    wanted = sorted(
        (spans.lanes[lane], spans.names[name], start + shift, end + shift)
        for lane, name, start, end in zip(*(getattr(spans, c).tolist() for c in ("lane", "name", "start_ns", "end_ns")), strict=True)
    )
    found, queues = [], defaultdict(list)
    host = {spans.names[name] for name in spans.name[spans.is_kind(HOST_KINDS)]}
    for track, slices in written.slices().items():
        lane = written.tracks[track].name
        found += [(lane, name, start, end) for name, start, end, _, _ in slices]
        assert {name for name, *_ in slices} <= host
    for start, stage in written.stages():
        queue = written.specifications[stage.hw_queue_iid].name
        found.append((queue, written.events[stage.name_iid], start, start + stage.duration))
        if written.specifications[stage.stage_iid].name != "graph":
            queues[stage.hw_queue_iid].append((start, start + stage.duration))
    spilled = [(lane.rsplit(" · ", 1)[0] if lane not in spans.lanes else lane, *rest) for lane, *rest in found]
    assert sorted(spilled) == wanted
    for times in queues.values():
        ordered = sorted(times)
        assert all(end <= start for (_, end), (start, _) in pairwise(ordered))


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(OutputError, match=r"its name ends with '.json'") as raised:
        trace_of(["host", "main", "aux"], small).to_perfetto(tmp_path / "t.json")
    assert raised.value.hint == "use .pftrace or .perfetto-trace"


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto.protos", None)
    with pytest.raises(OutputError, match=r"cannot write .*t\.pftrace: .*perfetto") as raised:
        trace_of(["host", "main", "aux"], small).to_perfetto(tmp_path / "t.pftrace")
    assert raised.value.hint == 'pip install "perfetto>=0.56"'
    assert list(tmp_path.iterdir()) == []
