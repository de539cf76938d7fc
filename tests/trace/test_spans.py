"""A table of spans holds what it says, or it is not made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamscope.errors import TraceError
from streamscope.trace import Basis, SpanKind, SpanTable
from streamscope.trace.spans import COLUMN_DTYPES, MOST_SPANS, SpanBuilder

LIMIT = 2**53


def table(*, names=("work", "call"), lanes=("host", "main", "aux"), count=3, **columns):
    """Make a table of kernels on one stream, one after the other, with some other columns."""
    usual = {column: np.zeros(count, np.int64) for column in COLUMN_DTYPES}
    usual |= {"kind": np.full(count, SpanKind.KERNEL), "lane": np.ones(count, np.int64)}
    usual |= {"start_ns": np.arange(count) * 10, "end_ns": np.arange(count) * 10 + 5}
    return SpanTable(**usual | {column: np.asarray(values) for column, values in columns.items()}, names=names, lanes=lanes)


@pytest.mark.parametrize("column", ["kind", "name", "lane", "part", "basis", "blocks", "threads", "bytes", "flops"])
def test_nothing_is_negative_but_times(column):
    with pytest.raises(TraceError, match=f"span 2 has {column} -1, which must be from 0 to"):
        table(**{column: [0, 0, -1]})


@pytest.mark.parametrize("column", ["operation", "correlation", "symbol", "graph_node"])
def test_none_is_minus_one(column):
    assert getattr(table(**{column: [-1, 0, 1]}), column).tolist() == [-1, 0, 1]
    with pytest.raises(TraceError, match=f"span 0 has {column} -2, which must be from -1 to"):
        table(**{column: [-2, 0, 1]})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kind", 12),
        ("kind", 256 + 8),
        ("symbol", 2),
        ("basis", 3),
        ("name", 2),
        ("lane", 3),
        ("part", 2**15),
        ("threads", 2**31),
        ("operation", 2**31),
    ],
)
def test_what_is_too_large_is_told_and_not_wrapped_around(column, value):
    with pytest.raises(TraceError, match=f"span 1 has {column} {value}, which must be from"):
        table(**{column: [0, value, 0]})


@pytest.mark.parametrize("values", [[0.5, 1, 2], ["a", "b", "c"], [None, 1, 2], [np.nan, 1, 2]], ids=str)
def test_columns_hold_whole_numbers(values):
    with pytest.raises(TraceError, match="span column 'blocks' must hold whole numbers"):
        table(blocks=values)


def test_columns_are_equally_long():
    with pytest.raises(TraceError, match=r"span column 'part' has shape \(2,\), expected \(3,\)"):
        table(part=[0, 0])


def test_spans_are_sorted_by_their_starts():
    with pytest.raises(TraceError, match="span 2 starts before span 1, but spans must be in the order of their starts"):
        table(start_ns=[0, 20, 10], end_ns=[5, 25, 15])


def test_no_span_ends_before_it_starts():
    with pytest.raises(TraceError, match="span 1 ends 1 ns before it starts"):
        table(end_ns=[5, 9, 25])


@pytest.mark.parametrize("time_ns", [2**63 - 1, 2**62, LIMIT + 1])
def test_times_that_no_double_holds_are_refused(time_ns):
    with pytest.raises(TraceError, match=f"span 2 has end_ns {time_ns}, which must be from {-LIMIT} to {LIMIT}"):
        table(end_ns=[5, 15, time_ns])
    with pytest.raises(TraceError, match=f"span 0 has start_ns {-time_ns}, which must be"):
        table(start_ns=[-time_ns, 10, 20])


def test_durations_cannot_overflow_when_they_are_added_up():
    derived = {"basis": [Basis.DERIVED] * 3, "start_ns": [0, 0, 0]}
    assert table(end_ns=[LIMIT, 0, 0], **derived).duration_ns.sum() == LIMIT
    with pytest.raises(TraceError, match=r"the spans take .* ns in all, more than"):
        table(end_ns=[LIMIT, LIMIT, LIMIT], **derived)


def test_measured_kernels_and_copies_of_one_stream_do_not_overlap():
    with pytest.raises(TraceError, match="spans 0 and 2 were measured on one stream, 'main', and overlap"):
        table(end_ns=[21, 15, 25], lane=[1, 2, 1], kind=[SpanKind.KERNEL, SpanKind.KERNEL, SpanKind.COPY])


@pytest.mark.parametrize(
    "columns",
    [
        {"lane": [1, 2, 1]},
        {"basis": [Basis.MEASURED, Basis.DERIVED, Basis.MEASURED]},
        {"kind": [SpanKind.KERNEL, SpanKind.GRAPH, SpanKind.KERNEL]},
        {"kind": [SpanKind.HOST] * 3, "end_ns": [100, 100, 100]},
        {"start_ns": [0, 10, 10], "end_ns": [10, 20, 10]},
    ],
    ids=["two streams", "an estimate", "a graph around its kernels", "threads of the host", "they touch"],
)
def test_what_may_overlap_or_touch(columns):
    assert len(table(**{"end_ns": [10, 20, 25], **columns})) == 3


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["work", "call"], "must be a tuple of texts"),
        (("work", 5), "must be a tuple of texts"),
        (("work", "\ud800"), "must be a tuple of texts"),
        (("work", "x" * 100_001), "must be a tuple of texts"),
        (("work", "work"), "has one twice"),
    ],
    ids=["a list", "a number", "a lone surrogate", "a very long one", "one twice"],
)
def test_names_are_texts_that_differ(texts, message):
    with pytest.raises(TraceError, match=f"names of spans .*{message}"):
        table(names=texts)


def test_a_trace_has_no_more_spans_than_a_notebook_has_memory_for(monkeypatch):
    assert MOST_SPANS == 12_000_000
    monkeypatch.setattr("streamscope.trace.spans.MOST_SPANS", 4)
    assert len(table(count=4)) == 4
    with pytest.raises(TraceError, match="a trace of 5 spans is too long: it may have 4"):
        table(count=5)


def test_rows_can_be_taken_in_any_order():
    assert table().select(np.array([2, 0])).start_ns.tolist() == [20, 0]


def test_more_lanes_than_a_trace_may_have_are_refused():
    names = [f"lane {index}" for index in range(32_769)]
    builder = SpanBuilder(names[:-1])
    builder.add(SpanKind.KERNEL, "k", names[-2], 0, 5)
    assert builder.build().lane.tolist() == [32_767]
    builder = SpanBuilder(names)
    builder.add(SpanKind.KERNEL, "k", names[-1], 0, 5)
    with pytest.raises(TraceError, match="32,769 lanes is too wide: it may have 32,768"):
        builder.build()
    table = SpanBuilder(names[:1]).build()
    with pytest.raises(TraceError, match="too wide"):
        replace(table, lanes=tuple(names))
