"""The last seconds of a recording: older buffers are dropped as others come back, and nothing that is left seems to be missing."""

from __future__ import annotations

import ctypes
import signal
import sys
from _thread import interrupt_main

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recording.fake_cupti import ActivityKind, Runtime, call, launch, record, rows, text
from tests.recording.test_recorded_trace import table

import streamscope as ss
from streamscope.errors import RecordingError, RecordingWarning
from streamscope.recording import counting
from streamscope.recording import subscription as subscribing
from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.counting import Heard
from streamscope.recording.pauses import Piece, said_without_pauses
from streamscope.recording.ring import launched_since, needed
from streamscope.trace.spans import SpanKind

LAST = 1e-6
"""Seconds: ten launches of the library of Python."""


def launches(library, first, count):
    """Append launches, and let full buffers come back, as CUPTI does by itself."""
    for correlation in range(first, first + count):
        launch(library, correlation=correlation)
        library.cuptiActivityFlushAll(0)


def test_memory_stays_bounded_and_the_last_launches_are_there(library):
    most = 0
    with ss.record("step", last=LAST) as recording:
        for first in range(1, 401, 10):
            launches(library, first, 10)
            most = max(most, len(library.subscription._filled))
            assert library.subscription._filled.keys() == library.subscription._done_ns.keys()
    assert most <= 12
    assert not library.subscription._filled
    trace = recording.trace
    kernels, calls = rows(trace, SpanKind.KERNEL), rows(trace, SpanKind.LAUNCH)
    assert calls.correlation.tolist() == kernels.correlation.tolist()
    assert calls.correlation.tolist()[-1] == 400
    assert 7 <= len(calls) <= 10
    assert calls.start_ns.min() >= 0
    assert trace.info.ledger["recorded_ns"] == 1_000
    (note,) = trace.info.notes
    assert note.startswith("only the last 1.00 µs are kept: launched before is dropped")
    missing = ss.analysis.missing_records(trace.spans)
    assert (missing.calls, missing.device) == (0, 0)


def test_a_recording_that_is_shorter_is_whole(library):
    with ss.record(last=60.0) as recording:
        launches(library, 1, 20)
    assert recording.trace.info.notes == ()
    assert recording.trace.info.ledger["whole_from_ns"] == 0
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 20


def test_without_last_the_ledger_says_nothing_of_it(library):
    with ss.record() as recording:
        launch(library, correlation=1)
    assert "whole_from_ns" not in recording.trace.info.ledger


def test_kernels_and_calls_that_the_edge_cuts_are_told_and_not_missing(library):
    with ss.record(last=LAST) as recording:
        launch(library, correlation=1)
        begun = library.now
        # A call and a kernel that last over the edge, and the node of a graph that was launched before it and runs behind it.
        library.records += [
            record(ActivityKind.RUNTIME, cbid=10, start=begun, end=begun + 900, thread_id=12, correlation_id=2),
            record(ActivityKind.RUNTIME, cbid=2, start=begun, end=begun + 5, thread_id=11, correlation_id=3),
            *(
                record(ActivityKind.CONCURRENT_KERNEL, start=begun + at, end=begun + at + 300, correlation_id=3, graph_node_id=node,
                       stream_id=9, name=text(b"node"), grid_x=1, grid_y=1, grid_z=1, block_x=1, block_y=1, block_z=1)
                for node, at in ((1, 10), (2, 700))
            ),
        ]  # fmt: skip
        library.now = begun + 650
        launches(library, 4, 7)
    trace = recording.trace
    (note,) = trace.info.notes
    assert "1 kernel, copy or set and 1 call that began earlier and ended later left out" in note
    edge = begun + 1_000 - trace.info.ledger["whole_from_ns"]  # the last node ends at begun + 1,000
    assert begun + 310 < edge < begun + 700
    assert "GPUs are whole from" in note
    assert sorted(rows(trace, SpanKind.KERNEL).correlation) == list(range(4, 11))
    missing = ss.analysis.missing_records(trace.spans)
    assert (missing.calls, missing.device) == (0, 0)
    assert ss.analysis.incomplete_replays(trace.spans) == 0


def test_a_lost_kernel_is_still_told(library):
    recording = ss.record(last=LAST)

    def lost():
        with recording:
            launches(library, 1, 30)
            launch(library, correlation=31, kernel=False)

    with pytest.warns(RecordingWarning, match="not whole"):
        lost()
    assert any("1 launch call without" in note for note in recording.trace.info.notes)


