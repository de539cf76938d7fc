"""Times that cannot be: what has no time, lies far away or runs over later work is left out, and never decides about the others."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.databases import BASE, nsight, rocpd
from tests.formats.kineto_files import call, content, dumps, event, kernel, rows, us

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.trace import SpanKind
from streamscope.trace.activities import Activities
from streamscope.trace.plausibility import recorded

DAY_NS = 24 * 3600 * 10**9
BASE_NS = 1_763_000_000_000_000_000


def written(tmp_path, events, **beside):
    (tmp_path / "t.json").write_text(dumps(content(events, **beside)), encoding="utf-8")
    return tmp_path / "t.json"


def step(at_ns, count):
    """Return kernels of 5 µs, each 10 µs after its call, every 20 µs."""
    calls = [call("cudaLaunchKernel", at_ns + 20_000 * row, at_ns + 20_000 * row + 4000, row + 1) for row in range(count)]
    kernels = [kernel("k", at_ns + 20_000 * row + 10_000, at_ns + 20_000 * row + 15_000, row + 1) for row in range(count)]
    return [*calls, *kernels]


@pytest.mark.parametrize(("good", "bad"), [(400, 600), (999, 1), (2, 600)])
@pytest.mark.parametrize("days", [0.001, 16, 60])
def test_records_without_a_time_are_left_out_and_counted_however_many_they_are(tmp_path, good, bad, days):
    """As pytorch #188481 and kineto #109 have them: ``ts`` 0 and ``dur`` 0."""
    timeless = [kernel("lost", 0, 0, 2000 + row) for row in range(bad)]
    found = ss.read(written(tmp_path, [*timeless, *step(int(days * DAY_NS), good)]))
    summary = ss.analysis.summary(found)
    assert (summary.kernel_count, summary.gpu_busy_us, summary.launch_latency.median_us) == (good, 5.0 * good, 10.0)
    assert summary.span_us == 20.0 * (good - 1) + 15
    assert found.info.notes == (f"left out: {bad} device span{'s' * (bad > 1)} without a time",)


@pytest.mark.parametrize(
    "timeless",
    [
        kernel("lost", -BASE_NS, -BASE_NS, 5000),  # 0, less the base
        kernel("lost", 0, 16 * DAY_NS, 5000),  # the end alone is known
        kernel("lost", 16 * DAY_NS, 0, 5000),  # the start alone is
        kernel("lost", 0, 0, 5000, device=1),
        event("gpu_memcpy", "Memcpy HtoD", 0, 0, device=0, stream=7, correlation=5000),
        call("cudaLaunchKernel", 0, 0, 5000),
        event("cpu_op", "op", 0, 0, tid=1),
    ],
)
def test_every_way_to_have_no_time_is_left_out(tmp_path, timeless):
    good = step(16 * DAY_NS, 5)
    wanted = ss.read(written(tmp_path, good))
    found = ss.read(written(tmp_path, [*good, *[timeless] * 50]))
    assert rows(found, "kind", "name", "lane", "start_ns", "end_ns") == rows(wanted, "kind", "name", "lane", "start_ns", "end_ns")
    assert len(found.info.notes) == 1
    assert found.info.notes[0].startswith(("left out: 50 device spans without a time", "left out: 50 calls and ranges without a time",
                                           "left out: 50 spans with an end before the start"))  # fmt: skip


def test_what_begins_at_the_clocks_zero_is_kept(tmp_path):
    events = [
        call("cudaLaunchKernel", 0, 0, 1),
        event("cpu_op", "op", 0, 0, tid=1),
        kernel("k", 0, 5, 1),
        kernel("late", 50 * 60 * 10**9, 51 * 60 * 10**9, 2),
    ]
    found = ss.read(written(tmp_path, events))
    assert len(found.spans) == 4
    assert found.info.notes == ("1 of 2 device spans without a launch call: launch latency unknown",)


def test_a_file_of_records_without_a_time_says_so(tmp_path):
    path = written(tmp_path, [call("cudaLaunchKernel", 5, 9, 1), *[kernel("lost", 0, 0, 1 + row) for row in range(3)]])
    with pytest.raises(TraceError, match="the times of all its 3 device spans are impossible: left out: 3 device spans without a time"):
        ss.read(path)


def test_times_in_ns_are_told_as_such(tmp_path):
    events = [one | {"ts": BASE_NS + 1000 * row, "dur": 5000} for row, one in enumerate(step(0, 3))]
    with pytest.raises(TraceError, match="its kernels are 73 years and more: 'ts' and 'dur' are in µs, and these look like ns"):
        ss.read(written(tmp_path, events))


