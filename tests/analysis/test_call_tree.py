"""Time by code as a tree: a small trace worked out by hand, and sums that are those of the table for any trace."""

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis.call_tree import NOT_ATTRIBUTED, SMALLER
from streamscope.analysis.code import UNKNOWN
from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo, LaunchSites, Origins, Site, SpanTable, Trace, TraceInfo

INFO = TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"))
SITES = (Site("forward", "model.py", 12, "Net_0", defined=True), Site("", "", 0, "ReLU_0"))


def rows_of(tree):
    """Path and numbers of each frame."""
    return {
        "/".join(frame.name for frame in tree.path(number)): tuple(tree.costs[:, number].tolist()) for number in range(len(tree.frames))
    }


@pytest.fixture
def trace():
    """Four launches and a kernel without one. The GPU is idle from 0 to 10, 40 to 50, and, after its last work, 90 to 100."""
    spans = SpanTable.of(
        ("range", "step", "thread 1 ranges", 0, 100),
        ("range", "inner", "thread 1 ranges", 4, 8),
        ("launch", "call", "thread 1", 0, 2, 0),
        ("launch", "call", "thread 1", 4, 6, 1),
        ("launch", "call", "thread 1", 8, 9, 2),
        ("kernel", "gemm", "stream 7", 10, 30, 0),
        ("kernel", "ncclDevKernel_AllReduce_Sum", "stream 20", 25, 40, 1),
        ("copy", "Memcpy", "stream 7", 50, 60, 2),
        ("kernel", "late", "stream 7", 60, 90),
        ("sync", "wait", "thread 1", 90, 100),
    )
    row = {spans.names[spans.name[at]]: at for at in range(len(spans))}
    sites = LaunchSites(np.array([row["gemm"], row["ncclDevKernel_AllReduce_Sum"]]), np.array([0, 1]), SITES)
    return Trace(spans, INFO, sites=sites)


def test_a_frame_has_the_time_of_all_frames_in_it(trace):
    tree = ss.analysis.call_tree(trace)
    assert rows_of(tree) == {
        "": (3, 75, 10, 30),
        UNKNOWN: (0, 10, 0, 10),
        NOT_ATTRIBUTED: (1, 30, 0, 10),
        "Net_0": (1, 20, 0, 10),
        "Net_0/forward": (1, 20, 0, 10),
        "Net_0/forward/gemm": (1, 20, 0, 10),
        "ReLU_0": (1, 15, 10, 0),
        "ReLU_0/ncclDevKernel_AllReduce_Sum": (1, 15, 10, 0),
        f"{UNKNOWN}/Memcpy": (0, 10, 0, 10),
        f"{NOT_ATTRIBUTED}/late": (1, 30, 0, 0),
    }
    assert tree.defined
    assert tree.frames[[frame.name for frame in tree.frames].index("forward")] == ("forward", "model.py", 12, "function")
    net = [frame.name for frame in tree.frames].index("Net_0")
    assert [trace.spans.names[trace.spans.name[row]] for row in tree.under(net)] == ["gemm"]
    assert len(tree.under(0)) == 4


def test_paths_of_modules_that_call_each_other_name_each_once(trace):
    step = Site("step", "train.py", 3)
    net = step._replace(module="Net", caller=step)
    forward = Site("forward", "model.py", 7, "Net", caller=net)
    block = forward._replace(module="layer1.0", caller=forward)
    inner = Site("forward", "block.py", 9, "layer1.0", caller=block)
    leaf = inner._replace(module="layer1.0.conv1", caller=inner)
    tree = ss.analysis.call_tree(replace(trace, sites=replace(trace.sites, sites=(leaf, step))))
    assert "step/Net/forward/layer1/layer1.0/forward/layer1.0.conv1/gemm" in rows_of(tree)
    assert "step/ncclDevKernel_AllReduce_Sum" in rows_of(tree)


def test_ranges_lie_in_each_other(trace):
    found = rows_of(ss.analysis.call_tree(trace, "range"))
    assert found["step"] == (2, 45, 10, 20)
    assert found["step/inner"] == (1, 15, 10, 0)
    assert found["step/inner/ncclDevKernel_AllReduce_Sum"] == (1, 15, 10, 0)
    assert found[NOT_ATTRIBUTED] == (1, 30, 0, 10)


