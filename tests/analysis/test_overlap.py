"""Busy time and overlap, by hand and against a count for each nanosecond."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import (
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
)
from streamscope.trace import Basis, SpanKind, SpanTable

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