@pytest.mark.parametrize(("make", "table"), [(nsight, "CUPTI_ACTIVITY_KIND_KERNEL"), (rocpd, "rocpd_kernel_dispatch_0a1b")])
@pytest.mark.parametrize("days", [0, 60])
def test_databases_have_records_without_a_time_too(tmp_path, make, table, days):
    path = make(tmp_path / "t.db")
    wanted = rows(ss.read(path), "kind", "name", "start_ns", "end_ns")
    with closing(sqlite3.connect(path)) as connection, connection:
        timed = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%start %end %'")]
        for name in timed:
            connection.execute(f"UPDATE {name} SET start = start + {days * DAY_NS}, end = end + {days * DAY_NS}")
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        kept = ", ".join("0" if column in ("start", "end") else column for column in columns)
        connection.execute(f"CREATE TABLE more AS SELECT {kept} FROM {table} LIMIT 1")
        for _ in range(40):
            connection.execute(f"INSERT INTO {table} SELECT * FROM more")
        connection.execute("DROP TABLE more")
    found = ss.read(path)
    assert rows(found, "kind", "name", "start_ns", "end_ns") == wanted
    assert "left out: 40 device spans without a time" in found.info.notes
    assert BASE > 3600 * 10**9 / 1000


@settings(max_examples=25)
@given(
    good=st.lists(st.integers(0, 10**12), min_size=1, max_size=20, unique=True),
    days=st.integers(53, 20_000),
    bad=st.integers(1, 60),
    before=st.booleans(),
)
def test_what_is_far_away_does_not_decide_even_where_it_is_more(good, days, bad, before):
    """Records whose time is wrong have one wrong time, or few."""
    away = np.full(bad, (-1 if before else 1) * days * DAY_NS)
    start = np.concatenate((np.array([*good, max(good) + 5], np.int64), away))
    count = len(start)
    said = []
    found = recorded(
        Activities(np.full(count, SpanKind.KERNEL, np.uint8), np.zeros(count, np.int64), start, start + 5, np.full(count, 7),
                   gpu=np.zeros(count, np.int64), names=("k",)), said, unknown_ns=()
    )  # fmt: skip
    assert sorted(found.start_ns.tolist()) == sorted([*good, max(good) + 5])
    assert said == [f"left out: {bad} span{'s' * (bad > 1)} more than 52 days away from the others"]


def test_a_kernel_that_would_run_over_later_ones_is_named_and_left_out(repository):
    found = ss.read(repository / "tests" / "data" / "cases" / "dur_overflow.json")
    summary = ss.analysis.summary(found)
    assert (summary.kernel_count, summary.gpu_busy_us, summary.span_us) == (28, 140.0, 595.0)
    assert found.info.notes == (
        "left out: 1 device span that would run over later ones of the same stream: 'k' of 1.60 s over 28 others",
        "1 launch call without a kernel, copy or set",
    )


def test_kernels_that_start_early_on_purpose_are_kept(repository):
    found = ss.read(repository / "tests" / "data" / "cases" / "pdl_overlap.json")
    summary = ss.analysis.summary(found)
    assert (summary.kernel_count, summary.gpu_busy_us) == (3, 24.0)
    assert found.info.notes == ("on further lanes (· 2): 1 device span that overlapped another of the same stream",)


def over(length_ns, *, inner=28, **args):
    """Return a kernel of this length in front of others of 5 µs on its stream."""
    return [kernel("long", 0, length_ns, 500, **args), *step(10_000, inner)]


def test_one_that_runs_over_others_does_not_make_its_gpu_the_busiest(tmp_path):
    elsewhere = [kernel("small", 1000, 2000, 600, device=1, stream=9)]
    assert ss.analysis.summary(ss.read(written(tmp_path, [*over(10**9), *elsewhere]))).gpu == 0
    late = [kernel("long", 0, 10**9, 900, device=1), *[kernel("small", 10 * row, 10 * row + 5, 901 + row, device=1) for row in range(5)]]
    assert ss.analysis.summary(ss.read(written(tmp_path, [*step(0, 5), *late]))).gpu == 0


