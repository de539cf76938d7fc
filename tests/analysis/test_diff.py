"""Two traces compared: by hand, by loops, and by what must hold for any two."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import kernel_time_ns, median_interval, span_ns
from streamscope.analysis.diff_rows import DiffRow
from streamscope.analysis.matching import join
from streamscope.analysis.metrics import PROFILED
from streamscope.analysis.statistics import median_intervals
from streamscope.comparing.comparison import Run
from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo

LAUNCH, KERNEL, COPY = SpanKind.LAUNCH, SpanKind.KERNEL, SpanKind.COPY


def trace_of(spans, program="step", engine="kineto", card="card", recorder="spans", exact=False, stretched=False, **details):
    device = DeviceInfo("simulated" if exact else "cuda", card, details)
    return Trace(spans, TraceInfo(engine, program, device, recorder, stretched=stretched))


def sequence(*kernels, gap_ns=1_000, symbols=None, **info):
    """A trace of kernels one after the other: (name, duration in µs), or (name, duration, lane), or (name, duration, lane, operation)."""
    builder, now_ns = SpanBuilder(["stream 7", "stream 20"]), 0
    for at, (name, duration_us, *more) in enumerate(kernels):
        lane, operation = (*more, *("stream 7", -1)[len(more) :])
        end_ns = now_ns + round(duration_us * 1_000)
        builder.add(KERNEL, name, lane, now_ns, end_ns, operation=operation, symbol=symbols[at] if symbols else None)
        now_ns = end_ns + gap_ns
    return trace_of(builder.build(), **info)


def named(found):
    """What stands for what: names with the n-th of the trace."""
    first, second = found.first.spans, found.second.spans
    return [(first.names[first.name[a]], int(a), second.names[second.name[b]], int(b)) for a, b in found.pairs]


@given(first=st.from_type(SpanTable), second=st.from_type(SpanTable), same=st.booleans())
def test_the_parts_add_up_and_the_other_way_round_negates(first, second, same):
    one, other = trace_of(first), trace_of(second, program="step" if same else "other")
    found, back = ss.diff(one, other), ss.diff(other, one)
    for at, spans in enumerate((first, second)):
        parts = [(part.first_us, part.second_us)[at] for part in found.contributions]
        assert sum(parts) == pytest.approx(span_ns(spans) / 1000)
        of_kernels = sum(row.total_us[at] for row in found.rows if row.kind == "kernel")
        assert of_kernels == pytest.approx(kernel_time_ns(spans) / 1000)
        assert sum(row.count[at] for row in found.rows) == len(spans.of_kind([KERNEL, COPY, SpanKind.SET]))
    assert sum(part.difference_us for part in found.contributions) == pytest.approx((span_ns(second) - span_ns(first)) / 1000)
    assert sorted(round(row.difference_us, 6) for row in found.rows) == sorted(-round(row.difference_us, 6) for row in back.rows)
    assert {tuple(pair) for pair in found.pairs.tolist()} == {(a, b) for b, a in back.pairs.tolist()}
    key = lambda row, sign: (round(sign * row.each_us, 6), round(sign * row.low_us, 6))  # noqa: E731
    ends = lambda row: (round(-row.each_us, 6), round(-row.high_us, 6))  # noqa: E731
    assert sorted(key(row, 1) for row in found.rows if all(row.count)) == sorted(ends(row) for row in back.rows if all(row.count))
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


@given(spans=st.from_type(SpanTable))
def test_a_trace_does_not_differ_from_itself(spans):
    found = ss.diff(trace_of(spans), trace_of(spans))
    assert not found.changed
    assert all(part.difference_us == 0 for part in found.contributions)
    assert (found.pairs[:, 0] == found.pairs[:, 1]).all()
    assert len(found.pairs) == sum(row.count[0] for row in found.rows)


def in_turn(trace, by_lane):
    """Reference by loops: the n-th occurrence of each name, on its stream or in all, to its row."""
    seen, at, spans = Counter(), {}, trace.spans
    for row in range(len(spans)):
        key = (spans.names[spans.name[row]], spans.lane[row] if by_lane else None)
        at[*key, seen[key]] = row
        seen[key] += 1
    return at


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.sampled_from(["stream 7", "stream 20"])), max_size=12), st.randoms()
)
def test_the_same_kernels_in_another_order_are_joined_in_turn(kernels, random):
    shuffled = list(kernels)
    random.shuffle(shuffled)
    one, other = sequence(*kernels), sequence(*shuffled)
    first, second = in_turn(one, by_lane=True), in_turn(other, by_lane=True)
    assert ss.diff(one, other).pairs.tolist() == sorted([first[key], second[key]] for key in first)


def test_one_more_kernel_does_not_shift_those_that_follow():
    one = sequence(("copy", 1), ("gemm", 5), ("copy", 2), ("relu", 1), ("copy", 3))
    other = sequence(("copy", 1), ("copy", 9), ("gemm", 5), ("copy", 2), ("relu", 1), ("copy", 3))
    found = ss.diff(one, other)
    assert [(a, b) for _, a, _, b in named(found)] == [(0, 0), (1, 2), (2, 3), (3, 4), (4, 5)]
    (row,) = found.changed
    assert (row.called, row.count, row.difference_us) == ("copy", (3, 4), 9)


def test_where_orders_differ_names_are_still_joined_in_turn():
    found = ss.diff(sequence(("a", 1), ("b", 1), ("x", 1)), sequence(("b", 1), ("a", 1), ("x", 1), ("x", 1)))
    assert [(a, b) for _, a, _, b in named(found)] == [(0, 1), (1, 0), (2, 2)]


def test_added_and_gone():
    one = sequence(("gemm", 5), ("sgemm", 9), ("relu", 1), ("dropout", 2), ("sgemm", 9), ("relu", 1))
    other = sequence(("gemm", 5), ("hgemm", 4), ("relu", 1), ("hgemm", 4), ("relu", 1), ("norm", 3), ("norm", 3))
    found = ss.diff(one, other)
    assert [(row.called, row.count, row.difference_us) for row in found.changed] == [
        ("sgemm (gone)", (2, 0), -18), ("hgemm (added)", (0, 2), 8), ("norm (added)", (0, 2), 6), ("dropout (gone)", (1, 0), -2),
    ]  # fmt: skip


def test_what_stands_in_the_place_of_another_was_renamed():
    one = sequence(("gemm", 5), ("sgemm", 9), ("relu", 1), ("sgemm", 9), ("norm", 1))
    other = sequence(("gemm", 5), ("hgemm", 4), ("relu", 1), ("hgemm", 4), ("norm", 1))
    (row,) = ss.diff(one, other).changed
    assert (row.called, row.status, row.count, row.total_us, row.each_us) == ("hgemm (was sgemm)", "renamed", (2, 2), (18, 8), -5)
    assert len(ss.diff(one, other).pairs) == 5


def test_a_name_that_is_gone_for_two_others_was_not_renamed():
    one = sequence(("gemm", 5), ("sgemm", 9), ("relu", 1), ("sgemm", 9))
    other = sequence(("gemm", 5), ("hgemm", 4), ("relu", 1), ("qgemm", 4))
    assert sorted((row.name, row.status) for row in ss.diff(one, other).changed) == [
        ("hgemm", "added"), ("qgemm", "added"), ("sgemm", "gone"),
    ]  # fmt: skip


def test_one_program_is_joined_by_operation_part_and_turn():
    """Another order, another stream, and a library call of two kernels that takes three under the other engine."""
    one = sequence(
        ("conv", 4, "stream 7", 0), ("conv", 5, "stream 7", 0), ("add", 1, "stream 7", 1), ("add", 2, "stream 7", 2), engine="sync"
    )
    other = sequence(
        ("add", 3, "stream 20", 2), ("add", 1, "stream 20", 1), ("conv", 4, "stream 7", 0), ("conv", 6, "stream 7", 0),
        ("conv", 1, "stream 7", 0), engine="dual",
    )  # fmt: skip
    found = ss.diff(one, other)
    assert found.joined.by == "operation"
    assert [(a, b) for _, a, _, b in named(found)] == [(0, 2), (1, 3), (2, 1), (3, 0)]
    told = {(row.called, row.count, row.difference_us, row.basis) for row in found.changed}
    one_each = "one each, no interval"
    assert told == {
        ("conv · 0 (added)", (0, 1), 1, "in one trace only"), ("conv · 0", (1, 1), 1, one_each), ("add · 2", (1, 1), 1, one_each),
    }  # fmt: skip
    assert ss.diff(one, sequence(("x", 1, "stream 7", 0), ("y", 1, "stream 7", 1))).joined.by == "name"


def test_another_kernel_for_the_same_operation_is_told():
    one = sequence(("conv", 4, "stream 7", 0), symbols=["implicit_gemm"])
    other = sequence(("conv", 4, "stream 7", 0), symbols=["winograd"])
    (row,) = ss.diff(one, other).rows
    assert (row.status, row.called, row.symbols) == ("renamed", "conv · 0 (implicit_gemm → winograd)", ("implicit_gemm", "winograd"))


def test_foreign_kernels_are_told_apart_by_their_symbols():
    one = sequence(("elementwise", 4), ("elementwise", 2), symbols=["elementwise<add>", "elementwise<mul>"])
    other = sequence(("elementwise", 3), ("elementwise", 4), symbols=["elementwise<mul>", "elementwise<add>"])
    assert [(row.name, row.difference_us) for row in ss.diff(one, other).rows] == [("elementwise<mul>", 1), ("elementwise<add>", 0)]


def diff_row(**columns):
    """A row of a kernel that both traces have six times."""
    whole = {"name": "gemm", "was": "", "symbols": ("", ""), "kind": "kernel", "operation": -1, "part": -1, "count": (6, 6)}
    whole |= {"total_us": (60, 54), "each_us": -1, "low_us": -2, "high_us": -0.5, "basis": "95 % interval of the median"}
    return DiffRow(**whole | columns)


def test_an_interval_that_ends_at_zero_tells_no_difference():
    assert diff_row().told
    assert not diff_row(high_us=0).told
    assert not diff_row(low_us=0, high_us=2).told


def test_symbols_that_read_alike_are_shown_whole():
    of_ints, of_longs, other = "void f<int>(int)", "void f<long>(int)", "void g<int>(int)"
    assert diff_row(name=other, was=of_ints, symbols=(of_ints, other)).called == "g (was f)"
    assert diff_row(name=of_longs, was=of_ints, symbols=(of_ints, of_longs)).called == f"{of_longs} (was {of_ints})"


def test_the_first_operation_has_its_number_in_json():
    assert diff_row(operation=0, part=0).to_dict()["operation"] == 0
    assert "operation" not in diff_row().to_dict()


def test_symbols_that_only_one_trace_has_are_not_compared_with_names():
    one, other = sequence(("elementwise", 4), symbols=["void kernel<float>(float*)"]), sequence(("elementwise", 3))
    (row,) = ss.diff(one, other).rows
    assert (row.called, row.status, row.difference_us) == ("elementwise", "both", -1)


def test_a_symbol_that_is_the_name_too_is_a_symbol():
    (row,) = ss.diff(sequence(("gemm", 5), symbols=["gemm"]), sequence(("blas", 4), symbols=["gemm"])).rows
    assert (row.called, row.status, row.difference_us) == ("gemm", "both", -1)


OLD_NCCL, NEW_NCCL = (
    "ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
)


def test_a_name_that_is_in_both_is_joined_whatever_its_parameters():
    """A library's kernel takes other parameters in another version, so its symbol is another; its name is the same."""
    one = sequence(("nccl", 9), ("gemm", 5), ("nccl", 8), symbols=[OLD_NCCL, "gemm", OLD_NCCL])
    other = sequence(("nccl", 7), ("nccl", 4), ("gemm", 5), symbols=[NEW_NCCL, NEW_NCCL, "gemm"])
    found = ss.diff(one, other)
    (row,) = found.changed
    assert (row.called, row.status, row.count, row.difference_us) == ("ncclDevKernel_Generic", "both", (2, 2), -6)
    assert row.symbols == (OLD_NCCL, NEW_NCCL)
    assert found.in_both == 1
    assert len(found.pairs) == 3