def test_pauses_do_not_count_and_older_pieces_are_let_go(library):
    with ss.record(last=LAST) as recording:
        for _ in range(40):
            launches(library, 1, 3)
            recording.pause()
            assert len(recording._pieces) <= 5
            library.now += 5_000_000
            recording.resume()
        launches(library, 1, 2)
    trace = recording.trace
    assert trace.info.ledger["recorded_ns"] == 1_000
    assert 5 <= len(rows(trace, SpanKind.KERNEL)) <= 9
    assert rows(trace, SpanKind.KERNEL, SpanKind.LAUNCH).end_ns.max() <= 1_000
    (cut,) = [note for note in trace.info.notes if note.startswith("cut out: ")]
    pauses = int(cut.split()[2])
    assert 2 <= pauses <= 4
    assert f"{5 * pauses}.0 ms together" in cut


def test_markers_of_before_are_left_out_and_counters_begin_with_their_value():
    counter, pieces = ss.counter("loss"), []
    for start in (0, 1_000):  # with a pause of 900 ns between them
        heard = Heard(int)
        heard.values = [(start + at, counter, at, False) for at in (10, 60, 90)]
        heard.moments = [(start + at, f"at {at}", 1) for at in (20, 70)]
        pieces.append(Piece(ActivityRecords(), start, start + 100, start + 100, heard))
    for since, values, markers in ((0, [10, 60, 90] * 2, 4), (60, [10, 60, 90, 10, 60, 90], 3), (165, [60, 90], 1), (180, [60, 90], 0)):
        counters, found = said_without_pauses(pieces, since).tables(0, [])
        assert counters.value.tolist() == values
        assert len(found) == markers
        assert (counters.time_ns >= since).all()


def test_nothing_in_the_last_seconds_is_told(library):
    with ss.record(last=LAST) as recording:
        launches(library, 1, 5)
        library.now += 10_000
    with pytest.raises(RecordingError, match="nothing ran on a GPU") as raised:
        _ = recording.trace
    assert "only the last" in raised.value.hint


def test_payloads_of_ranges_in_dropped_buffers_are_freed_once(library, monkeypatch):
    freed = []
    monkeypatch.setattr(subscribing, "_payload_at", lambda address: freed.append(address) or b"")
    with ss.record(last=LAST):
        for number in range(1, 41):
            library.records.append(
                record(ActivityKind.MARKER_DATA, id=number, payload_kind=6, payload=(10_000 + number,))
            )  # fmt: skip
            launches(library, number, 1)
        dropped = list(freed)
    assert 25 <= len(dropped) < 40
    assert sorted(freed) == [10_000 + number for number in range(1, 41)]


def test_a_failure_while_payloads_are_freed_loses_no_other_record(library, monkeypatch):
    monkeypatch.setattr(library.subscription, "_free_payloads", lambda content: 1 / 0)
    with ss.record(last=LAST) as recording:
        launches(library, 1, 50)
    assert rows(recording.trace, SpanKind.KERNEL).correlation.max() == 50


@pytest.mark.parametrize("where", range(0, 60, 3))
def test_ctrl_c_while_buffers_are_dropped_loses_nothing_of_the_last(library, where):
    """Ctrl-C in each line of it, of a thread whose interrupts are not deferred: it comes, and the records are there."""
    lines, codes = [0], {subscribing.Subscription._complete.__code__, subscribing.Subscription._drop_before.__code__}

    def tracer(frame, event, _):
        if frame.f_code in codes and event == "line":
            lines[0] += 1
            if lines[0] == 200 + where:
                interrupt_main(signal.SIGINT)
        return tracer

    came = 0
    try:
        with ss.record(last=LAST) as recording:
            sys.settrace(tracer)
            try:
                for correlation in range(1, 61):
                    try:
                        launches(library, correlation, 1)
                    except KeyboardInterrupt:
                        came += 1
            finally:
                sys.settrace(None)
    except KeyboardInterrupt:
        came += 1
    assert came == 1
    found = rows(recording.trace, SpanKind.KERNEL).correlation.tolist()
    assert found == list(range(61 - len(found), 61))
    assert len(found) >= 7
    assert not library.subscription._filled


def test_a_buffer_that_cupti_gives_back_without_records_changes_nothing(library):
    with ss.record(last=LAST) as recording:
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        requested, completed = library._callbacks
        requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        completed(None, 0, buffer.value, size.value, 0)
        launches(library, 1, 3)
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 3


