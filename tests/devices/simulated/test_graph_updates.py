"""Updating graphs: what is accepted, what it costs, and that pending replays keep what they were launched with."""

from __future__ import annotations

import pytest

from streamscope.devices.graph_node import NodeKind
from streamscope.devices.simulated.graphs import UPDATE_SHARE
from streamscope.errors import DeviceError, EngineError
from streamscope.program.launch import LaunchKind


def capture(device, stream, *calls, update=None):
    device.begin_capture(stream)
    for call in calls:
        call()
    return device.end_capture(stream, update)


def test_an_update_costs_its_share_and_returns_the_same_graph(bench):
    device, main = bench.device, bench.device.stream("main")
    graph = capture(device, main, bench.kernel(main, 100), bench.kernel(main, 100))
    other = [bench.kernel(main, 300), bench.kernel(main, 300)]
    start = device.now_ns()
    assert capture(device, main, *other, update=graph) is graph
    # Two launches of 100 ns are captured; instantiating costs 500 ns.
    assert device.now_ns() - start == round(200 + UPDATE_SHARE * 500)
    assert graph.refused == ""
    graph.launch(main)
    device.synchronize()
    assert [end - start for start, end in bench.spans()] == [300, 300]


def test_a_replay_that_is_pending_is_not_changed(bench):
    device, main = bench.device, bench.device.stream("main")
    first, second, total = bench.buffer(1.0), bench.buffer(10.0), bench.buffer(0.0)
    add = [bench.compute(main, lambda a, b: a + b, [buffer, total], [total]) for buffer in (first, second)]
    gate = device.gate()
    graph = capture(device, main, add[0])
    gate.hold(main)
    graph.launch(main)
    assert capture(device, main, add[1], update=graph) is graph
    graph.launch(main)
    gate.open()
    device.synchronize()
    assert bench.value(total) == 11.0


def test_refusals(bench):
    device, main, side = bench.device, bench.device.stream("main"), bench.device.stream("side")
    event, join = device.event(), device.event()

    def fork():
        main.record(event)
        side.wait(event)

    def joined():
        side.record(join)
        main.wait(join)

    kernels = [bench.kernel(main, 100) for _ in range(2)]
    copy, aside = bench.copy(main, LaunchKind.COPY_IN, 8), bench.kernel(side, 100)
    graph = capture(device, main, *kernels)
    refusals = {
        "topology changed: 1 node instead of 2": [kernels[0]],
        "node type changed: node 1 is a copy, was a kernel": [kernels[0], copy],
        "topology changed: node 1 comes after [], came after [0]": [fork, kernels[0], aside, joined],
    }
    for words, calls in refusals.items():
        other = capture(device, main, *calls, update=graph)
        assert other is not graph
        assert other.refused == words
        other.launch(main)
    graph.launch(main)
    device.synchronize()
    assert (graph.refused, graph.node_count) == ("", 2)


def test_nodes_with_a_timed_event(bench):
    device, main = bench.device, bench.device.stream("main")
    event = device.event(timing=True)
    graph = capture(device, main, bench.kernel(main, 100, blocks=3, threads=64, name="k"), lambda: main.record(event))
    kernel, record = graph.nodes
    assert (kernel.kind, kernel.name, kernel.grid, kernel.block, kernel.after) == (NodeKind.KERNEL, "k", (3, 1, 1), (64, 1, 1), ())
    assert (record.kind, record.after) == (NodeKind.EVENT_RECORD, (0,))


def test_nodes_are_counted_as_they_come(bench):
    device, main = bench.device, bench.device.stream("main")
    with pytest.raises(EngineError, match="is not being captured"):
        device.captured_nodes(main)
    device.begin_capture(main)
    assert device.captured_nodes(main) == 0
    bench.kernel(main, 100)()
    assert device.captured_nodes(main) == 1
    with pytest.raises(EngineError):
        device.synchronize()
    with pytest.raises(EngineError, match="was broken before"):
        device.captured_nodes(main)
    device.abandon_capture(main)


def test_a_graph_of_another_device_is_refused(bench, make_bench):
    other = make_bench()
    stream, foreign = bench.device.stream("main"), other.device.stream("main")
    graph = capture(other.device, foreign, other.kernel(foreign, 100))
    with pytest.raises(DeviceError, match="does not belong"):
        capture(bench.device, stream, bench.kernel(stream, 100), update=graph)
    bench.kernel(stream, 100)()
    bench.device.synchronize()