def test_a_kernel_whose_symbol_one_trace_does_not_know_is_joined_by_its_name():
    one = sequence(("relu", 9), ("gemm", 5), symbols=[None, "gemm"])
    other = sequence(("relu", 7), ("gemm", 5), symbols=["void at::relu<float>(float*)", "gemm"])
    (row,) = ss.diff(one, other).changed
    assert (row.called, row.status, row.count) == ("relu", "both", (1, 1))
    (row,) = ss.diff(other, one).changed
    assert (row.name, row.status, row.count) == ("relu", "both", (1, 1))


@given(st.lists(st.sampled_from(["void f<A>(int)", "void f<B>(int)", "f(long)", "g<A>(int)", "g<A>(long)", "h"]), max_size=8), st.randoms())
def test_no_name_is_both_added_and_gone(symbols, random):
    cut = random.randrange(len(symbols) + 1)
    sides = [sequence(*((symbol[-6:], 1) for symbol in some), symbols=some) for some in (symbols[:cut], symbols[cut:])]
    called = [row.called for row in ss.diff(*sides).rows]
    added, gone = ({name.removesuffix(end) for name in called if name.endswith(end)} for end in (" (added)", " (gone)"))
    assert not added & gone


def test_kernel_time_in_both_leaves_out_what_was_renamed_unless_it_is_one_operation():
    one = sequence(("gemm", 5), ("sgemm", 9), ("relu", 1), program="before")
    other = sequence(("gemm", 5), ("hgemm", 4), ("relu", 1), program="after")
    assert ss.diff(one, other).joined.by == "name"
    assert ss.diff(one, other).in_both == 12 / 25  # gemm and relu, 6 µs in each, of 15 and 10 µs
    one = sequence(("relu", 3, "stream 7", 0), ("sgemm", 5, "stream 7", 1))
    other = sequence(("relu", 3, "stream 7", 0), ("hgemm", 2, "stream 7", 1))
    assert ss.diff(one, other).joined.by == "operation"
    assert ss.diff(one, other).in_both == 1


