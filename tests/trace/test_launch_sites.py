"""Launch sites: checked, written and read back; and the innermost interval at a time."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo, LaunchSites, Site, SpanTable, Trace, TraceInfo
from streamscope.trace.launch_sites import MOST_CALLERS, are_sites
from streamscope.trace.nesting import innermost, innermost_on

SITES = (Site("forward", "model.py", 12, "Linear_0", defined=True), Site("loss", "model.py", 3), Site(module="ReLU_0"))


@given(st.sets(st.integers(0, 2**31 - 2), max_size=20), st.data())
def test_what_is_stored_is_read_back(rows, data):
    found = LaunchSites(np.array(sorted(rows), np.int64), np.array([data.draw(st.integers(0, 2)) for _ in rows], np.int64), SITES)
    assert LaunchSites.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_callers_are_stored_once():
    outer = Site("step", "train.py", 3)
    inner = outer._replace(module="Net_0", caller=outer)
    leaves = tuple(Site("forward", "model.py", line, "Net_0", caller=inner) for line in (1, 2))
    found = LaunchSites(np.array([1, 2, 3]), np.array([0, 1, 2]), (*leaves, outer))
    stored = found.to_dict()
    assert len(stored["callers"]) == 2
    back = LaunchSites.from_dict(json.loads(json.dumps(stored)))
    assert back == found
    assert back.sites[1].callers == (outer, inner)
    assert back.sites[0].caller is back.sites[1].caller


def test_parquet_keeps_them(tmp_path):
    spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    trace = Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "H")), sites=LaunchSites(np.array([1, 2]), np.array([2, 0]), SITES))
    back = ss.read(trace.to_parquet(tmp_path / "step.parquet"))
    assert back.sites == trace.sites
    assert back.sites.sites[0].defined is True


@pytest.mark.parametrize(
    ("span", "site", "sites"),
    [
        ([1, 1], [0, 0], SITES),
        ([1], [3], SITES),
        ([1], [-1], SITES),
        ([1], [0], [*SITES]),
        ([1], [0], (("f", "g", 1, "m", False),)),
        ([1], [0], (Site("f", "g", -1),)),
        ([1], [0], (Site("f", None, 1),)),
        ([1], [0], (Site("f", "g", 1, "m", defined=2),)),
        ([1], [0], (Site("f", "g", 1, "m", caller=("f", "g", 1, "m", False, None)),)),
    ],
)
def test_what_is_no_site_is_refused(span, site, sites):
    with pytest.raises(TraceError):
        LaunchSites(np.array(span), np.array(site), sites)


def test_a_site_of_a_call_is_refused():
    spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("kernel", "a", "main", 5, 25, 0))
    with pytest.raises(TraceError, match="launch sites must name rows with work of a GPU"):
        Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "H")), sites=LaunchSites(np.array([0]), np.array([0]), SITES))


@pytest.mark.parametrize(
    "stored",
    [
        {"span": [1], "site": [0], "sites": [[0, 0, 0, 1, 0]], "texts": []},
        {"span": [1], "site": [0], "sites": [[-1, 0, 0, 1, 0]], "texts": ["a"]},
        {"span": [1], "site": [0], "sites": [[0, 0, 0, 1, 2]], "texts": ["a"]},
        {"span": [1], "site": [0], "sites": [[0, 0, 0]], "texts": ["a"]},
        {"span": [1], "site": [0], "sites": [["0", 0, 0, 1, 0]], "texts": ["a"]},
        {"span": [1], "site": [0], "sites": [[0, 0, 0, 1, 0, 0]], "texts": ["a"]},
        {"span": [1], "site": [0], "sites": [[0, 0, 0, 1, 0, -1]], "callers": [[0, 0, 0, 1, 0]], "texts": ["a"]},
        {"span": [1], "site": [0], "sites": [[0, 0, 0, 1, 0, 0]], "callers": [[0, 0, 0, 1, 0, 0]], "texts": ["a"]},
        {
            "span": [1],
            "site": [0],
            "sites": [[0, 0, 0, 1, 0, 99]],
            "texts": ["a"],
            "callers": [[0, 0, 0, 1, 0], *([0, 0, 0, 1, 0, at] for at in range(99))],
        },
    ],
)
def test_what_was_not_stored_so_is_refused(stored):
    with pytest.raises((LookupError, TypeError, ValueError, TraceError)):
        LaunchSites.from_dict(stored)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12),
    st.lists(st.integers(-2, 45), max_size=12),
)
def test_the_innermost_is_the_last_begun_of_those_around(intervals, times):
    """Whether they nest or not."""
    start = np.array([begin for begin, _ in intervals], np.int64)
    end = start + np.array([length for _, length in intervals], np.int64)
    found = innermost(start, end, np.array(times, np.int64)).tolist()
    for time, one in zip(times, found, strict=True):
        around = [at for at in range(len(start)) if start[at] <= time < end[at]]
        best = max(((start[at], -end[at]) for at in around), default=None)
        assert (one >= 0) == bool(around)
        assert one < 0 or (start[one], -end[one]) == best


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12)), max_size=12),
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-2, 35)), max_size=12),
)
def test_each_thread_has_its_own_intervals(intervals, asked):
    thread, start, length = (np.array([row[at] for row in intervals], np.int64) for at in range(3))
    threads, times = (np.array([row[at] for row in asked], np.int64) for at in range(2))
    expected = np.full(len(asked), -1)
    for one in range(-1, 4):
        rows = np.flatnonzero(thread == one)
        found = innermost(start[rows], (start + length)[rows], times[threads == one])
        expected[threads == one] = np.concatenate([rows, [-1]])[found]
    assert innermost_on(thread, start, start + length, threads, times).tolist() == expected.tolist()


def test_callers_are_checked_and_at_most_so_many():
    stack = Site("f", "a.py", 1)
    for line in range(2, MOST_CALLERS + 2):
        stack = Site("f", "a.py", line, caller=stack)
    assert are_sites((stack, *(Site("g", "a.py", line, caller=stack.caller) for line in range(1000))))
    for wrong in (Site(caller=stack), Site(caller=Site(caller=stack)), Site(caller="f"), None, stack._replace(caller=Site(line=-1))):
        assert not are_sites((stack, wrong))