@pytest.mark.parametrize("last", [0, -1, float("nan"), float("inf"), True, "10", 1e12, [3]])
def test_a_wrong_last_is_refused_at_once(last):
    with pytest.raises(RecordingError, match=r"last=.* must be a number of seconds above 0"):
        ss.record(last=last)


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["loss", "steps"]), st.integers(-9, 9), st.booleans()), max_size=12),
    st.integers(0, 120),
    st.integers(0, 3),
)
def test_a_counter_has_the_value_in_the_last_seconds_that_it_has_in_the_whole(drawn, edge, dropped):
    drawn.sort(key=lambda row: row[0])
    pieces = [Piece(ActivityRecords(), start, start + 25, start + 25, Heard(int)) for start in range(0, 100, 25)]
    for at, name, value, added in drawn:
        pieces[at // 25].said.values.append((at, ss.counter(name), value, added))
    whole = said_without_pauses(pieces).tables(0, [])[0]
    since = max(edge, 25 * dropped)
    found = said_without_pauses(needed(pieces, 100 - 25 * dropped), since).tables(0, [])[0]
    assert (found.time_ns >= since).all()
    for at in range(since, 100):
        assert values_at(found, at) == values_at(whole, at)


def values_at(counters, at):
    """Return the last value of each counter, by its name."""
    upto = slice(np.searchsorted(counters.time_ns, at, side="right"))
    names = [counters.described[number].name for number in counters.series[upto].tolist()]
    return dict(zip(names, counters.value[upto].tolist(), strict=True))


def test_old_values_and_markers_are_dropped_and_sums_go_on():
    clock = iter(range(10**6))
    said = Heard(lambda: next(clock), last_ns=1_000)
    said.most = 2_000
    counting.listen(said)
    for _ in range(10_000):
        ss.counter("steps").add()
        ss.marker("step")
    counting.leave(said)
    assert len(said.values) <= counting._FEW + 1
    said.forget()
    assert len(said.values) + len(said.moments) <= 1_001
    (piece,) = needed([Piece(ActivityRecords(), 0, 20_000, 20_000, said)], 1_000)
    counters, _ = said_without_pauses([piece], 19_500).tables(0, [])
    assert (counters.value[-1], counters.value[0]) == (10_000, 9_750)


def test_the_newest_piece_counts_until_the_block_ends_not_until_the_gpus_do():
    pieces = [Piece(ActivityRecords(), 0, 90, 100), Piece(ActivityRecords(), 1_000, 1_050, 9_000)]
    assert [len(needed(pieces, last)) for last in (50, 51)] == [1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 30), st.integers(1, 90), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 120),
)
def test_what_is_left_is_what_was_launched_since(drawn, edge):
    calls, work, expected = [], [], set()
    for number, (start, length, runs, inner) in enumerate(drawn, start=1):
        calls.append({"code": 1, "start_ns": start, "end_ns": start + length, "correlation": number})
        if inner:  # the driver's call inside of the runtime's
            calls.append({"code": 0, "start_ns": start + length // 2, "end_ns": start + length, "correlation": number})
        work.append({"code": SpanKind.KERNEL, "start_ns": start + length, "end_ns": start + length + runs, "correlation": number})
        if start >= edge:
            expected.add(number)
    dropped = {"code": SpanKind.KERNEL, "start_ns": edge + 5, "end_ns": edge + 500, "correlation": 99}
    kept, whole_ns, _ = launched_since(ActivityRecords(table("calls", calls), table("work", [*work, dropped])), edge)
    assert set(kept.work["correlation"].tolist()) == set(kept.calls["correlation"].tolist()) == expected
    assert len(kept.calls) == sum(1 + inner for start, _, _, inner in drawn if start >= edge)
    assert whole_ns == max(edge + 500, *(row["end_ns"] for row in work if row["correlation"] not in expected), 0)


def test_pieces_are_needed_as_far_as_they_reach_into_the_last_seconds():
    pieces = [Piece(ActivityRecords(), start, start + 90, start + 100) for start in range(0, 5_000, 1_000)]
    assert [len(needed(pieces, last)) for last in (1, 90, 91, 250, 500, 10_000)] == [1, 1, 2, 3, 5, 5]
    assert needed(pieces, 150) == pieces[-2:]


def test_a_call_between_runtime_and_edge_counts_once(library):
    with ss.record(last=LAST) as recording:
        launches(library, 1, 30)
        call(library, Runtime.cudaMalloc_v3020, correlation=31)
    assert rows(recording.trace, SpanKind.API).name.tolist() == ["cudaMalloc"]
