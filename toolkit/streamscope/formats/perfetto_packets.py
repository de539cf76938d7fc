"""Packets of Perfetto's protobuf.

Work on the device is a ``GpuRenderStageEvent`` on the hardware queue of its stream, with its launch's size and the ids of the events that
it waited for, which become arrows. Host calls are slices. A call that put work on the device names it by Perfetto's ``GpuCorrelation``,
which becomes arrows, too. Each counter is a track, markers are instants of one, and your notes instants and slices of others. Times are
those of the trace; where some lie before its zero, all are moved by as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from streamscope.analysis.memory import memories
from streamscope.arrays import Array, IntArray
from streamscope.files import written_whole
from streamscope.formats.kineto.writer import titled
from streamscope.trace.counters import Series
from streamscope.trace.memory import Level
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind
from streamscope.trace.trace import Trace
from streamscope.trace.tracks import Track, launched_by, levels_of, time_before_zero_ns, tracks_of

_AT_ONCE = 4096
"""Packets that are in memory at one time."""
_NEEDS_NAMES = proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
_SEQUENCE = 1
"""All packets are of one sequence, so that names can be given once."""
_PROCESS = 1
"""Number of the process, of the track that stands for it, and of the GPU's context."""
_FIRST_TRACK = 2
_CORRELATION_FIELD = 3000
"""Of ``TrackEvent``: ``GpuTrackEvent.gpu_correlation``, which the package does not know. Its fields are lists of ids of render stages."""
_SUBMITTED, _AWAITED = 1, 2
_MOST_GPUS = 1024
_MOST_SIZE = 2**32 - 1
"""Largest extent of a launch that Perfetto can express."""
_ANNOTATIONS = ("operation", "part", "correlation", "graph_node", "bytes", "flops")
"""Columns that are shown beside a span where they are known."""


