"""Graphs made of a captured one: with a driver that keeps graphs as Python objects."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from tests.devices.test_changed_edges import PROGRAMMATIC, ancestors, graphs

from streamscope.devices.cuda import graph_nodes, raw_graph
from streamscope.devices.cuda.captures import CAPTURES
from streamscope.devices.cuda.raw_graph import FULL, RawGraph
from streamscope.devices.graph_node import NO_OPERATION
from streamscope.errors import DeviceError, HungError


def words(address, count):
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64)), (count,))


class Driver:
    """Graphs by address: nodes in the order in which they were added, and edges with their data. A clone adds 1,000 to each address."""

    def __init__(self, nodes, edges):
        self.graphs = {1: (list(nodes), dict(edges))}
        self.destroyed, self.events, self.refused = [], {}, ""
        self.types, self.copied_from, self.attributes_of = {}, {}, {}

    def __call__(self, name, *arguments):
        if name == self.refused:
            raise DeviceError(f"{name} failed")
        getattr(self, name.removesuffix("_v2"))(*arguments)

    def cuGraphClone(self, clone, graph):  # noqa: N802
        nodes, edges = self.graphs[graph.value]
        clone._obj.value = max(self.graphs) + 1000
        moved = {(a + 1000, b + 1000): kind for (a, b), kind in edges.items()}
        self.graphs[clone._obj.value] = ([node + 1000 for node in nodes], moved)

    def cuGraphGetNodes(self, graph, nodes, count):  # noqa: N802
        found = self.graphs[graph.value][0]
        if nodes is not None:
            words(nodes, len(found))[:] = found
        count._obj.value = len(found)

    def cuGraphGetEdges(self, graph, sources, targets, kinds, count):  # noqa: N802
        edges = self.graphs[graph.value][1]
        if sources is not None:
            for address, values in ((sources, [a for a, _ in edges]), (targets, [b for _, b in edges]), (kinds, list(edges.values()))):
                words(address, len(edges))[:] = values
        count._obj.value = len(edges)

    def cuGraphNodeFindInClone(self, found, node, clone):  # noqa: N802
        assert node.value + 1000 in self.graphs[clone.value][0]
        found._obj.value = node.value + 1000

    def cuGraphRemoveDependencies(self, graph, sources, targets, kinds, count):  # noqa: N802
        for a, b, kind in zip(*(words(each, count.value).tolist() for each in (sources, targets, kinds)), strict=True):
            assert self.graphs[graph.value][1].pop((a, b)) == kind

    def cuGraphAddDependencies(self, graph, sources, targets, kinds, count):  # noqa: N802
        for a, b, kind in zip(*(words(each, count.value).tolist() for each in (sources, targets, kinds)), strict=True):
            assert self.graphs[graph.value][1].setdefault((a, b), kind) == kind

    def cuGraphCreate(self, graph, flags):  # noqa: N802
        graph._obj.value = max(self.graphs) + 1000
        self.graphs[graph._obj.value] = ([], {})

    def cuCtxGetCurrent(self, context):  # noqa: N802
        context._obj.value = 5

    def cuGraphNodeGetType(self, node, kind):  # noqa: N802
        kind._obj.value = self.types.get(node.value, 0)

    def _parameters(self, node, parameters):
        words(ctypes.addressof(parameters), 1)[0] = node.value

    def _add(self, node, graph, before, count, parameters, context=None):
        assert (before, count.value) == (None, 0)
        original = int(words(ctypes.addressof(parameters), 1)[0])
        assert (context is None) == (self.types.get(original, 0) == 0)
        # Not 1,000 more: an address of a copy says nothing of what it is a copy of.
        node._obj.value = 5000 + 7 * len(self.graphs[graph.value][0])
        self.graphs[graph.value][0].append(node._obj.value)
        self.copied_from[node._obj.value] = original

    cuGraphKernelNodeGetParams = cuGraphMemcpyNodeGetParams = cuGraphMemsetNodeGetParams = _parameters  # noqa: N815
    cuGraphAddKernelNode = cuGraphAddMemcpyNode = cuGraphAddMemsetNode = _add  # noqa: N815

    def cuGraphKernelNodeCopyAttributes(self, copy, node):  # noqa: N802
        self.attributes_of[copy.value] = node.value

    def cuGraphAddEventRecordNode(self, node, graph, before, count, event):  # noqa: N802
        assert count.value == 1
        self.events[before._obj.value - 1000] = event.value


@pytest.fixture
def driver(monkeypatch):
    return install(monkeypatch, Driver([10, 11, 12], {(10, 11): PROGRAMMATIC, (11, 12): FULL}))


def install(monkeypatch, made):
    runtime = SimpleNamespace(graphDestroy=made.destroyed.append)
    stream = SimpleNamespace(Stream=lambda non_blocking: "stream")
    monkeypatch.setattr(raw_graph, "_call", made)
    monkeypatch.setattr(graph_nodes, "driver_call", lambda *call: made(*call) or 0)
    monkeypatch.setattr(raw_graph, "libraries", lambda: SimpleNamespace(runtime=runtime, cupy=SimpleNamespace(cuda=stream)))
    monkeypatch.setattr(raw_graph, "CudaGraph", lambda clone, captures, stream: SimpleNamespace(captured=clone, kept=None))
    return made


def between_operations(driver, graph, nodes):
    """Return the edges of a graph by the numbers of its nodes."""
    number = {node + 1000: index for index, node in enumerate(nodes)}
    return {(number[a], number[b]): kind for (a, b), kind in driver.graphs[graph.captured][1].items()}


CHAIN = ((), (0,), (1,))


def test_the_capture_stays_as_it_was_and_its_clone_is_the_same(driver):
    raw = RawGraph(1, [10, 11, 12], CHAIN, nullcontext, "kept")
    made, operations = raw.graph(CHAIN)
    assert operations == (0, 1, 2)
    assert made.kept == "kept"
    assert between_operations(driver, made, [10, 11, 12]) == {(0, 1): PROGRAMMATIC, (1, 2): FULL}
    raw.graph(((), (0,), (0,)))
    assert driver.graphs[1] == ([10, 11, 12], {(10, 11): PROGRAMMATIC, (11, 12): FULL})


def test_another_order_replaces_edges_and_leads_to_no_empty_node(monkeypatch):
    # 10 → empty 99 → 11, and 10 → 12 by a programmatic edge. Operations are numbered otherwise than nodes were added.
    made = install(monkeypatch, Driver([12, 99, 10, 11], {(10, 99): FULL, (99, 11): FULL, (10, 12): PROGRAMMATIC}))
    raw = RawGraph(1, [10, 12, 11], ((), (0,), (0,)), nullcontext, None)
    graph, operations = raw.graph(((), (0,), (1,)))
    assert operations == (1, NO_OPERATION, 0, 2)
    assert between_operations(made, graph, [10, 12, 11]) == {(0, 1): PROGRAMMATIC, (1, 2): FULL}


def test_nodes_that_are_added_in_another_order_are_copies_with_all_their_attributes(monkeypatch):
    # 99 is an empty node, 11 a copy, 12 a set.
    made = install(monkeypatch, Driver([10, 99, 11, 12], {(10, 99): FULL, (99, 11): FULL, (11, 12): FULL}))
    made.types = {99: 5, 11: 1, 12: 2}
    raw = RawGraph(1, [10, 11, 12], CHAIN, nullcontext, "kept")
    graph, operations = raw.graph(((), (0,), (0,)), {2: SimpleNamespace(pointer=77)}, (2, 0, 1))
    assert operations == (2, 0, 1, NO_OPERATION)
    nodes, edges = made.graphs[graph.captured]
    assert [made.copied_from[node] for node in nodes] == [12, 10, 11]
    assert {(made.copied_from[a], made.copied_from[b]): kind for (a, b), kind in edges.items()} == {(10, 11): FULL, (10, 12): FULL}
    assert [made.copied_from[each] for each in made.attributes_of] == [*made.attributes_of.values()] == [10]
    assert made.events == {nodes[0] - 1000: 77}
    assert graph.kept == "kept"


@pytest.mark.parametrize(
    ("edges", "types", "kinds"),
    [
        (CHAIN, {}, (FULL, FULL)),  # The capture's own order is the capture.
        (((), (0,), (0,)), {12: 3}, (FULL, FULL)),  # A host function.
        (((), (0,), (0,)), {}, (FULL, PROGRAMMATIC)),
    ],
)
def test_what_copies_would_not_be_stays_as_it_was_added(monkeypatch, edges, types, kinds):
    made = install(monkeypatch, Driver([10, 11, 12], dict(zip(((10, 11), (11, 12)), kinds, strict=True))))
    made.types = types
    _, operations = RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None).graph(edges, added=(2, 1, 0))
    assert operations == (0, 1, 2)
    assert made.copied_from == {}


def test_a_record_that_is_no_operation_is_in_no_other_order(monkeypatch):
    made = install(monkeypatch, Driver([10, 99, 11, 12], {(10, 99): FULL, (99, 11): FULL, (11, 12): FULL}))
    made.types = {99: 7}
    raw = RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None)
    graph, operations = raw.graph(((), (0,), (0,)))
    assert [made.copied_from[node] for node in made.graphs[graph.captured][0]] == [10, 11, 12]
    assert operations == (0, 1, 2)
    assert raw.graph(CHAIN)[1] == (0, NO_OPERATION, 1, 2)


def test_a_graph_of_copies_that_cannot_be_made_is_destroyed(monkeypatch):
    made = install(monkeypatch, Driver([10, 11, 12], {}))
    made.refused = "cuGraphKernelNodeCopyAttributes"
    with pytest.raises(DeviceError, match="CopyAttributes"):
        RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None).graph(((), (), ()), added=(2, 1, 0))
    assert made.destroyed == [1001]


def test_events_are_recorded_behind_operations_and_are_no_operations(driver):
    raw = RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None)
    _, operations = raw.graph(CHAIN, {2: SimpleNamespace(pointer=77), 0: SimpleNamespace(pointer=78)})
    assert operations == (0, 1, 2, NO_OPERATION, NO_OPERATION)
    assert driver.events == {12: 77, 10: 78}


def test_a_clone_that_cannot_be_changed_is_destroyed(driver):
    driver.refused = "cuGraphAddDependencies_v2"
    with pytest.raises(DeviceError, match="AddDependencies"):
        RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None).graph(((), (0,), (0,)))
    assert driver.destroyed == [1001]
    assert not CAPTURES.active


def test_nothing_is_cloned_where_an_order_is_refused(driver):
    raw = RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None)
    raw.check = {}.__getitem__
    with pytest.raises(KeyError):
        raw.graph(CHAIN)
    assert list(driver.graphs) == [1]


@given(graphs())
def test_any_graph_gets_any_order(drawn):
    kinds, wanted = drawn
    nodes = range(10, 10 + len(wanted))
    with pytest.MonkeyPatch.context() as patch:
        made = install(patch, Driver(nodes, {(a + 10, b + 10): kind for (a, b), kind in kinds.items()}))
        graph, _ = RawGraph(1, list(nodes), ((),) * len(wanted), nullcontext, None).graph(wanted)
    found = between_operations(made, graph, nodes)
    if wanted == ((),) * len(wanted):
        assert found == kinds  # The capture's own edges, as the test has it.
        return
    pairs = {(earlier, number) for number, after in enumerate(wanted) for earlier in after}
    assert ancestors(found, len(wanted)) == ancestors(pairs, len(wanted))


def test_orders_are_measured_once_and_what_they_change_is_put_back(driver, monkeypatch):
    said = []

    @contextmanager
    def keeping():
        said.append("kept")
        yield
        said.append("put back")

    monkeypatch.setattr(raw_graph, "_median_times_us", lambda graphs, *_: [float(len(said)) * graph.captured for graph in graphs])
    monkeypatch.setattr(RawGraph, "_replay_first", lambda raw, edges, added: said.append(f"first replay of {edges}"))
    raw = RawGraph(1, [10, 11, 12], CHAIN, keeping, None)
    other = ((), (), ())
    assert raw.times_us([CHAIN, other, CHAIN]) == [2 * 1001.0, 2 * 2001.0, 2 * 1001.0]
    assert said == ["kept", f"first replay of {other}", "put back"]
    assert raw.times_us([other]) == [2 * 2001.0]
    assert len(said) == 3
    raw.times_us([other], [(2, 1, 0)])  # Added otherwise, it is another graph.
    assert len(said) == 6


def test_a_replay_that_hangs_is_an_error_and_its_graphs_are_kept(driver, monkeypatch):
    monkeypatch.setattr(raw_graph, "STUCK_S", 0.0)
    monkeypatch.setattr(raw_graph, "event_done", lambda pointer: False)
    with pytest.raises(HungError, match="did not finish within 0 µs"):
        raw_graph._wait(SimpleNamespace(ptr=7))

    def hang(graphs, *_):
        raise HungError("it hangs")

    monkeypatch.setattr(raw_graph, "_median_times_us", hang)
    monkeypatch.setattr(raw_graph, "_HUNG", [])
    raw = RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None)
    with pytest.raises(HungError):
        raw.times_us([CHAIN])
    assert [one[0] for one in raw_graph._HUNG] == [raw]


def test_what_the_host_waits_is_the_mean_of_many_turns_without_the_slowest_tenth(monkeypatch):
    """One graph now takes 100 and now 120 µs, another 105 and once in 15 turns 9,000: a median would take the one for 100, or for 120."""
    now_ns, recorded = [0], []

    class Replayed:
        def __init__(self, name, times_us):
            self.name, self.times_us = name, times_us

        def launch_on(self, stream):
            recorded.append(self.name)
            now_ns[0] += 1000 * self.times_us[recorded.count(self.name) % len(self.times_us)]

    def put_back():
        now_ns[0] += 10**9  # Does not count.

    event = SimpleNamespace(record=lambda stream: None, ptr=0)
    cupy = SimpleNamespace(cuda=SimpleNamespace(Event=lambda disable_timing: event))
    monkeypatch.setattr(raw_graph, "libraries", lambda: SimpleNamespace(cupy=cupy))
    monkeypatch.setattr(raw_graph, "event_done", lambda pointer: True)
    monkeypatch.setattr(raw_graph, "time", SimpleNamespace(perf_counter_ns=lambda: now_ns[0], monotonic=lambda: 0.0))
    graphs = [Replayed("one", [100, 120]), Replayed("other", [105] * 14 + [9000])]
    stream = SimpleNamespace(ptr=0)
    assert raw_graph._mean_waits_us(graphs, stream, put_back) == [pytest.approx((30 * 100 + 24 * 120) / 54), 105.0]
    assert recorded == ["one", "other"] * 61


def test_orders_are_measured_once_by_the_device_and_once_by_the_host_on_graphs_made_anew(driver, monkeypatch):
    made, raw = [], RawGraph(1, [10, 11, 12], CHAIN, nullcontext, None)
    for name, factor in (("_median_times_us", 1.0), ("_mean_waits_us", 2.0)):
        measure = lambda graphs, *_, factor=factor: made.append(graphs) or [factor * graph.captured for graph in graphs]  # noqa: E731
        monkeypatch.setattr(raw_graph, name, measure)
    for _ in range(2):
        (time_us,), (wait_us,) = raw.times_us([CHAIN]), raw.waits_us([CHAIN])
    assert len(made) == 2
    assert (time_us, wait_us) == (float(made[0][0].captured), 2.0 * made[1][0].captured)
    assert made[0][0] is not made[1][0]
