"""Busy time and overlap, by hand and against a count for each nanosecond."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import (
    average_concurrency,
    concurrency,
    copy_busy_ns,
    copy_compute_overlap,
    exposed_copy_ns,
    exposed_host_ns,
    gpu_busy_ns,
    kernel_count,
    kernel_time_ns,
    overlap_fraction,
    overlap_ns,
    stream_overlap,
    summary,
)
from streamscope.trace import Basis, SpanKind, SpanTable

CASES = Path(__file__).resolve().parents[1] / "data" / "issue31"
KERNEL, COPY, SET, HOST, GRAPH = SpanKind.KERNEL, SpanKind.COPY, SpanKind.SET, SpanKind.HOST, SpanKind.GRAPH


@given(spans=st.from_type(SpanTable))
def test_against_a_count_for_each_nanosecond(ticks, spans):
    kernels = sum((ticks(spans, KERNEL, lane=lane) > 0).astype(int) for lane in spans.lanes)  # a stream runs one at a time
    copies, host = ticks(spans, COPY, SET), ticks(spans, HOST)
    assert gpu_busy_ns(spans) == (kernels > 0).sum()
    assert copy_busy_ns(spans) == (copies > 0).sum()
    assert overlap_ns(spans) == (kernels > 1).sum()
    assert exposed_copy_ns(spans) == ((copies > 0) & (kernels == 0)).sum()
    assert exposed_host_ns(spans) == ((host > 0) & (kernels == 0) & (copies == 0)).sum()
    assert overlap_fraction(spans) == pytest.approx((kernels > 1).sum() / max(1, (kernels > 0).sum()))
    assert copy_compute_overlap(spans) == pytest.approx(((copies > 0) & (kernels > 0)).sum() / max(1, (copies > 0).sum()))
    for running, time_ns in enumerate(concurrency(spans).time_at_ns()):
        assert running == 0 or time_ns == (kernels == running).sum()


@given(spans=st.from_type(SpanTable))
def test_pairs_against_a_count_for_each_nanosecond(ticks, spans):
    for pair in stream_overlap(spans):
        first, second = ticks(spans, KERNEL, lane=pair.first) > 0, ticks(spans, KERNEL, lane=pair.second) > 0
        assert pair.overlap_ns == (first & second).sum()
        assert pair.fraction == pytest.approx((first & second).sum() / max(1, min(first.sum(), second.sum())))


def test_by_hand(make_trace):
    spans = make_trace(
        (KERNEL, "main", 0, 100, 0), (KERNEL, "aux", 60, 100, 1), (KERNEL, "main", 120, 160, 2),
        (COPY, "copy", 150, 200, 3), (GRAPH, "main", 0, 160, 4),
    ).spans  # fmt: skip
    assert (gpu_busy_ns(spans), kernel_time_ns(spans), kernel_count(spans)) == (140, 180, 3)
    assert (overlap_ns(spans), overlap_fraction(spans)) == (40, 40 / 140)
    assert (copy_busy_ns(spans), exposed_copy_ns(spans), copy_compute_overlap(spans)) == (50, 40, 0.2)
    (pair,) = stream_overlap(spans)
    assert (pair.first, pair.second, pair.overlap_ns, pair.fraction) == ("main", "aux", 40, 1.0)


@pytest.mark.parametrize("bases", [(Basis.DERIVED,) * 2, (Basis.PLACED,) * 2, (Basis.MEASURED, Basis.DERIVED)])
def test_kernels_of_one_stream_do_not_overlap_where_a_time_is_an_estimate(make_trace, bases):
    apart = make_trace((KERNEL, "main", 0, 10, 0), (KERNEL, "main", 12, 20, 1)).spans
    spans = replace(apart, start_ns=np.array([0, 8]), basis=np.array(bases))
    assert overlap_ns(spans) == 0
    assert gpu_busy_ns(spans) == 20


def test_derived_kernels_of_two_streams_do_overlap(make_trace):
    spans = make_trace((KERNEL, "main", 0, 10, 0), (KERNEL, "main", 8, 20, 1), (KERNEL, "aux", 5, 9, 2), basis=Basis.DERIVED).spans
    assert overlap_ns(spans) == 4


def test_an_empty_trace(make_trace):
    spans = make_trace().spans
    assert (gpu_busy_ns(spans), overlap_fraction(spans), copy_compute_overlap(spans), stream_overlap(spans)) == (0, 0.0, 0.0, ())


def test_kernels_of_one_stream_that_overlap_are_one_stream_at_once():
    # Programmatic launches: each kernel of 10 µs begins 3 µs before the one before it ends.
    trace = ss.read(CASES / "pdl_overlap.json")
    assert gpu_busy_ns(trace.spans) == 24_000
    assert average_concurrency(trace.spans) == 1
    found = summary(trace)
    assert (found.gpu_busy_us, found.average_concurrency) == (24, 1)
    assert [(stream.name, stream.kernel_count, stream.busy_us) for stream in found.streams] == [("stream 7", 3, 24)]


def test_streams_at_once_by_hand():
    # Stream 7 is busy from 0 to 50, with two kernels from 10 to 20 on two lanes of it; stream 8 from 40 to 80.
    spans = SpanTable.of(
        ("kernel", "a", "stream 7", 0, 20), ("kernel", "b", "stream 7 · 2", 10, 50), ("kernel", "c", "stream 8", 40, 80)
    )  # fmt: skip
    assert average_concurrency(spans) == (50 + 40) / 80
    assert overlap_ns(spans) == 10 + 10  # kernels, wherever they run