def test_intervals_of_pairs_and_of_unequal_counts():
    generator = np.random.default_rng(0)
    base = generator.integers(3_000, 9_000, 30) / 1000
    longer = base + generator.integers(900, 1_100, 30) / 1000
    (row,) = ss.diff(sequence(*(("k", t) for t in base)), sequence(*(("k", t) for t in longer))).rows
    expected = median_interval(longer - base)
    assert (row.each_us, row.low_us, row.high_us) == pytest.approx((expected.median, expected.low, expected.high))
    assert row.basis == "95 % interval of the median of the differences of pairs"
    assert row.told
    assert row.cells()[-1].startswith(f"+{row.each_us:.3f} (+0.9" if row.each_us < 1 else f"+{row.each_us:.2f} (+")
    (row,) = ss.diff(sequence(*(("k", t) for t in base)), sequence(*(("k", t) for t in longer[:20]))).rows
    alone, other = median_interval(base), median_interval(longer[:20])
    assert (row.each_us, row.low_us) == pytest.approx((other.median - alone.median, other.low - alone.high))
    assert not row.told
    assert "within the noise" in row.cells()[-1]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=60))
def test_intervals_of_groups_are_those_of_each(rows):
    group, values = np.array(rows, int).reshape(-1, 2).T
    found = median_intervals(values, group, 6)
    by_group = defaultdict(list)
    for one, value in rows:
        by_group[one].append(value)
    for one in range(6):
        expected = median_interval(by_group[one]) if by_group[one] else None
        wanted = [expected.median, expected.low, expected.high] if expected else [np.nan] * 3
        assert found[:, one] == pytest.approx(wanted, nan_ok=True)