def test_captured_code_has_modules_in_modules_and_lines():
    spans = SpanTable.of(("launch", "a", "host", 0, 2, 0), ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 25, 30, 0))
    texts = ("encoder.0.query", "aten::relu", "net.py:7: y = f(x)")
    origins = Origins(texts, label=np.array([0, -1]), line=np.array([2, 2]), arguments=np.array([1, 1]))
    captured = Trace(replace(spans, operation=np.array([0, 0, 1])), INFO, origins)
    assert set(rows_of(ss.analysis.call_tree(captured))) == {
        "", "encoder", "encoder/encoder.0", "encoder/encoder.0/encoder.0.query", "encoder/encoder.0/encoder.0.query/y = f(x)",
        "encoder/encoder.0/encoder.0.query/y = f(x)/a", "y = f(x)", "y = f(x)/b",
    }  # fmt: skip
    assert set(rows_of(ss.analysis.call_tree(captured, "range"))) == {
        "", "encoder.0.query", "encoder.0.query/aten::relu", "encoder.0.query/aten::relu/a", "aten::relu", "aten::relu/b",
    }  # fmt: skip


times = st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(-1, 6), st.integers(0, 2), st.booleans())


def traces():
    """Launches and kernels at random, ranges that nest, and sites."""

    def make(rows):
        spans = [("launch", f"call {at}", "host", at, at + 1, at) for at in range(7)]
        spans += [("range", f"range {at % 3}", "host ranges", at, 20 - at) for at in range(5)]
        spans += [
            ("copy" if other else "kernel", f"{'nccl ' * (name == 2)}{name}", f"stream {at}", start, start + length, call)
            for at, (start, length, call, name, other) in enumerate(rows)
        ]
        table = SpanTable.of(*sorted(spans, key=lambda row: row[3]))
        device = np.flatnonzero(table.kind >= 8)[::2]
        sites = LaunchSites(device, np.arange(len(device)) % 3, (*SITES, Site("loss", "train.py", 40)))
        return Trace(table, INFO, sites=sites)

    return st.lists(times, min_size=1, max_size=20).map(make)


@given(traces())
@settings(max_examples=30)
def test_sums_are_those_of_the_table(trace):
    found = {by: ss.analysis.by_code(trace, by) for by in ("line", "module", "range")}
    total = found["line"]
    for by, tree in (("code", ss.analysis.call_tree(trace)), ("range", ss.analysis.call_tree(trace, "range"))):
        assert tree.costs[:, 0].tolist() == [total.kernels, total.gpu_ns, total.exposed_ns, total.idle_ns]
        for column in tree.costs:
            assert (np.bincount(tree.parent[1:], column[1:], len(tree.frames)) <= column).all()
        sums = {kind: Counter() for kind in ("line", "module", "range")}
        for number, leaf in enumerate(tree.frames):
            if leaf.kind != "kernel":
                continue
            for kind, counted in sums.items():
                of_kind = ("function", "line") if kind == "line" else (kind,)
                inner = next((frame for frame in reversed(tree.path(number)) if frame.kind in of_kind), None)
                if inner:
                    counted[inner[:3]] += int(tree.costs[1, number])
        for kind in ("line", "module") if by == "code" else ("range",):
            known = {(row.name, row.file, row.line or 0): row.gpu_ns for row in found[kind].rows if row.name != UNKNOWN and row.gpu_ns}
            assert +sums[kind] == known


def test_small_frames_are_joined_where_there_are_many(monkeypatch):
    rows = [("kernel", f"kernel {at:02}", "main", 100 * at, 100 * at + 2 * at + 1) for at in range(40)]
    trace = Trace(SpanTable.of(*rows), INFO)
    whole = ss.analysis.call_tree(trace)
    monkeypatch.setattr(sys.modules["streamscope.analysis.call_tree"], "MOST_FRAMES", 20)
    tree = ss.analysis.call_tree(trace)
    assert len(tree.frames) <= 20
    found = rows_of(tree)
    assert found[""] == rows_of(whole)[""]
    assert found[NOT_ATTRIBUTED] == rows_of(whole)[NOT_ATTRIBUTED]
    inside = [numbers for path, numbers in found.items() if path.startswith(f"{NOT_ATTRIBUTED}/")]
    assert sum(kernels for kernels, *_ in inside) == 40
    assert f"{NOT_ATTRIBUTED}/{SMALLER}" in found
    small = [frame.name for frame in tree.frames].index(SMALLER)
    assert len(tree.under(small)) == found[f"{NOT_ATTRIBUTED}/{SMALLER}"][0]


def test_what_cannot_be_divided_is_refused(trace):
    with pytest.raises(TraceError, match="by code or by range, not by 'line'"):
        ss.analysis.call_tree(trace, "line")
    with pytest.raises(TraceError, match=r'runs\["graph"\]\.trace'):
        ss.analysis.call_tree(trace.spans)
