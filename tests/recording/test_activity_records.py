"""CUPTI's buffers as columns: every record once, whatever the order, the sizes and the cuts between buffers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recording.fake_cupti import CUPTI, DTYPES, OF_KIND, ActivityKind, record

from streamscope.errors import RecordingError
from streamscope.recording.activity_records import ActivityRecords, layouts_of, marker_ranges
from streamscope.trace.spans import SpanKind

LAYOUTS = layouts_of(CUPTI, DTYPES)
UNREAD = 99


def size_at(buffer, offset):
    kind = int(buffer[offset : offset + 4].view(np.int32)[0])
    return 24 if kind == UNREAD else OF_KIND[ActivityKind(kind)].itemsize


def decoded(*buffers, text_at=str):
    return ActivityRecords.decoded([np.frombuffer(one, np.uint8).copy() for one in buffers], LAYOUTS, size_at, text_at)


times = st.integers(0, 2**62)
numbers = st.integers(0, 2**32 - 1)
kernels = st.builds(
    lambda **fields: (SpanKind.KERNEL, fields),
    start=times, end=times, correlation_id=numbers, graph_node_id=st.integers(0, 2**63 - 1), name=st.integers(1, 2**47),
    grid_x=st.integers(1, 2**31 - 1),
)  # fmt: skip
copies = st.builds(
    lambda **fields: (SpanKind.COPY, fields),
    start=times,
    end=times,
    correlation_id=numbers,
    copy_kind=st.integers(0, 10),
    bytes=st.integers(0, 2**60),
)
unread = st.just((None, {}))
KINDS = {SpanKind.KERNEL: ActivityKind.CONCURRENT_KERNEL, SpanKind.COPY: ActivityKind.MEMCPY}


@given(st.lists(st.lists(st.one_of(kernels, copies, unread), max_size=8), max_size=4))
def test_every_record_is_a_row_with_its_fields(buffers):
    found = decoded(
        *(
            b"".join(record(KINDS[kind], **fields) if kind else np.int32(UNREAD).tobytes() + bytes(20) for kind, fields in one)
            for one in buffers
        )
    )
    for kind, columns in (
        (SpanKind.KERNEL, {"start": "start_ns", "end": "end_ns", "correlation_id": "correlation", "graph_node_id": "graph_node",
                           "name": "name", "grid_x": "grid_x"}),
        (SpanKind.COPY, {"start": "start_ns", "end": "end_ns", "correlation_id": "correlation", "copy_kind": "way", "bytes": "bytes"}),
    ):  # fmt: skip
        expected = [fields for one in buffers for made, fields in one if made is kind]
        rows = found.work[found.work["code"] == kind]
        for field, column in columns.items():
            assert sorted(rows[column].tolist()) == sorted(fields[field] for fields in expected)
    names = {fields["name"] for one in buffers for kind, fields in one if kind is SpanKind.KERNEL}
    assert found.texts == {name: str(name) for name in names}


def test_a_text_is_read_once_and_no_address_is_none():
    asked = []
    kernel = record(ActivityKind.CONCURRENT_KERNEL, name=7)
    end = record(ActivityKind.MARKER, flags_=4, id=1, name=0)
    found = decoded(kernel + end + kernel, text_at=lambda address: asked.append(address) or "gemm")
    assert asked == [7]
    assert found.texts == {7: "gemm"}


def test_nanoseconds_since_1970_keep_their_last_digit():
    start = 1_795_362_426_785_105_217  # As a float, this is 256 ns coarse.
    found = decoded(record(ActivityKind.CONCURRENT_KERNEL, start=start, end=start + 33))
    assert (found.work["start_ns"].tolist(), found.work["end_ns"].tolist()) == ([start], [start + 33])


def test_a_record_that_is_smaller_than_its_layout_is_refused():
    with pytest.raises(RecordingError, match="cupti-python is newer than the CUPTI that is loaded"):
        ActivityRecords.decoded([np.frombuffer(record(ActivityKind.MEMCPY)[:48], np.uint8).copy()], LAYOUTS, lambda *_: 48, str)


@pytest.mark.parametrize("size", [0, -8, 4, 20])
def test_a_size_that_cannot_be_is_refused(size):
    with pytest.raises(RecordingError, match=f"impossible size of {size} bytes"):
        ActivityRecords.decoded([np.frombuffer(record(ActivityKind.MEMCPY), np.uint8).copy()], LAYOUTS, lambda *_: size, str)


def test_a_buffer_that_ends_in_a_record_is_refused():
    whole = record(ActivityKind.MEMCPY)
    with pytest.raises(RecordingError, match="ends in the middle of a record"):
        decoded(whole + whole[:32])


def test_ranges_are_pairs_of_markers():
    found = decoded(
        record(ActivityKind.MARKER, flags_=2, timestamp=10, id=1, name=5, thread=8)
        + record(ActivityKind.MARKER, flags_=2, timestamp=20, id=2, name=6, thread=8)
        + record(ActivityKind.MARKER, flags_=4, timestamp=30, id=2, thread=8)
        + record(ActivityKind.MARKER, flags_=4, timestamp=40, id=1, thread=8)
        + record(ActivityKind.MARKER, flags_=2, timestamp=50, id=3, name=6, thread=8)  # begun and not ended
        + record(ActivityKind.MARKER, flags_=4, timestamp=60, id=4, thread=8)  # ended and not begun
        + record(ActivityKind.MARKER, flags_=1, timestamp=70, id=5, name=6, thread=8)  # a point in time
    )
    ranges, open_ones = marker_ranges(found.markers)
    assert ranges.tolist() == [(10, 40, 8, 5, 0, 1), (20, 30, 8, 6, 0, 2)]
    assert open_ones == 2