def launched(late_us, duration_us, **info):
    """Two kernels, the second one called so late."""
    builder = SpanBuilder(["thread 1", "stream 7"])
    late_ns, length_ns = round(late_us * 1000), round(duration_us * 1000)
    builder.add(LAUNCH, "launch", "thread 1", 0, 2_000, correlation=1)
    builder.add(KERNEL, "gemm", "stream 7", 5_000, 5_000 + length_ns, correlation=1)
    begins_ns = 10_000 + length_ns + late_ns
    builder.add(LAUNCH, "launch", "thread 1", begins_ns - 5_000, begins_ns - 2_000, correlation=2)
    builder.add(KERNEL, "relu", "stream 7", begins_ns, begins_ns + 10_000, correlation=2)
    return trace_of(builder.build(), **info)


def test_the_answer_says_how_much_and_why():
    slow, quick = launched(45, 30, engine="eager", exact=True), launched(0, 30, engine="graph", exact=True)
    assert ss.diff(slow, quick).answer == "graph is 1.9× faster than eager (95.0 → 50.0 µs): 45.0 µs less host wait."
    assert ss.diff(quick, slow).answer == "eager is 1.9× slower than graph (50.0 → 95.0 µs): 45.0 µs more host wait."
    found = ss.diff(launched(5, 40, engine="eager", exact=True), launched(15, 20, engine="graph", exact=True))
    assert found.answer == (
        "graph is 18 % faster than eager (65.0 → 55.0 µs): 20.0 µs less kernel time; against that, 10.0 µs more host wait."
        " Of kernel time (−20.0 µs in all), gemm changed most: −20.0 µs."
    )
    assert ss.diff(slow, slow).answer == "The second takes as long as the first, within 1 % (95.0 → 95.0 µs)."
    assert ss.diff(launched(0, 10, program="a", exact=True), launched(9, 50, program="b", exact=True)).answer.startswith(
        "b is 2.6× slower than a (30.0 → 79.0 µs):"
    )


