"""Which lanes are drawn, and in which row each span: rules that pictures with many threads, streams, ranges and blocks rest on."""

from __future__ import annotations

from itertools import combinations
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.trace import SpanTable
from streamscope.trace.spans import COLUMN_DTYPES, Basis, SpanKind
from streamscope_widgets.rows import MOST_AT_ONCE, MOST_LANES, SLACK_NS, SLOTS, places_of

HOST, LAUNCH, API, RANGE, KERNEL, GRAPH = (getattr(SpanKind, name) for name in ("HOST", "LAUNCH", "API", "RANGE", "KERNEL", "GRAPH"))


def table(spans, lanes=None):
    """Make a table of (kind, lane, start, end), and of ``basis`` and ``operation`` where they are given."""
    rows = [(*span, *(0, -1)[len(span) - 4 :]) for span in spans]
    columns = dict(zip(("kind", "lane", "start_ns", "end_ns", "basis", "operation"), zip(*rows, strict=True), strict=True))
    count = max(columns["lane"]) + 1
    ids = dict.fromkeys(("correlation", "symbol", "graph_node"), np.full(len(rows), -1))
    filled = {name: np.array(columns.get(name, ids.get(name, np.zeros(len(rows)))), kind) for name, kind in COLUMN_DTYPES.items()}
    return SpanTable(**filled, names=("a",), lanes=lanes or tuple(f"lane {number}" for number in range(count)))


def rows_of(spans, *, thin=False):
    """Return for each drawn lane the spans of each row; of a band too."""
    found = places_of(table(spans), thin=thin)
    header = found.header()
    rows = [
        [np.flatnonzero(found.slot == place * SLOTS + row).tolist() for row in range(lane[1])] for place, lane in enumerate(header["drawn"])
    ]
    bands = [np.flatnonzero(found.slot == place * SLOTS + SLOTS - 1).tolist() for place in range(len(header["drawn"]))]
    assert [bool(band) for band in bands] == [bool(lane[2]) for lane in header["drawn"]]
    return rows, [band for band in bands if band]


def test_a_call_inside_another_is_drawn_below_it_and_lanes_without_spans_are_left_out():
    spans = [(HOST, 0, 0, 100), (LAUNCH, 0, 10, 20), (LAUNCH, 0, 30, 40), (LAUNCH, 0, 100, 110), (KERNEL, 2, 101, 102)]
    assert rows_of(spans)[0] == [[[0, 3], [1, 2]], [[4]]]


def test_a_graphs_own_span_encloses_its_kernels_and_lies_apart():
    assert rows_of([(GRAPH, 0, 0, 100), (KERNEL, 0, 0, 50), (KERNEL, 0, 50, 100)]) == ([[[1, 2]]], [[0]])
    assert rows_of([(GRAPH, 0, 0, 100)]) == ([[]], [[0]])


@pytest.mark.parametrize(
    ("kind", "basis", "overlap_ns", "rows"),
    [(LAUNCH, Basis.MEASURED, 1, 2), (KERNEL, Basis.DERIVED, SLACK_NS, 1), (KERNEL, Basis.DERIVED, SLACK_NS + 1, 2)],
)
def test_what_ran_at_once_gets_rows_and_derived_kernels_that_only_touch_do_not(kind, basis, overlap_ns, rows):
    found, _ = rows_of([(kind, 0, 0, 1000, basis), (kind, 0, 1000 - overlap_ns, 2000, basis)])
    assert len(found[0]) == rows


def test_ranges_nest_each_below_the_one_that_holds_it_also_where_both_begin_at_one_time():
    times = [(0, 10), (0, 100), (0, 40), (20, 30), (50, 90), (60, 70)]
    assert rows_of([(RANGE, 0, *each) for each in times])[0] == [[[1], [2, 4], [0, 3, 5]]]


def test_kernels_that_begin_at_one_time_keep_their_order():
    assert rows_of([(RANGE, 1, 5, 9), (KERNEL, 0, 5, 5), (KERNEL, 0, 5, 9)])[0][0] == [[1, 2]]