def write_packets(trace: Trace, path: Path) -> Path:
    """Write a trace to one file, whole or not at all, and return its path."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        packets = _Packets(trace, file)
        packets.write()
        packets.flush()
    return path


@dataclass
class _Packets:
    """Writes the packets of one trace to a file."""

    trace: Trace
    file: IO[bytes]
    batch: Any = field(default_factory=proto.Trace)

    def add(self, **fields: Any) -> Any:
        """Return a new packet; it is written with those that come after it."""
        if len(self.batch.packet) >= _AT_ONCE:
            self.flush()
        return self.batch.packet.add(trusted_packet_sequence_id=_SEQUENCE, **fields)

    def flush(self) -> None:
        """Write the batch to the file. Perfetto traces behind each other are one trace."""
        self.file.write(self.batch.SerializeToString())
        self.batch.Clear()

    @cached_property
    def shift_ns(self) -> int:
        """Offset of all times in ns: Perfetto has none below zero."""
        return time_before_zero_ns(self.trace)

    @cached_property
    def tracks(self) -> tuple[list[Track], IntArray]:
        """Tracks, and which each span is on."""
        return tracks_of(self.trace.spans)

    @cached_property
    def stages(self) -> tuple[list[tuple[SpanKind, str]], IntArray]:
        """Different kinds of work on the device, each with the kernel's own name, and which each of its spans is."""
        spans, stage = self.trace.spans, np.zeros(len(self.trace.spans), np.int64)
        rows = np.flatnonzero(spans.kind >= SpanKind.KERNEL)
        code = spans.symbol[rows].astype(np.int64) * len(SpanKind) + spans.kind[rows]
        different, stage[rows] = np.unique(code, return_inverse=True)
        pairs = (divmod(code, len(SpanKind)) for code in different.tolist())
        return [(SpanKind(kind), spans.names[symbol] if symbol >= 0 else "") for symbol, kind in pairs], stage

    @cached_property
    def annotations(self) -> dict[int, list[tuple[str, int | str]]]:
        """Debug annotations of spans, by row."""
        spans, found = self.trace.spans, defaultdict[int, list[tuple[str, int | str]]](list)
        for column in _ANNOTATIONS:
            values = getattr(spans, column)
            rows = np.flatnonzero(values >= (0 if column in ("operation", "correlation", "graph_node") else 1))
            for row, value in zip(rows.tolist(), values[rows].tolist(), strict=True):
                found[row].append((column, value))
        for row in np.flatnonzero(spans.basis != Basis.MEASURED).tolist():
            found[row].append(("basis", Basis(spans.basis[row]).name.lower()))
        words = self.trace.origins.words()
        for row in np.flatnonzero(spans.is_kind(DEVICE_KINDS) & (spans.operation >= 0) & (spans.operation < len(words))).tolist():
            found[row] += words[spans.operation[row]].items()
        sites = self.trace.sites
        for row, number in zip(sites.span.tolist(), sites.site.tolist(), strict=True):
            found[row] += sites.sites[number].words().items()
        return found

    @cached_property
    def awaited(self) -> dict[int, list[int]]:
        """Rows on the device that a row waited for."""
        before, after = self.trace.origins.wait_rows(self.trace.spans)
        known = self.trace.spans.is_kind(DEVICE_KINDS)[before]
        return _grouped(before[known], after[known])

    @cached_property
    def submitted(self) -> dict[int, list[int]]:
        """Rows on the device that a call put there."""
        call, device = launched_by(self.trace.spans)
        return _grouped(device, call)

    def write(self) -> None:
        """Write all packets: definitions before their uses."""
        tracks, track = self.tracks
        self._clock()
        self._names(tracks)
        self._descriptors(tracks)
        for index, one in enumerate(tracks):
            rows = np.flatnonzero(track == index)
            if one.device:
                self._work(rows, index, one.gpu)
            else:
                self._calls(rows, index)
        self._counters(len(tracks))
        self._markers(len(tracks))
        self._notes(len(tracks) + 1 + len(self.counted))

    @cached_property
    def counted(self) -> list[tuple[Series, IntArray, Array]]:
        """Counters with their times and values, and the memory of each GPU, by level, as counters."""
        counters = self.trace.counters
        rows_of = [(series, counters.rows_of(number)) for number, series in enumerate(counters.described)]
        found = [(series, counters.time_ns[rows], counters.value[rows]) for series, rows in rows_of]
        held, of_gpu = self.trace.memory, {each.gpu: each for each in memories(self.trace)}
        for level in Level:
            for gpu in np.unique(held.gpu[held.level == level]).tolist():
                curve = of_gpu[gpu].curve(level)
                name = ("memory" if gpu >= 0 else "host memory") + ("" if level is Level.ALLOCATED else " taken from the driver")
                found.append((Series(name, "B", gpu=gpu), np.maximum(curve.time_ns, -self.shift_ns), curve.bytes.astype(np.float64)))
        return found

    def _counters(self, tracks: int) -> None:
        """Write a track for each counter, and its values."""
        for number, (series, times_ns, values) in enumerate(self.counted):
            uuid = _FIRST_TRACK + tracks + 1 + number
            descriptor = self.add().track_descriptor
            descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, _PROCESS, replace(series, unit="").label
            descriptor.sibling_order_rank = tracks + number
            descriptor.counter.SetInParent()
            if series.unit:
                descriptor.counter.unit_name = series.unit
            for time_ns, value in zip((times_ns + self.shift_ns).tolist(), values.tolist(), strict=True):
                event = self.add(timestamp=time_ns, sequence_flags=_NEEDS_NAMES).track_event
                event.type, event.track_uuid, event.double_counter_value = proto.TrackEvent.TYPE_COUNTER, uuid, value

    def _markers(self, tracks: int) -> None:
        """Write markers as instants of a track of their own."""
        found = self.trace.markers
        if not len(found):
            return
        uuid = _FIRST_TRACK + tracks
        descriptor = self.add().track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, _PROCESS, "markers"
        for time_ns, name, thread in zip((found.time_ns + self.shift_ns).tolist(), found.names, found.threads, strict=True):
            event = self.add(timestamp=time_ns, sequence_flags=_NEEDS_NAMES).track_event
            event.type, event.track_uuid, event.name = proto.TrackEvent.TYPE_INSTANT, uuid, name
            if thread:
                event.debug_annotations.add(name="thread", string_value=thread)

    def _notes(self, tracks: int) -> None:
        """Write your notes on times: moments as instants, stretches as slices, on so many tracks that none lies over another."""
        named = set[int]()
        for level, note in levels_of(self.trace.user_notes):
            uuid = _FIRST_TRACK + tracks + level
            if uuid not in named:
                descriptor = self.add().track_descriptor
                descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, _PROCESS, "your notes"
                named.add(uuid)
            times_ns = [self.shift_ns + (time_ns or 0) for time_ns in (note.start_ns, note.end_ns)]
            event = self.add(timestamp=times_ns[0], sequence_flags=_NEEDS_NAMES).track_event
            moment = note.start_ns == note.end_ns
            event.type = proto.TrackEvent.TYPE_INSTANT if moment else proto.TrackEvent.TYPE_SLICE_BEGIN
            event.track_uuid, event.name = uuid, note.text
            if note.lane:
                event.debug_annotations.add(name="lane", string_value=note.lane)
            if not moment:
                self._end(times_ns[1], uuid - _FIRST_TRACK)

    def _clock(self) -> None:
        packet = self.add(timestamp=0)
        packet.clock_snapshot.primary_trace_clock = proto.BUILTIN_CLOCK_BOOTTIME
        packet.clock_snapshot.clocks.add(clock_id=proto.BUILTIN_CLOCK_BOOTTIME, timestamp=0)

    def _names(self, tracks: Sequence[Track]) -> None:
        """Write the packet with the names that later ones call by number: of spans, annotations, queues and stages; and of the GPU."""
        spec = proto.InternedGpuRenderStageSpecification
        device = self.trace.info.device
        packet = self.add(timestamp=0, sequence_flags=proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)
        packet.trace_packet_defaults.timestamp_clock_id = proto.BUILTIN_CLOCK_BOOTTIME
        for gpu in range(1 + min(max(self.trace.gpus, default=0), _MOST_GPUS)):  # Their places are their numbers.
            packet.gpu_info.gpus.add(name=device.of_one(gpu).name)
        data = packet.interned_data
        api = {"cuda": proto.InternedGraphicsContext.CUDA, "hip": proto.InternedGraphicsContext.HIP}
        data.graphics_contexts.add(iid=_PROCESS, pid=_PROCESS, api=api.get(device.kind, proto.InternedGraphicsContext.UNDEFINED))
        for iid, name in enumerate(self.trace.spans.names, 1):
            data.event_names.add(iid=iid, name=name)
        for iid, name in enumerate((*_ANNOTATIONS, "basis"), 1):
            data.debug_annotation_names.add(iid=iid, name=name)
        for iid, track in enumerate(tracks, 1):
            if track.device:
                data.gpu_specifications.add(iid=iid, name=track.label)
        for iid, (kind, symbol) in enumerate(self.stages[0], 1 + len(tracks)):
            category = spec.COMPUTE if kind == SpanKind.KERNEL else spec.OTHER
            data.gpu_specifications.add(iid=iid, name=kind.name.lower(), description=symbol, category=category)

    def _descriptors(self, tracks: Sequence[Track]) -> None:
        """Write the packets that name the process and the tracks of the host."""
        info = self.trace.info
        whole = (f"note: {note.text}" for note in self.trace.user_notes if note.start_ns is None)
        descriptor = self.add().track_descriptor
        descriptor.uuid, descriptor.description = _PROCESS, "\n".join((f"recorded by: {info.recorder}", *info.notes, *whole))
        descriptor.child_ordering = proto.TrackDescriptor.EXPLICIT
        descriptor.process.pid, descriptor.process.process_name = _PROCESS, titled(self.trace)
        if info.device.simulated:
            descriptor.process.process_labels.append("simulated times")
        for index, track in enumerate(tracks):
            if not track.device:
                descriptor = self.add().track_descriptor
                descriptor.uuid, descriptor.parent_uuid, descriptor.name = _FIRST_TRACK + index, _PROCESS, track.label
                descriptor.sibling_order_rank = index

    def _calls(self, rows: IntArray, index: int) -> None:
        """Write the beginnings and ends of a host track's slices, in their order."""
        spans, numbers = self.trace.spans, {name: iid for iid, name in enumerate((*_ANNOTATIONS, "basis"), 1)}
        rows = rows[np.lexsort((-spans.end_ns[rows], spans.start_ns[rows]))]
        columns = (rows, spans.name[rows], spans.start_ns[rows] + self.shift_ns, spans.end_ns[rows] + self.shift_ns)
        around: list[int] = []
        for row, name, start, end in zip(*(column.tolist() for column in columns), strict=True):
            while around and around[-1] <= start:
                self._end(around.pop(), index)
            event = self.add(timestamp=start, sequence_flags=_NEEDS_NAMES).track_event
            event.type, event.track_uuid, event.name_iid = proto.TrackEvent.TYPE_SLICE_BEGIN, _FIRST_TRACK + index, name + 1
            for column, value in self.annotations.get(row, ()):
                if isinstance(value, str):
                    event.debug_annotations.add(name_iid=numbers[column], string_value=value)
                else:
                    event.debug_annotations.add(name_iid=numbers[column], int_value=value)
            for number, others in ((_SUBMITTED, self.submitted.get(row)), (_AWAITED, self.awaited.get(row))):
                if others:
                    event.MergeFromString(_correlation(number, others))
            around.append(end)
        while around:
            self._end(around.pop(), index)

    def _end(self, time_ns: int, index: int) -> None:
        event = self.add(timestamp=time_ns, sequence_flags=_NEEDS_NAMES).track_event
        event.type, event.track_uuid = proto.TrackEvent.TYPE_SLICE_END, _FIRST_TRACK + index

    def _work(self, rows: IntArray, index: int, gpu: int) -> None:
        """Write the render stages of a stream."""
        spans = self.trace.spans
        columns = (
            rows, spans.name[rows], spans.start_ns[rows] + self.shift_ns, spans.duration_ns[rows],
            self.stages[1][rows], spans.blocks[rows], spans.threads[rows],
        )  # fmt: skip
        for row, name, start, length, stage, blocks, threads in zip(*(column.tolist() for column in columns), strict=True):
            event = self.add(timestamp=start, sequence_flags=_NEEDS_NAMES).gpu_render_stage_event
            event.event_id, event.duration, event.name_iid = row + 1, length, name + 1
            event.gpu_id, event.context, event.hw_queue_iid, event.stage_iid = gpu, _PROCESS, index + 1, 1 + len(self.tracks[0]) + stage
            if 0 < blocks <= _MOST_SIZE:
                event.launch.grid_size.x = blocks
            if threads:
                event.launch.workgroup_size.x = threads
            for column, value in self.annotations.get(row, ()):
                event.extra_data.add(name=column, value=str(value))
            event.event_wait_ids.extend(other + 1 for other in self.awaited.get(row, ()))


def _grouped(values: IntArray, keys: IntArray) -> dict[int, list[int]]:
    found = defaultdict[int, list[int]](list)
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        found[key].append(value)
    return found


def _correlation(field: int, rows: Sequence[int]) -> bytes:
    """Return a ``GpuCorrelation`` with the ids of some rows, as the field of a ``TrackEvent``."""
    ids = b"".join(_varint(field << 3) + _varint(row + 1) for row in rows)
    return _varint(_CORRELATION_FIELD << 3 | 2) + _varint(len(ids)) + ids


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))