def test_of_measured_runs_no_difference_is_told_and_all_that_lies_between_them():
    slow, quick = launched(45, 30, engine="eager"), launched(0, 30, engine="graph")
    few = "One run each: too few repeats to tell a difference"
    assert ss.diff(slow, quick).answer == f"graph took 50.0 µs, and eager 95.0 µs. {few}. In graph: 45.0 µs less host wait."
    assert ss.diff(slow, slow).answer == f"The second took 95.0 µs, and the first 95.0 µs. {few}."
    predicted = launched(0, 30, engine="graph", exact=True)
    assert ss.diff(slow, predicted).answer == f"graph took 50.0 µs, and eager 95.0 µs. {few}. In graph: 45.0 µs less host wait."


def test_of_two_runs_the_repeats_tell_whether_one_is_faster():
    def run(makespans_us, **options):
        trace = launched(0, 30, **options)
        return Run(trace.info.engine, 1e3 * np.array(makespans_us), np.nan, np.nan, trace)

    slow, quick = run([90, 91, 92, 93, 94, 95], program="slow"), run([60, 61, 62, 63, 64, 65], program="quick")
    once = "In the recorded runs, quick took 50.0 µs, and slow 50.0 µs."
    assert ss.diff(slow, quick).answer == f"quick is 48 % faster than slow (makespans 92.5 → 62.5 µs, not in turns). {once}"
    assert ss.diff(slow, run([60, 61, 62, 63, 64, 99], program="quick")).answer.startswith("quick against slow: within the noise (")
    assert "too few repeats to tell" in ss.diff(slow, run([60, 61], program="quick")).answer
    one, drift = ss.diff(slow, quick).warnings
    assert (one, drift[:33]) == ("parts and rows are of one run each", "two comparisons do not take turns")
    assert "One run each" in ss.diff(slow, quick.trace).answer


