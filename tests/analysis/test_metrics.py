"""The metrics of an engine, by hand, and how fast they are computed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counting import calls_of

from streamscope.analysis import measure
from streamscope.analysis.metric import ENGINE, metrics_of
from streamscope.analysis.table import AGAINST, metrics_table
from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo, SpanKind, SpanTable, Trace, TraceInfo
from streamscope.trace.spans import COLUMN_DTYPES
from streamscope.words import format_mib, format_us

LAUNCH, EVENT, KERNEL, COPY, HOST, SYNC = (SpanKind[name] for name in ("LAUNCH", "EVENT", "KERNEL", "COPY", "HOST", "SYNC"))
REPEATS_NS = [100_000, 101_000, 99_000, 100_000, 102_000, 98_000, 100_000]


def parts_us(metrics):
    idle = metrics.host_wait_us, metrics.launch_wait_us, metrics.kernel_wait_us, metrics.other_idle_us
    assert metrics.idle_us == pytest.approx(sum(idle))
    return metrics.gpu_busy_us + metrics.copy_us + metrics.idle_us


def test_by_hand(make_trace):
    trace = make_trace(
        (LAUNCH, "host", 0, 3_000, 0), (COPY, "copy", 5_000, 15_000, 0),
        (LAUNCH, "host", 3_000, 6_000, 1), (KERNEL, "main", 10_000, 30_000, 1),
        (HOST, "host", 32_000, 42_000, -1),
        (LAUNCH, "host", 42_000, 45_000, 2), (KERNEL, "main", 50_000, 60_000, 2),
        (LAUNCH, "host", 45_000, 49_000, 3), (KERNEL, "aux", 55_000, 70_000, 3),
        (SYNC, "host", 49_000, 75_000, -1),
        ledger={"unrecorded_ns": 100_000, "recorded_ns": 120_000},
    )  # fmt: skip
    m = measure(trace, REPEATS_NS)
    assert (m.makespan_us, m.makespan_low_us, m.makespan_high_us, m.repeats) == (100, 98, 102, 7)
    assert (m.gpu_busy_us, m.idle_us, m.busy_fraction) == (40, 55, 0.4)
    assert (m.overlap_us, m.overlap, m.kernel_count, m.kernel_time_us) == (5, 0.125, 3, 45)
    assert (m.launch_latency_us, m.queue_time_us, m.api_time_us) == (8, 5, 13)
    assert (m.copy_us, m.host_function_us) == (5, 10)
    assert (m.copy_overlap, m.host_overlap) == (0.5, 0)  # 5 of 10 µs of copying; the host function runs alone
    # The recorded run had gaps of 5 (the first launch) and 20 (12 until the call at 42, a launch of 7, and 1 more), and a tail of 5. The
    # 55 µs of idle time without copies divide alike.
    assert (m.host_wait_us, m.launch_wait_us) == (pytest.approx(55 * 12 / 30), pytest.approx(55 * (5 + 7) / 30))
    assert (m.kernel_wait_us, m.other_idle_us) == (0, pytest.approx(55 * (1 + 5) / 30))
    assert parts_us(m) == pytest.approx(m.makespan_us)
    assert (m.recording_cost, m.missing_records, m.simulated, m.flags) == (1.2, 0, False, ())


@given(spans=st.from_type(SpanTable), makespan_ns=st.integers(1, 200))
def test_the_parts_add_up_to_the_makespan(spans, makespan_ns):
    m = measure(Trace(spans, TraceInfo("async", "p", DeviceInfo("cuda", "card"))), [makespan_ns])
    assert parts_us(m) == pytest.approx(max(m.makespan_us, m.gpu_busy_us))
    assert m.idle_us >= 0
    assert 0 <= m.overlap <= 1
    assert min(m.copy_us, m.host_wait_us, m.launch_wait_us, m.kernel_wait_us, m.other_idle_us, m.host_function_us) >= 0
    assert m.host_function_us <= m.idle_us + 1e-9


def test_communication_of_one_gpu_is_told_by_the_names_of_its_kernels():
    """Captured code of one rank has no collectives of a program, and its kernels are NCCL's."""
    rows = [("kernel", "gemm", "main", 0, 30), ("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "comm", 20, 60)]
    info = TraceInfo("graph", "p", DeviceInfo("cuda", "card"))
    found = measure(Trace(SpanTable.of(*rows), info), [60])
    assert (found.communication_us, found.exposed_us, found.hidden_us) == (0.04, 0.03, 0.01)
    assert measure(Trace(SpanTable.of(rows[0]), info), [60]).communication_us is None


def test_an_empty_trace(make_trace):
    m = measure(make_trace(), REPEATS_NS)
    assert (m.gpu_busy_us, m.overlap, m.kernel_count, m.idle_us, m.other_idle_us) == (0, 0, 0, 100, 100)
    assert (m.launch_latency_us, m.queue_time_us, m.recording_cost) == (None, None, None)
    assert (m.copy_overlap, m.host_overlap) == (None, None)


def test_device_memory_is_that_of_the_trace_and_unknown_without(make_trace):
    plain, trace = make_trace(), make_trace(engine="graph")
    trace = replace(trace, info=replace(trace.info, memory={"variables_bytes": 3 << 19, "device_bytes": 3 << 19, "host_bytes": 7}))
    metrics = {"async": measure(plain, REPEATS_NS), "graph": measure(trace, REPEATS_NS)}
    assert [m.device_memory_bytes for m in metrics.values()] == [None, 3 << 19]
    table = metrics_table(metrics)
    column = table.headings.index("device memory, MiB")
    assert [cells[column] for cells in table.cells.values()] == ["–", "1.50"]
    assert "workspaces" in table.definitions[column]
    assert "device memory, MiB" not in metrics_table({"async": metrics["async"]}).headings


def test_the_share_that_busy_may_be_off_is_one_of_the_makespan(make_trace):
    metrics = measure(make_trace((SpanKind.KERNEL, "main", 0, 30_000, -1)), [40_000])
    assert metrics.busy_fraction_error is None
    assert replace(metrics, gpu_busy_error_us=5.0).busy_fraction_error == 0.125
    assert replace(metrics, gpu_busy_error_us=5.0, makespan_us=0.0).busy_fraction_error is None


def test_a_makespan_of_nothing(make_trace):
    m = measure(make_trace(device="simulated"), [0])
    assert (m.makespan_us, m.busy_fraction, m.flags) == (0, 0, ())


@pytest.mark.parametrize(
    ("rows", "repeats", "ledger", "flag"),
    [
        ([(KERNEL, "main", 0, 200_000, 0), (LAUNCH, "host", 0, 1, 0)], REPEATS_NS, {}, "GPU busy (200 µs) exceeds the makespan"),
        ([(LAUNCH, "host", 0, 1, 0)], REPEATS_NS, {}, "launch calls without a record on the device: 1"),
        ([(KERNEL, "main", 0, 1, 0)], REPEATS_NS, {}, "kernels or copies without a launch call: 1"),
        ([(LAUNCH, "host", 5, 9, 0), (KERNEL, "main", 4, 9, 0)], REPEATS_NS, {}, "1 of 1 launches seem to run before"),
        ([], REPEATS_NS[:5], {}, "repeats: 5"),
        ([], [80_000, 90_000, 100_000, 110_000, 120_000, 100_000], {}, "its interval is 40 % of the median"),
        ([], REPEATS_NS, {"unrecorded_ns": 10, "recorded_ns": 16}, "recording makes the run 1.6 times as long"),
    ],
)
def test_each_flag(make_trace, rows, repeats, ledger, flag):
    found = measure(make_trace(*rows, ledger=ledger, notes=("a note of the trace",)), repeats).flags
    assert len(found) == 2
    assert found[0].startswith(flag) or flag in found[0]
    assert found[1] == "a note of the trace"


def test_no_repeats_is_an_error(make_trace):
    with pytest.raises(TraceError, match="no repeats"):
        measure(make_trace(), [])


def launches_and_kernels(count):
    """Return a trace of launches, 3 µs apart, whose kernels overlap on four lanes."""
    start = np.arange(count, dtype=np.int64) * 3_000
    columns = {column: np.zeros(2 * count, np.int64) for column in COLUMN_DTYPES}
    columns["kind"] = np.repeat([int(LAUNCH), int(KERNEL)], count)
    columns["lane"] = np.concatenate([np.zeros(count), 1 + np.arange(count) % 4]).astype(np.int64)
    columns["correlation"] = np.tile(np.arange(count), 2)
    columns["start_ns"] = np.concatenate([start, start + 5_000])
    columns["end_ns"] = np.concatenate([start + 2_900, start + 9_000])
    order = np.argsort(columns["start_ns"], kind="stable")
    spans = SpanTable(**{name: values[order] for name, values in columns.items()}, names=("k",), lanes=("host", "a", "b", "c", "d"))
    return Trace(spans, TraceInfo("dual", "p", DeviceInfo("cuda", "card")))


def test_metrics_go_by_columns_not_by_spans():
    small, large = launches_and_kernels(500), launches_and_kernels(50_000)
    assert calls_of(measure, large, [1.5e9]) < 2 * calls_of(measure, small, [1.5e9])


def test_metrics_of_very_many_spans():
    count = 50_000
    m = measure(launches_and_kernels(count), [1.5e9])
    assert (m.kernel_count, m.launch_latency_us, m.queue_time_us) == (count, 5.0, 2.1)
    assert m.overlap_us == pytest.approx((count - 1) * 1.0)


def test_every_definition_has_words_a_unit_and_no_markup():
    for quantity in (*metrics_of(ENGINE), AGAINST):
        assert len(quantity.definition) > 40, quantity.label
        assert "`" not in quantity.definition
        assert "Parameters" not in quantity.definition
        assert "Raises" not in quantity.definition
    assert all("Unit:" in quantity.definition for quantity in metrics_of(ENGINE))
    assert all("Denominator:" in quantity.definition for quantity in metrics_of(ENGINE) if quantity.unit in ("%", "×"))


@pytest.mark.parametrize(
    ("value_us", "text"),
    [(0, "0"), (0.0312, "0.031"), (1.256, "1.26"), (23.61, "23.6"), (103.4, "103"), (4712.5, "4,712"), (-2.5, "-2.50")],
)
def test_times_have_three_significant_digits(value_us, text):
    assert format_us(value_us) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0"), (0.004, "0.4"), (0.0994, "9.9"), (0.0995, "10"), (0.5, "50"), (None, "–")])
def test_shares_below_a_tenth_have_one_digit_more(share, text):
    (busy,) = (metric for metric in metrics_of(ENGINE) if metric.heading == "GPU busy, %")
    assert busy.show_value(share) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0"), (32, "<0.001"), (1 << 10, "0.001"), (3 << 19, "1.50"), (32 << 20, "32.0"), (141 << 30, "144,384")],
)
def test_sizes_have_three_significant_digits(nbytes, text):
    assert format_mib(nbytes) == text
