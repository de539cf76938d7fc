"""Faster kernels in a run whose order stays, by hand."""

from streamscope.predicting.simulating import retimed
from streamscope.predicting.tasks import Task
from streamscope.trace import SpanBuilder, SpanKind, SpanTable
from streamscope.trace.origins import Trait


def times(spans):
    return list(zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True))


def task(*after, factor=1.0):
    return Task((0, 0), "k", Trait.CAPTURED, after, factor=factor)


def test_what_waits_for_a_faster_kernel_begins_earlier_by_as_much():
    spans = SpanTable.of(
        ("launch", "a", "host", 0, 3, 0), ("sync", "wait", "host", 3, 25), ("kernel", "a", "main", 10, 20, 0),
        ("launch", "b", "host", 25, 28, 1), ("sync", "wait", "host", 28, 50), ("kernel", "b", "main", 35, 45, 1),
    )  # fmt: skip
    found = retimed(spans, {2: 0, 5: 1}, [task(factor=0.5), task(0)])
    assert times(found) == [(0, 3), (3, 20), (10, 15), (20, 23), (23, 45), (30, 40)]
    without = retimed(spans, {2: 0, 5: 1}, [task(factor=0), task(0)])  # The wait still takes 5 ns to return.
    assert times(without) == [(0, 3), (3, 8), (8, 11), (11, 33), (18, 28)]


def test_what_comes_after_a_faster_kernel_of_another_stream_begins_earlier_by_as_much():
    spans = SpanTable.of(
        ("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 3, 6, 1),
        ("kernel", "a", "main", 10, 20, 0), ("kernel", "b", "aux", 22, 30, 1),
    )  # fmt: skip
    assert times(retimed(spans, {2: 0, 3: 1}, [task(factor=0.5), task(0)]))[2:] == [(10, 15), (17, 25)]
    assert times(retimed(spans, {2: 0, 3: 1}, [task(factor=0.5), task()]))[2:] == [(10, 15), (22, 30)]


def test_a_wait_that_ends_with_a_kernel_ends_with_it():
    spans = SpanTable.of(
        ("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 3, 6, 1), ("sync", "wait", "host", 6, 20),
        ("kernel", "a", "main", 8, 12, 0), ("kernel", "b", "main", 14, 20, 1),
    )  # fmt: skip
    assert times(retimed(spans, {3: 0, 4: 1}, [task(), task(0, factor=0.5)])) == [(0, 3), (3, 6), (6, 17), (8, 12), (14, 17)]


def test_a_wait_that_ends_with_work_of_no_length_ends_with_it():
    spans = SpanTable.of(
        ("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 3, 6, 1), ("sync", "wait", "host", 6, 25),
        ("kernel", "a", "main", 10, 20, 0), ("set", "b", "main", 25, 25, 1),
    )  # fmt: skip
    assert times(retimed(spans, {3: 0, 4: 1}, [task(factor=0.5), task(0)])) == [(0, 3), (3, 6), (6, 20), (10, 15), (20, 20)]


def test_the_replay_of_a_graph_lasts_from_its_first_node_to_its_last():
    builder = SpanBuilder(["main"])
    builder.add(SpanKind.GRAPH, "graph", "main", 5, 40, correlation=0)
    for node, start_ns in enumerate((10, 25)):
        builder.add(SpanKind.KERNEL, "k", "main", start_ns, start_ns + 10, correlation=0, graph_node=node)
    found = retimed(builder.build(), {1: 0, 2: 1}, [task(factor=0.5), task(0)])
    assert sorted(times(found)) == [(10, 15), (10, 30), (20, 30)]