def test_recorded_runs_that_differ_the_other_way_explain_nothing():
    traces = [launched(wait, 30, program=name) for name, wait in (("before", 0), ("after", 45))]
    before, after = (
        Run("graph", 1e3 * np.linspace(longest - 5, longest, 6), np.nan, np.nan, trace)
        for trace, longest in zip(traces, (95, 65), strict=True)
    )
    answer = ss.diff(before, after).answer
    assert answer.startswith("after is 48 % faster than before")
    assert answer.endswith("In the recorded runs, after took 95.0 µs, and before 50.0 µs: the other way round, so they do not explain it.")


def test_engines_of_one_comparison_took_turns():
    runs = ss.load_comparison(Path(__file__).parents[2] / "notebooks" / "recorded" / "branches")
    assert "turns" not in repr(ss.diff(runs["async"], runs["graph"]))
    with pytest.raises(TraceError, match="not a Comparison"):
        ss.diff(runs, runs)


@given(first=st.from_type(SpanTable), second=st.from_type(SpanTable))
def test_what_was_measured_once_is_never_called_faster_or_slower(first, second):
    found = ss.diff(trace_of(first), trace_of(second))
    assert not re.search(r"faster|slower|as long as", found.answer)
    assert all(min(row.count) >= 6 for row in found.rows if row.told)


def test_more_overlap_is_told_as_such():
    builder = SpanBuilder(["stream 7", "stream 20"])
    for lane in ("stream 7", "stream 20"):
        builder.add(KERNEL, "gemm", lane, 0, 20_000)
    found = ss.diff(sequence(("gemm", 20), ("gemm", 20), gap_ns=0, exact=True), trace_of(builder.build(), exact=True))
    assert found.answer == "The second is 2.0× faster than the first (40.0 → 20.0 µs): 20.0 µs more saved by kernels side by side."


def test_a_part_of_a_tenth_of_the_change_is_told():
    found = ss.diff(launched(0, 30, exact=True), launched(10, 120, exact=True))
    assert ": 90.0 µs more kernel time and 10.0 µs more host wait." in found.answer


def test_which_trace_lacks_records_is_told():
    whole, lacking = launched(0, 30, engine="eager"), launched(0, 40, engine="graph")
    lacking = replace(lacking, info=replace(lacking.info, ledger={"lost_records": 1}))
    assert "lack" not in ss.diff(whole, whole).answer
    assert ss.diff(whole, lacking).answer.startswith("graph lacks records, so its metrics are lower bounds, ")
    assert ss.diff(lacking, lacking).answer.startswith("Both lack records, so their metrics are lower bounds, ")


def test_its_texts():
    found = ss.diff(launched(45, 30), launched(0, 29))
    assert repr(found).splitlines()[0] == "step · kineto → step · kineto"
    assert "gemm" in repr(found)
    assert "1 row without a difference" in repr(found)
    page = found.to_markdown()
    assert "| span | 95.0 | 49.0 | −46.0 |" in page
    assert "| gemm | 1 | 30.0 → 29.0 | −1.00 | −1.00 |" in page
    assert "- one run each, and rows of fewer than 6 runs: too few repeats to tell a difference" in page
    frame = found.to_pandas()
    assert frame.loc[0, ["name", "first_us", "second_us", "difference_us"]].tolist() == ["gemm", 30.0, 29.0, -1.0]
    odd = ss.diff(sequence(("<b>|\x1b[1m", 3)), sequence(("<b>|\x1b[1m", 4)))
    assert "\\<b\\>\\|" in odd.to_markdown()
    assert "\x1b" not in odd.to_markdown() + repr(odd)