@pytest.mark.parametrize(
    "events",
    [
        over(10**9, graph_node_id=3),  # a branch of a graph
        [kernel("long", 0, 10**9, 1), *[kernel("k", 10 * row, 10 * row + 5, 1) for row in range(9)]],  # one launch of a graph
        over(10**9, stream=8),  # another stream
        [each | {"args": each["args"] | {"context": 1 + (each["name"] == "long")}} for each in over(10**9)],  # a stream of another context
        over(45_000, inner=2),  # work that was launched early behind work that was launched early
        [
            *[kernel("long", 1000 * row, 1000 * row + 900, 1 + row) for row in range(30)],
            *[kernel("k", 100 * row + 1, 100 * row + 6, 100 + row) for row in range(300)],
        ],
        over(1_000_000),  # NCCL's kernel beside those of another stream, where all streams have one number
        over(10**9, stream=-1) + [kernel("k", 100 * row, 100 * row + 5, 900 + row, stream=-1) for row in range(9)],
        [*over(10**9), call("cudaDeviceSynchronize", 900_000, 10**9 + 5000, 700)],  # somebody waited for it
    ],
    ids=["graph", "launch", "stream", "context", "early", "streams that the file does not tell apart", "one number", "no stream", "waited"],
)  # fmt: skip
def test_what_may_run_side_by_side_is_kept(tmp_path, events):
    found = ss.read(written(tmp_path, events))
    assert ss.analysis.kernel_count(found.spans) == sum(each["cat"] == "kernel" for each in events)
    assert not any("run over" in note for note in found.info.notes)


def streamless(events, stream):
    return [
        one | {"args": {**one["args"], "stream": stream}, "tid": None} if one["cat"] in ("kernel", "gpu_memcpy") else one for one in events
    ]


@pytest.mark.parametrize("stream", [None, -1, "-1", 2**32 - 1, 2**64 - 1, str(2**64 - 1)])
def test_order_says_nothing_where_streams_are_not_known(tmp_path, stream):
    found = ss.read(written(tmp_path, streamless(over(10**9), stream)))
    assert ss.analysis.summary(found).gpu_busy_us == 10**6
    assert not any("left out" in note for note in found.info.notes)


@pytest.mark.parametrize("wrong", [{5, 6, 7, 8}, {0, 30, 57, 58, 59}, set(range(0, 50, 2))])
def test_however_many_lengths_overflowed(tmp_path, wrong):
    """Each step of 20 µs has a kernel of 5 µs; those that go on for 1.6 s are left out, the last ones too."""
    late = [kernel("k", 20_000 * row + 10_000, 20_000 * row + 1_600_010_000, row + 1) for row in wrong]
    good = [one for one in step(0, 60) if one["cat"] != "kernel" or one["args"]["correlation"] - 1 not in wrong]
    found = ss.read(written(tmp_path, [*good, *late]))
    assert (ss.analysis.kernel_count(found.spans), ss.analysis.gpu_busy_ns(found.spans)) == (60 - len(wrong), 5000 * (60 - len(wrong)))
    assert found.info.notes[0].startswith(
        f"left out: {len(wrong)} device spans that would run over later ones of the same stream: 'k' of 1.60 s"
    )


@pytest.mark.parametrize(("stream", "left"), [(2, 5), (-1, 6)])
def test_what_shares_a_queue_may_be_of_several_streams(tmp_path, stream, left):
    """A kernel of a second before four others: wrong on one stream, and possible where only the queue of both is known."""
    path, table = rocpd(tmp_path / "t.db"), "rocpd_kernel_dispatch_0a1b"
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for row in range(5):
            start = BASE + 6000 + 1000 * row
            values = {"start": start, "end": start + (10**9 if row == 0 else 500), "event_id": 50 + row}
            kept = ", ".join(str(values.get(column, column)) for column in columns)
            connection.execute(f"INSERT INTO {table} SELECT {kept} FROM {table} LIMIT 1")
            connection.execute(f"INSERT INTO rocpd_event_0a1b (id, stack_id, category_id) VALUES ({50 + row}, {500 + row}, 0)")
        connection.execute(f"UPDATE {table} SET stream_id = {stream}")
    assert ss.analysis.kernel_count(ss.read(path).spans) == left


@pytest.mark.parametrize(("waited_ns", "left"), [(950_000, 299), (None, 300), (2_000_000_000, 300)])
def test_what_was_waited_for_is_over_whatever_comes_behind_it(tmp_path, waited_ns, left):
    """A kernel of 1.6 s in a recording of 6 s, all on one number of a stream; the device was idle 0.95 ms after the start, or later."""
    long = [call("cudaLaunchKernel", 0, 4000, 900), kernel("long", 10_000, 1_600_000_000, 900)]
    waits = [call("cudaDeviceSynchronize", 900_000, waited_ns, 901)] if waited_ns else []
    spread = [
        one | {"ts": us(1_000_000 + 20_000_000 * (one["args"]["correlation"]) + (one["cat"] == "kernel") * 10_000)} for one in step(0, 299)
    ]
    found = ss.read(written(tmp_path, [*long, *waits, *spread]))
    assert ss.analysis.kernel_count(found.spans) == left
    said = "left out: 1 device span that would go on after the device was waited for, such as 'long' of 1.60 s"
    assert (said in found.info.notes) == (left == 299)
