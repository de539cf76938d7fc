"""How far numbers may be off, by hand."""

import pytest

from streamscope.analysis import busy_error_ns, overlap_error
from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo

TWO_STREAMS = [("kernel", "a", "main", 0, 100), ("kernel", "b", "aux", 50, 150)]


def trace_of(*rows, **calibration):
    return Trace(SpanTable.of(*rows), TraceInfo("async", "step", DeviceInfo("cuda", "card"), calibration=calibration))


@pytest.mark.parametrize(
    ("calibration", "error_ns"),
    [
        ({"kernel_error_ns": 5.0}, 150 * 10 / 200), ({"kernel_error_share": 0.02}, 150 * 0.02),
        ({"kernel_error_ns": 5.0, "kernel_error_share": 0.02}, 150 * (10 / 200 + 0.02)), ({}, None),
    ],
)  # fmt: skip
def test_busy_is_off_by_the_share_that_durations_are(calibration, error_ns):
    assert busy_error_ns(trace_of(*TWO_STREAMS, **calibration)) == pytest.approx(error_ns)
    empty = ("kernel", "c", "main", 100, 100)  # It counts as one whose duration may be off, and adds none.
    more_ns = 150 * calibration.get("kernel_error_ns", 0.0) / 200
    assert busy_error_ns(trace_of(*TWO_STREAMS, empty, **calibration)) == (error_ns and pytest.approx(error_ns + more_ns))
    assert busy_error_ns(trace_of(("copy", "x", "main", 0, 5), **calibration)) is None


def test_overlap_is_off_where_there_may_be_some():
    assert overlap_error(trace_of(*TWO_STREAMS, overlap_error=0.1)) == 0.1
    assert overlap_error(trace_of(TWO_STREAMS[0], overlap_error=0.1)) == 0
    assert overlap_error(trace_of(*TWO_STREAMS)) is None
