"""Long traces in tiles: whatever the spans and the view, every span is in one mark, and marks say what the spans say in sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamscope.analysis import activity
from streamscope.trace import DeviceInfo, Origins, SpanTable, Trace, TraceInfo
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind
from streamscope_widgets import levels, tiles
from streamscope_widgets.gpu_activity import GpuActivity
from streamscope_widgets.levels import Rows, StretchLevels
from streamscope_widgets.payload import as_groups, encode
from streamscope_widgets.rows import MOST_ROWS, SLOTS, places_of
from streamscope_widgets.tile_questions import answer, hits_of
from streamscope_widgets.tiles import Part, Tiles, needs_tiles

DTYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}
LANES = ("host", "host ranges", "main", "aux")
RANGE, KERNEL, GRAPH = SpanKind.RANGE, SpanKind.KERNEL, SpanKind.GRAPH


def rows_of(table):
    return list(zip(table.kind.tolist(), table.lane.tolist(), table.start_ns.tolist(), table.end_ns.tolist(), strict=True))


def build(spans):
    """Make a table of (lane, pause or step back, length, kind), where kernels of one stream follow each other."""
    builder, now = SpanBuilder(LANES), dict.fromkeys(range(4), 0)
    for number, (lane, pause, length, graph) in enumerate(spans):
        kind = RANGE if lane == 1 else SpanKind.LAUNCH if lane == 0 else GRAPH if graph else KERNEL
        start = now[lane] + pause if lane > 1 and not graph else max(0, now[lane] + pause - 300)
        if kind is KERNEL:
            now[lane] = start + length
        else:
            now[lane] += pause
        name = f"{'range' if lane == 1 else 'kernel'} {number % 3}"
        builder.add(kind, name, LANES[lane], start, start + length, operation=number // 3, correlation=number // 2, basis=Basis.MEASURED)
    return builder.build()


SPAN = st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 1, 7, 300, 5000]), st.sampled_from([0, 1, 3, 40, 1000, 70_000]), st.booleans())
SPANS = st.lists(SPAN, min_size=1, max_size=60).map(build)
LEVEL = st.integers(0, 18)


def union_ns(starts, ends):
    """Return how long at least one of some intervals lasts, counted one by one."""
    total, until = 0, -np.inf
    for start, end in sorted(zip(starts, ends, strict=True)):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


@given(SPANS)
def test_each_span_has_the_first_row_that_is_free(spans):
    """In order of their starts, of ranges the longest first."""
    found = places_of(spans)
    slot_of = found.slot
    place = {lane: number for number, lane in enumerate(found.lanes.tolist())}
    ends = np.full(len(found.lanes) * SLOTS, -np.inf)
    by_start = sorted(range(len(spans)), key=lambda i: (spans.start_ns[i], -spans.end_ns[i] if spans.kind[i] == RANGE else 0, i))
    deeper = np.zeros(len(found.lanes), int)
    for i in by_start:
        first = place[spans.lane[i]] * SLOTS
        if spans.kind[i] == GRAPH:
            assert slot_of[i] == first + MOST_ROWS
            continue
        row = next((row for row in range(MOST_ROWS) if ends[first + row] <= spans.start_ns[i]), MOST_ROWS - 1)
        deeper[place[spans.lane[i]]] += spans.kind[i] == RANGE and ends[first + row] > spans.start_ns[i]
        ends[first + row] = max(ends[first + row], spans.end_ns[i])
        assert slot_of[i] == first + row
    assert found.deeper.tolist() == deeper.tolist()


@given(SPANS, LEVEL, st.integers(-1, 400), st.integers(0, 18), st.sampled_from([0, 10**9]))
@example(build([(1, 1, 70_000, False)] + [(1, 0, 0, False)] * 20), 3, 0, 4, 0)
def test_every_span_in_view_is_in_one_mark_that_covers_it(spans, level, index, reach, most_direct):
    """Whether marks are made of the spans in view or of a level of the whole trace."""
    reach = max(level, reach)
    start, end = index * 2**reach, (index + 2) * 2**reach
    found = Rows(spans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "MOST_DIRECT", most_direct)
        marks, exact = found.marks(level, start, end)
    assert not exact or (marks.count == 1).all()
    mark_of = np.full(len(found.span), -1)
    for number, (first, count) in enumerate(zip(marks.first, marks.count, strict=True)):
        members = slice(int(first), int(first + count))
        assert (mark_of[members] == -1).all()
        mark_of[members] = number
        span = spans.select(found.span[members])
        assert span.start_ns.min() == marks.start_ns[number]
        assert span.end_ns.max() == marks.end_ns[number]
        assert span.duration_ns.max() == marks.longest_ns[number] == spans.duration_ns[found.span[marks.longest[number]]]
        if count > 1:
            assert span.duration_ns.max() < 2**level
            assert len(set((span.start_ns // 2**level).tolist())) == 1
    in_view = (found.start_ns < end) & (found.end_ns >= start)
    assert (mark_of[in_view] >= 0).all()


@given(SPANS, LEVEL, st.sampled_from([0, 10**9]))
def test_marks_are_busy_as_long_as_the_union_of_their_spans(spans, level, most_direct):
    found = Rows(spans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "MOST_DIRECT", most_direct)
        marks, _ = found.marks(level, -np.inf, np.inf)
    assert marks.count.sum() == len(spans)
    for slot in range(len(found.places.lanes) * SLOTS):
        members = spans.select(found.span[found.offsets[slot] : found.offsets[slot + 1]])
        assert marks.busy_ns[marks.slot == slot].sum() == union_ns(members.start_ns.tolist(), members.end_ns.tolist())


@given(SPANS, LEVEL, st.sampled_from([0, 10**9]))
def test_levels_of_what_the_device_does_keep_the_time_of_each_thing(spans, level, most_direct):
    found = activity(spans)
    whole = GpuActivity(**found.__dict__, collectives=found.kernels // 2, peers=found.copies)
    part = StretchLevels(whole, most_direct).within(level, -np.inf, np.inf)
    found = part.found
    assert (found.end_ns[:-1] == found.start_ns[1:]).all()
    assert found.start_ns[:1].tolist() == whole.start_ns[:1].tolist()
    assert found.end_ns[-1:].tolist() == whole.end_ns[-1:].tolist()

    def time_of_each(one):
        columns = (one.kernels, one.copies, one.collectives, one.peers, one.occupation, one.end_ns - one.start_ns)
        done = zip(*(column.tolist() for column in columns), strict=True)
        sums = {}
        for *thing, length in done:
            sums[tuple(thing)] = sums.get(tuple(thing), 0) + length
        return {thing: length for thing, length in sums.items() if length}

    assert time_of_each(found) == time_of_each(whole)
    real = set(zip(whole.start_ns.tolist(), whole.end_ns.tolist(), strict=True))
    assert set(zip(found.start_ns[~part.crowd].tolist(), found.end_ns[~part.crowd].tolist(), strict=True)) <= real


def column(payload, group, name):
    header = payload.header["groups"][group]
    spec, count = header["columns"][name], header["count"]
    if "constant" in spec:
        values = np.full(count, spec["constant"], np.int64)
    else:
        values = np.frombuffer(payload.block, DTYPES[spec["dtype"]], count, spec["offset"]).astype(np.int64)
    return spec["first"] + np.cumsum(values) if spec.get("delta") else values + spec.get("shift", 0)


@settings(max_examples=40)
@given(SPANS)
def test_all_tiles_of_the_finest_level_are_exactly_the_spans(spans):
    """Row by row, with the columns that a payload of all spans has."""
    one = Tiles(as_groups([trace_of(spans)]))
    whole = encode(one.groups)
    names = list(one.codes.names)
    reach, seen = 14, {}
    for index in range(-1, int(spans.end_ns.max()) // 2**reach + 2):
        tile = one.tile([[0, reach, index]])
        assert tile.header["groups"][0]["exact"]
        assert (column(tile, 0, "merged") == 1).all()
        columns = {
            name: column(tile, 0, name) for name in ("span", "start", "duration", "lane", "kind", "operation", "correlation", "name")
        }
        for values in zip(*columns.values(), strict=True):
            span, *rest = (int(value) for value in values)
            assert seen.setdefault(span, rest) == rest
    expected = [column(whole, 0, name) for name in ("start", "duration", "lane", "kind", "operation", "correlation")]
    assert sorted(seen) == list(range(len(spans)))
    for span, (*rest, name) in seen.items():
        assert rest == [int(values[span]) for values in expected]
        assert names[name] == spans.names[spans.name[span]]


def trace_of(spans):
    return Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "a GPU")))


@pytest.fixture
def long_one(large_trace, monkeypatch):
    monkeypatch.setattr(tiles, "MOST_EXACT", 50)
    return Tiles(as_groups([large_trace(4000)]))


def ask(one, **question):
    found = answer(one, one.groups, question)
    assert "refused" not in found.header, found.header
    return found


def test_an_overview_says_how_many_spans_there_are_and_what_stands_for_them(long_one):
    payload = long_one.overview()
    (header,) = payload.header["groups"]
    assert header["drawn"] == [[0, 2, 0, 0], [1, 1, 0, 0]]
    assert header["kind_counts"][SpanKind.LAUNCH] == header["kind_counts"][KERNEL] == 2000
    assert "4,000 spans: what shares a pixel is one mark, zoom in for its spans" in header["remarks"]
    assert not header["exact"]
    assert column(payload, 0, "merged").sum() == 4000
    assert header["count"] < 4000
    # What a crowd is drawn as says nothing of the others.
    crowd = column(payload, 0, "merged") > 1
    assert (column(payload, 0, "operation")[crowd] == -1).all()
    assert (column(payload, 0, "correlation") == -1).all()


def test_a_search_finds_what_the_whole_trace_holds(long_one):
    spans = long_one.groups[0].trace.spans
    find = {"code": None, "text": "kernel 11"}
    hits = spans.name == spans.names.index("kernel 11")
    assert ask(long_one, type="find", find=find).header["groups"][0] == {
        "onDevice": int((hits & (spans.kind == KERNEL)).sum()),
        "onHost": int((hits & (spans.kind == SpanKind.LAUNCH)).sum()),
        "starts": spans.start_ns[hits & (spans.kind == KERNEL)].tolist(),
    }
    tile = ask(long_one, type="tile", windows=[[12, 40, 0]], find=find)
    assert column(tile, 0, "hits").sum() == hits.sum()
    drawn_as = spans.name[column(tile, 0, "span")]
    assert (drawn_as[column(tile, 0, "hits") > 0] == spans.names.index("kernel 11")).all()

    rows = np.flatnonzero(hits & (spans.kind == KERNEL)).tolist()
    step = {"type": "go", "how": "hit", "find": find, "shown": [0], "group": 0}
    at, visited = -1, []
    for _ in rows:
        header = ask(long_one, **step, span=at, step=1).header
        at = header["span"]
        visited.append((at, header["position"], header["start"]))
    assert visited == [(row, number + 1, int(spans.start_ns[row])) for number, row in enumerate(rows)]
    assert ask(long_one, **step, span=rows[-1], step=1).header["span"] == rows[0]
    assert ask(long_one, **step, span=rows[0], step=-1).header["span"] == rows[-1]
    assert ask(long_one, **{**step, "find": {"code": None, "text": "nothing"}}, span=-1, step=1).header == {}


def test_a_call_is_found_by_the_name_of_what_it_launches():
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "host", 0, 5, operation=0, correlation=0)
    builder.add(KERNEL, "gemm", "main", 10, 20, operation=0, correlation=0, symbol="sm90_GEMM_128")
    builder.add(KERNEL, "relu", "main", 30, 40, operation=1)
    one = Tiles(as_groups([trace_of(builder.build())]))
    counts = {
        text: [ask(one, type="find", find={"code": None, "text": text}).header["groups"][0][side] for side in ("onDevice", "onHost")]
        for text in ("gemm", "sm90", "cuda", "e")
    }
    assert counts == {"gemm": [1, 1], "sm90": [1, 0], "cuda": [0, 1], "e": [2, 1]}


def test_steps_lead_to_calls_kernels_and_neighbours(five_engines):
    one = Tiles(as_groups([five_engines(20)["graph-dual"]]))
    spans = one.groups[0].trace.spans

    def go(how, span):
        return ask(one, type="go", how=how, group=0, span=span).header.get("span")

    call = int(np.flatnonzero(spans.kind == SpanKind.GRAPH_LAUNCH)[0])
    graph = int(np.flatnonzero(spans.kind == GRAPH)[0])
    assert go("launch", call) == graph
    assert go("launch", graph) == call
    third = int(np.flatnonzero((spans.operation == 3) & (spans.kind == KERNEL))[0])
    assert spans.operation[go("next", third)] == 4
    assert spans.operation[go("previous", third)] == 2
    assert go("next", int(np.flatnonzero(spans.operation == 19)[0])) is None
    assert spans.lane[go("dependent", third)] == spans.lane[third]
    assert go("wait", go("dependent", third)) == third
    assert ask(one, type="go", how="operation", group=0, span=-1, operation=3).header["span"] == third


@given(st.floats(0, 1), st.floats(0, 1))
def test_totals_of_an_area_are_those_of_all_spans(large, share_from, share_to):
    spans, part = large
    length = float(spans.end_ns.max())
    start, end = sorted((share_from * length, share_to * length))
    area = {"group": 0, "start": start, "end": end, "rows": [[1, 0]]}
    (found,) = answer(part, part.groups, {"type": "totals", "areas": [area]}).header["groups"]
    kernels = spans.kind == KERNEL
    inside = kernels & (spans.start_ns < end) & (spans.end_ns > start)
    assert sum(count for _, count, _ in found["names"]) == inside.sum()
    expected = (np.minimum(spans.end_ns, end) - np.maximum(spans.start_ns, start))[inside].sum()
    assert sum(time for *_, time in found["names"]) == pytest.approx(expected)
    started = (kernels & (spans.start_ns >= start) & (spans.start_ns < end)).sum()
    assert found["gpus"] == [(started, pytest.approx(expected), pytest.approx(expected))]  # one stream of one GPU


@pytest.fixture(scope="module")
def large():
    from tests.widgets.conftest import large_trace

    one = Tiles(as_groups([large_trace(3000)]))
    return one.groups[0].trace.spans, one


def test_waits_join_the_spans_of_an_exact_tile_alone(five_engines, monkeypatch):
    plain = five_engines(20)["graph-dual"]
    kernels = np.flatnonzero(plain.spans.kind == KERNEL)
    waits = np.stack([kernels[:-1], kernels[1:]], 1)
    trace = Trace(plain.spans, plain.info, origins=Origins(row_waits=waits))
    part = Part(as_groups([trace])[0])
    shown = part.shown(0, -np.inf, np.inf)
    span = shown.more["span"]
    assert sorted(zip(*(span[rows].tolist() for rows in shown.waits), strict=True)) == sorted(map(tuple, waits.tolist()))
    middle = int(plain.spans.start_ns[kernels[10]])
    few = part.shown(0, middle, middle + 1)
    for earlier, later in zip(*few.waits, strict=True):
        assert [few.more["span"][earlier], few.more["span"][later]] in waits.tolist()
    monkeypatch.setattr(tiles, "MOST_EXACT", 0)
    assert len(part.shown(40, -np.inf, np.inf).waits[0]) == 0


def test_the_critical_path_of_a_tile_follows_the_longest_of_each_pixel(long_one):
    exact = ask(long_one, type="tile", windows=[[0, 40, 0]], paths=True).header["groups"][0]["path"]
    coarse = ask(long_one, type="tile", windows=[[20, 40, 0]], paths=True).header["groups"][0]["path"]
    assert exact["words"] == coarse["words"]
    assert 0 < coarse["count"] < exact["count"]


@pytest.mark.parametrize(
    "question",
    [
        {"type": "tile"},
        {"type": "tile", "windows": []},
        {"type": "tile", "windows": [["a", 1, 2]]},
        {"type": "tile", "windows": [[0, 10_000, 1]]},
        {"type": "go", "how": "launch", "group": 7, "span": 0},
        {"type": "go", "how": "elsewhere", "group": 0, "span": 0},
        {"type": "totals", "areas": [{"group": 0}]},
        {"type": "other"},
        {},
    ],
    ids=str,
)
def test_what_no_browser_of_ours_asks_is_refused(long_one, question):
    assert answer(long_one, long_one.groups, question).header["refused"].startswith("the question was not understood")


def test_only_what_is_too_long_is_sent_in_tiles(five_engines, monkeypatch):
    groups = as_groups(five_engines(20))
    assert not needs_tiles(groups)
    monkeypatch.setattr(tiles, "MOST_WHOLE", 100)
    assert needs_tiles(groups)
    assert answer(None, groups, {"type": "tile", "windows": []}).header == {"refused": "all spans were sent"}


def test_of_many_streams_those_with_most_spans_are_drawn():
    rows = [
        ("kernel", "k", f"stream {lane}", 100 * lane + 10 * each, 100 * lane + 10 * each + 5)
        for lane in range(150)
        for each in range(1 + lane % 2)
    ]
    found = Rows(SpanTable.of(*rows))
    assert len(found.places.lanes) == 75  # Those of a single kernel are left out.
    assert found.places.left_out == 75
    marks, _ = found.marks(30, -np.inf, np.inf)
    assert marks.count.sum() == 150


def test_an_operation_begins_in_each_group_with_its_first_kernel():
    def one(*rows):
        return trace_of(SpanTable.of(*rows))

    first = one(
        ("launch", "a", "host", 0, 1, 1), ("graph", "g", "main", 3, 99), ("kernel", "a", "main", 5, 9, 1), ("kernel", "b", "main", 9, 20, 2)
    )
    second = one(("launch", "b", "host", 0, 1, 2), ("kernel", "a", "main", 7, 9, 1))
    for trace, operations in ((first, [1, 1, 1, 2]), (second, [2, 1])):
        trace.spans.operation[:] = operations
    tiles_of = Tiles(as_groups([first, second]))
    assert [ask(tiles_of, type="starts", operation=number).header["starts"] for number in (1, 2, 3)] == [[5, 7], [9, None], [None, None]]


def test_hits_lie_on_lanes_that_are_drawn_and_a_step_to_another_says_so():
    """Of 120 streams, 20 of a single kernel are not drawn."""
    rows = [("kernel", "k", f"stream {lane}", 10 * lane, 10 * lane + 5) for lane in range(120)]
    rows += [("kernel", "k", f"stream {lane}", 10_000 + 10 * lane, 10_000 + 10 * lane + 5) for lane in range(20, 120)]
    one = Tiles(as_groups([trace_of(SpanTable.of(*rows))]))
    find = {"code": None, "text": "k"}
    assert ask(one, type="find", find=find).header["groups"][0]["onDevice"] == 200
    hit = ask(one, type="go", how="hit", step=1, find=find, shown=[0], group=0, span=-1).header
    assert (hit["start"], hit.get("hidden")) == (200, None)
    assert ask(one, type="go", how="next", group=0, span=2).header["hidden"] == "stream 3"


def test_a_tile_says_which_span_is_the_first_of_its_call_wherever_the_call_lies():
    builder = SpanBuilder(["host", "main", "aux"])
    builder.add(SpanKind.GRAPH_LAUNCH, "launch", "host", 0, 5000, correlation=0)
    builder.add(GRAPH, "graph", "main", 10, 9000, correlation=0)
    for number in range(4):
        builder.add(KERNEL, "k", "main", 20 + 1000 * number, 30 + 1000 * number, correlation=0)
    builder.add(KERNEL, "alone", "aux", 4500, 4600)
    one = Tiles(as_groups([trace_of(builder.build())]))
    spans = one.groups[0].trace.spans
    first = int(np.flatnonzero(spans.kind == KERNEL)[0])
    for windows in ([0, 12, 0], [0, 8, 0], [0, 10, 2]):
        tile = ask(one, type="tile", windows=[windows])
        assert ((column(tile, 0, "span") == first) == column(tile, 0, "first")).all()
    late = ask(one, type="tile", windows=[[0, 10, 2]])  # From 2,048 ns on: the launch is there, the first kernel is not.
    assert first not in column(late, 0, "span")
    assert SpanKind.GRAPH_LAUNCH in column(late, 0, "kind")


def test_a_search_has_its_own_hits_though_another_thread_searches():
    class Tiles:
        """Another search ends as soon as this one has."""

        parts = ()
        found = property(lambda self: (("other", "", None), ["hits of another"]), lambda self, value: None)

    assert hits_of(Tiles(), {"code": None, "text": "gemm"}) == []
