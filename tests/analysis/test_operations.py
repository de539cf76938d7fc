"""The same operations under several engines."""

import numpy as np
import pytest

from streamscope.analysis import operation_table
from streamscope.errors import TraceError
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo


def trace_of(*rows):
    builder = SpanBuilder(["host", "main"])
    for name, operation, part, start_ns, end_ns in rows:
        builder.add(SpanKind.KERNEL, name, "main", start_ns, end_ns, operation=operation, part=part, basis=Basis.DERIVED)
    builder.add(SpanKind.LAUNCH, "launch", "host", 0, 10_000, operation=0)
    return Trace(builder.build(), TraceInfo("any", "p", DeviceInfo("cuda", "card")))


TRACES = {
    "dual": trace_of(("wgrad", 3, 1, 0, 140), ("dgrad", 3, 0, 0, 300), ("relu", 0, 0, 310, 330)),
    "sync": trace_of(
        ("dgrad", 3, 0, 0, 200), ("wgrad", 3, 1, 200, 300), ("relu", 0, 0, 0, 0), ("copy", 70_000, 0, 5, 15), ("fill", -1, 0, 0, 9)
    ),
    "graph": trace_of(("relu", 0, 0, 0, 10), ("relu", 0, 0, 10, 40)),
}


def test_rows_join_by_operation_and_part():
    table = operation_table(TRACES)
    assert table.engines == ("dual", "sync", "graph")
    assert list(zip(table.operation, table.part, table.name, strict=True)) == [
        (0, 0, "relu"),
        (3, 0, "dgrad"),
        (3, 1, "wgrad"),
        (70_000, 0, "copy"),
    ]
    nan = np.nan
    np.testing.assert_array_equal(table.duration_ns, [[20, 0, 20], [300, 200, nan], [140, 100, nan], [nan, 10, nan]])


def test_the_kernels_of_one_launch_are_added_up():
    """A library call of two kernels, launched twice: 10 + 20 and 14 + 30."""
    builder = SpanBuilder(["main"])
    for correlation, start_ns, end_ns in ((0, 0, 10), (0, 12, 32), (2, 40, 54), (2, 60, 90)):
        builder.add(SpanKind.KERNEL, "conv", "main", start_ns, end_ns, operation=0, correlation=correlation)
    builder.add(SpanKind.KERNEL, "relu", "main", 90, 95, operation=1, correlation=2)
    table = operation_table({"sync": Trace(builder.build(), TraceInfo("sync", "p", DeviceInfo("cuda", "card")))})
    assert table.duration_ns.tolist() == [[(30 + 44) / 2], [5]]


def test_slowdown_by_neighbours_is_relative_to_sync():
    nan = np.nan
    np.testing.assert_array_equal(operation_table(TRACES).slowdown(), [[nan, nan, nan], [1.5, 1, nan], [1.4, 1, nan], [nan, 1, nan]])
    shortest = {"sync": trace_of(("a", 0, 0, 0, 1)), "dual": trace_of(("a", 0, 0, 0, 3))}
    assert operation_table(shortest).slowdown().tolist() == [[1, 3]]


def test_the_first_engine_is_the_reference_where_there_is_no_sync():
    table = operation_table({"graph": TRACES["graph"], "dual": TRACES["dual"]})
    np.testing.assert_array_equal(table.slowdown()[0], [1, 1])


def test_no_traces_and_empty_traces():
    assert operation_table({}).duration_ns.shape == (0, 0)
    assert operation_table({"async": trace_of()}).duration_ns.shape == (0, 1)


def test_the_frame_has_microseconds():
    frame = operation_table(TRACES).to_pandas()
    assert frame.loc[(3, 0), "dual_us"] == 0.3
    assert frame.columns.tolist() == ["name", "dual_us", "sync_us", "graph_us"]


def test_a_foreign_trace_has_no_operations():
    builder = SpanBuilder(["stream 7"])
    builder.add(SpanKind.KERNEL, "a", "stream 7", 0, 5)
    foreign = Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto"))
    with pytest.raises(TraceError, match="no kernel of these traces belongs to an operation"):
        operation_table({"a": foreign})
    assert len(operation_table({"a": Trace(SpanBuilder(["stream 7"]).build(), foreign.info)}).operation) == 0