def test_ranges_nested_deeper_than_there_are_rows_are_counted():
    nest = [(RANGE, 0, depth, 100 - depth) for depth in range(11)]
    assert places_of(table([*nest, (RANGE, 0, 200, 210)])).header()["drawn"] == [[0, 8, 0, 3]]
    assert places_of(table(nest[:8])).deeper.tolist() == [0]


def test_of_hundreds_of_lanes_the_fullest_are_drawn_in_their_order_and_streams_are_not_crowded_out_by_threads():
    spans = [(API if lane < 300 else KERNEL, lane, 10 * again, 10 * again + 5) for lane in range(400) for again in range(1 + lane % 3)]
    found = places_of(table(sorted(spans, key=lambda span: span[2])))
    lanes = found.lanes.tolist()
    assert (len(lanes), found.left_out, lanes) == (100, 300, sorted(lanes))
    hosts = [lane for lane in lanes if lane < 300]
    assert len(hosts) == 40
    assert all(lane % 3 == 2 for lane in hosts)


def test_of_tens_of_thousands_of_lanes_the_first_are_drawn():
    one = places_of(table([*((KERNEL, lane, lane, lane + 5) for lane in range(30_000)), (KERNEL, 0, 40_000, 40_001)]))
    assert (len(one.lanes), one.left_out) == (1, 29_999)  # The others hold a single kernel.
    two = places_of(table([(KERNEL, lane, again, again + 1) for again in (0, 9) for lane in range(30_000)]))
    assert (two.lanes.tolist(), two.left_out) == ([*range(MOST_LANES)], 30_000 - MOST_LANES)
    assert two.header()["drawn"][7] == [7, 1, 0, 0]


@pytest.mark.parametrize(("branches", "drawn"), [(31, 32), (115, 2)])
def test_of_many_branches_of_a_graph_those_of_a_single_kernel_are_counted_and_not_drawn(branches, drawn):
    spans = [(KERNEL, lane, lane, lane + 5) for lane in range(branches + 1)] + [(KERNEL, lane, 300 + lane, 310) for lane in (0, 2)]
    found = places_of(table(spans))
    assert (len(found.lanes), found.left_out) == (drawn, branches + 1 - drawn)


def blocks(*times):
    return [(KERNEL, 0, 1000 * start, 1000 * end, Basis.DERIVED, operation) for start, end, operation in times]


def test_a_multiprocessor_has_a_row_for_each_kernel_whose_blocks_it_runs_at_one_time_not_for_each_block():
    spans = blocks((0, 50, 0), (5, 60, 0), (10, 90, 1), (20, 70, 1), (62, 80, 0), (95, 99, 1))
    assert rows_of(spans, thin=True)[0] == [[[0, 1, 4, 5], [2, 3]]]


def test_all_multiprocessors_are_drawn():
    found = places_of(table([(KERNEL, lane, 0, 9, 0, 0) for lane in range(304)]), thin=True)
    assert (len(found.lanes), found.left_out) == (304, 0)


BLOCKS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3000), st.integers(1, 2000), st.integers(0, 3)), min_size=1, max_size=40)


@given(BLOCKS)
def test_blocks_of_two_kernels_share_a_row_only_one_after_the_other_or_where_rows_ran_out(found):
    """Those of one kernel that overlap always share one."""
    spans = sorted(
        ((KERNEL, lane, start, start + length, Basis.DERIVED, number) for lane, start, length, number in found), key=itemgetter(2)
    )
    places = places_of(table(spans), thin=True)
    assert (places.row < MOST_AT_ONCE).all()
    crowded = {lane for lane in range(3) if len({number for _, at, *_, number in spans if at == lane}) > MOST_AT_ONCE}
    for (i, (_, lane, _, end, _, number)), (j, (_, other_lane, begin, _, _, other)) in combinations(enumerate(spans), 2):
        if other_lane != lane or end <= begin + SLACK_NS:
            continue
        if number == other:
            assert places.slot[i] == places.slot[j]
        elif lane not in crowded:
            assert places.slot[i] != places.slot[j]
