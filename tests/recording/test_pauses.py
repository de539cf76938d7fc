"""Pauses are cut out: what was recorded keeps its lengths, its order and its joins, and nothing lies in a pause."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.recording.test_recorded_trace import GPU, START, table

from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.pauses import Piece, without_pauses
from streamscope.recording.recorded_trace import CodeBlock, recorded_trace
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, SpanKind

launches = st.lists(st.tuples(st.integers(0, 90), st.integers(1, 40)), min_size=1, max_size=4)


@given(st.lists(st.tuples(launches, st.integers(0, 10**7)), min_size=1, max_size=4))
def test_pieces_follow_each_other_and_calls_are_joined_within_their_piece(drawn):
    pieces, clock_ns, lengths = list[Piece](), START, list[int]()
    for number, (made, pause_ns) in enumerate(drawn):
        calls = [
            {"code": 1, "start_ns": clock_ns + at, "end_ns": clock_ns + at + 5, "thread": 1, "name": 1, "correlation": place}
            for place, (at, _) in enumerate(made)
        ]
        work = [
            {"code": SpanKind.KERNEL, "start_ns": clock_ns + at + 10, "end_ns": clock_ns + at + 10 + length, "correlation": place,
             "name": 7, "gpu": place % 2}
            for place, (at, length) in enumerate(made)
        ]  # fmt: skip
        outside = {"code": 1, "start_ns": clock_ns + 120, "end_ns": clock_ns + 10**9, "thread": 1, "name": 1, "correlation": 99}
        records = ActivityRecords(table("calls", [*calls, outside]), table("work", work), texts={7: f"k{number}"})
        pieces.append(Piece(records, clock_ns, clock_ns + 100, clock_ns + 150))
        clock_ns += 150 + pause_ns
        lengths += [length for _, length in made]
    records, end_ns, notes = without_pauses(pieces)
    trace = recorded_trace(records, CodeBlock("step", START, end_ns), GPU, lambda *_: "cudaLaunchKernel", notes)
    spans = trace.spans
    work = spans.is_kind(DEVICE_KINDS)
    piece = spans.start_ns // 150
    assert end_ns - START == 150 * len(drawn) - 50
    assert sorted(spans.duration_ns[work].tolist()) == sorted(lengths)
    assert piece.tolist() == (spans.end_ns // 150).tolist()
    assert [spans.names[name] for name in spans.name[work]] == [f"k{number}" for number in piece[work]]
    called = call_rows(spans, work.nonzero()[0])
    assert (called >= 0).all()
    assert piece[called].tolist() == piece[work].tolist()
    assert (~work).sum() == len(lengths)
    assert (len(trace.info.notes) > 0 and trace.info.notes[0].startswith("cut out: ")) == (len(drawn) > 1)
