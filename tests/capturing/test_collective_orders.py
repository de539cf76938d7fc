"""Captured code with its collectives in other orders: the same nodes, renumbered, with a certificate of its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.capturing.test_saved import captured_of
from tests.test_job import run

from streamscope.capturing import function
from streamscope.capturing.communication import uses_links
from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import Access, Evidence, MemoryHeld, NodeMemory
from streamscope.devices.cuda.raw_graph import RawGraph
from streamscope.devices.graph_node import Communication, GraphNode, NodeKind
from streamscope.errors import RaceError
from streamscope.order.ancestors import has, known_before
from streamscope.program.launch import Cost

REDUCES = Communication("all_reduce", "0", (0, 1), 512)


def micro_batches(group="0"):
    """Return two chains of a kernel and an all-reduce, twice each, captured one after the other, with the events of NCCL that count."""
    nodes, memories = [], []

    def add(kind, memory, communication=None):
        after = (len(nodes) - 1,) if nodes else ()
        nodes.append(GraphNode(kind, kind.value, after, (8, 1, 1), (128, 1, 1), communication=communication))
        memories.append(NodeMemory(memory))

    add(NodeKind.EVENT_WAIT, (uses_links(),), REDUCES)
    for batch in range(2):
        for layer in range(2):
            own = Access(512 * (batch + 1), 512 * (batch + 2), True, True, Evidence.SCHEMA)
            collective = replace(REDUCES, number=2 * batch + layer, communicator=group)
            add(NodeKind.KERNEL, (own,))
            add(NodeKind.KERNEL, (own, uses_links()), collective)
    add(NodeKind.EVENT_RECORD, (uses_links(),), collective)
    loaded = captured_of(nodes, memories, [Cost(0, blocks=8, threads=128, alone_ns=1000.0)] * len(nodes))
    found = object.__new__(CapturedFunction)
    raw = RawGraph(0, range(100, 100 + len(nodes)), loaded.program.captured, lambda: None, [])
    found.__dict__.update(dict.fromkeys(CapturedFunction.__dataclass_fields__))
    found.__dict__.update(
        name="step", program=replace(loaded.program, raw=raw), nodes=nodes, memories=memories, results=[], memory=MemoryHeld(0, ())
    )
    found._launchable = [SimpleNamespace(number=number) for number in range(len(nodes))]
    return found


@pytest.fixture(autouse=True)
def no_launches(monkeypatch):
    """Let operations have a launch that nothing runs, on a GPU that is not there."""
    monkeypatch.setattr(function, "_multiprocessors", lambda: 132)
    monkeypatch.setattr(function, "_launch", lambda nodes, kept, number, after: SimpleNamespace(node=nodes[number].number, cost=Cost(0)))


def sequence(captured):
    return [one.communication.number for one in captured.nodes if one.communication and one.kind is NodeKind.KERNEL]


def test_micro_batches_take_turns_and_the_rest_stays_in_order():
    captured = micro_batches()
    other = captured.in_other_orders()["in turns"]
    assert sequence(captured) == [0, 1, 2, 3]
    assert sequence(other) == [0, 2, 1, 3]
    assert other.nodes[0].kind is NodeKind.EVENT_WAIT  # Before all collectives, as NCCL has it.
    assert other.nodes[-1].kind is NodeKind.EVENT_RECORD
    reached = known_before(other.certificate().order)  # What waits for the event waits for each collective.
    assert all(has(reached, len(other.nodes) - 1, at) for at, one in enumerate(other.nodes[:-1]) if one.communication)
    assert not other.certificate().unordered()
    launched = [operation.work[0].node for operation in other.program.operations]
    assert [100 + number for number in launched] == list(other.program.raw._nodes)
    assert sorted(launched) == list(range(len(captured.nodes)))


def test_the_certificate_of_one_order_refuses_another():
    captured = micro_batches()
    other = captured.in_other_orders()["in turns"]
    number = {operation.work[0].node: at for at, operation in enumerate(other.program.operations)}
    back = sorted(number, key=number.__getitem__)
    as_captured = [tuple(number[one] for one in captured.certificate().order[node]) for node in back]
    with pytest.raises(RaceError, match="does not order"):
        other.certificate().check(as_captured)


def test_stages_of_a_pipeline_are_refused_by_name_on_all_ranks():
    def stage(job):
        communication = Communication("recv" if job.rank else "send", "0", (0, 1), 512)
        symbols = ["nvjet", "ncclDevKernel_SendRecv", "nvjet"][: 2 + job.rank]
        nodes = [SimpleNamespace(node=GraphNode(NodeKind.KERNEL, "kernel", symbol=each), handle=at) for at, each in enumerate(symbols)]
        function._check_alike("stage", nodes, [SimpleNamespace(communication=communication, nodes=(1,))])

    for refused in run(stage, stage):
        assert refused.message == "stage has other nodes on rank 1 than on rank 0: 3 nodes and 1 of recv, and 2 nodes and 1 of send"
        assert "stages of a pipeline" in refused.hint


def test_collectives_of_unknown_groups_keep_their_place():
    assert micro_batches(group="").in_other_orders() == {}