def test_times_with_a_profiler_on_are_told_as_such():
    profiled, table = (
        trace_of(sequence(("gemm", 20)).spans, engine=name, recorder=name, stretched=name == "kineto") for name in ("kineto", "spans")
    )
    slower = trace_of(sequence(("gemm", 40)).spans, engine="nsys", recorder="nsys", stretched=True)
    assert "kineto took 20.0 µs, and nsys 40.0 µs, both with a profiler on. One run each" in ss.diff(slower, profiled).answer
    assert [text for text in ss.diff(slower, profiled).warnings if "profiler" in text] == [f"both: {PROFILED}"]
    assert "nsys 40.0 µs, nsys with a profiler on. One run each" in ss.diff(slower, table).answer
    assert f"nsys: {PROFILED}" in ss.diff(slower, table).warnings
    assert "profiler" not in repr(ss.diff(table, replace(table, info=replace(table.info, engine="x"))))
    known = replace(slower, info=replace(slower.info, ledger={"unrecorded_ns": 30_000.0}))
    assert "profiler" not in ss.diff(known, table).answer


def test_warnings():
    one, other = launched(0, 30, card="card A", engine="x"), launched(0, 30, card="card B", engine="y")
    once = "one run each, and rows of fewer than 6 runs: too few repeats to tell a difference"
    assert ss.diff(one, other).warnings == ("two devices: card A and card B", once)
    simulated = Trace(other.spans, TraceInfo("y", "step", DeviceInfo("simulated", "card"), "device log"))
    found = ss.diff(one, simulated).warnings
    assert "one trace was measured, the other was not" in found
    assert "y: all times are simulated (card), not measured" in found
    assert once not in ss.diff(simulated, simulated).warnings


def test_two_gpus_are_never_compared_unsaid():
    one, other = launched(0, 30, gpu=0, gpus=[0, 1]), launched(0, 30, gpu=1, gpus=[0, 1])
    assert ss.diff(one, other).warnings[0] == "GPU 0 is compared with GPU 1: ss.read(path, gpu=...) chooses"
    assert ss.diff(one, other).title == "step · kineto · GPU 0 → step · kineto · GPU 1"
    for second in (one, launched(0, 30), launched(0, 30, gpu="\x1b[1m")):
        assert "GPU" not in ss.diff(one, second).title + ss.diff(second, one).warnings[0]


def test_only_traces_are_compared():
    with pytest.raises(TraceError, match=r"diff compares two traces, not 'a\.json'") as raised:
        ss.diff(launched(0, 1), "a.json")
    assert "trace" in raised.value.hint


def test_joining_empty_traces():
    empty = trace_of(SpanBuilder(["stream 7"]).build())
    assert len(join(empty, empty).pairs) == 0
    found = ss.diff(empty, sequence(("k", 2)))
    assert [(row.status, row.difference_us) for row in found.rows] == [("added", 2)]
    assert found.answer == "The first has no spans, so there is nothing to compare."


def test_unrelated_traces_are_said_to_look_like_different_programs_before_all_else():
    """Of 60 + 40 µs of kernels, 20 µs are of a name that both have."""
    found = ss.diff(sequence(("a", 10), ("b", 50), program="one"), sequence(("a", 10), ("c", 15), ("d", 15), program="two"))
    assert found.in_both == 0.2
    assert found.warnings[0] == "20 % of the kernel time is in both: these look like different programs"
    alike = ss.diff(sequence(("a", 10), ("b", 50), program="one"), sequence(("a", 10), ("b", 15), program="two"))
    assert alike.in_both == 1
    assert not any("different programs" in warning for warning in alike.warnings)


def test_traces_of_one_name_are_the_first_and_the_second_and_devices_stand_in_their_order():
    first, second = (
        Trace(SpanTable.of(("kernel", "k", "stream 7", 0, 1_000 * n)), TraceInfo("kineto", "t", DeviceInfo("cuda", name), "kineto"))
        for n, name in ((1, "NVIDIA H200"), (2, "NVIDIA H100"))
    )
    found = ss.diff(first, second)
    assert found.answer.startswith("The second took 2.00 µs, and the first 1.00 µs")
    assert "two devices: NVIDIA H200 and NVIDIA H100" in found.warnings
