"""What orders captured code without need, against what is worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.auditing.conftest import Estimating
from tests.engines.captured_programs import captured

import streamscope as ss
from streamscope.auditing.findings import Kind, Severity
from streamscope.capturing.certificate import MOST_REASONS
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.devices.graph_node import GraphNode, NodeKind

RECORDED = Path(__file__).parents[2] / "notebooks" / "recorded" / "captured"
CHAIN = ((), (0,), (1,), (2,))


def own(number, evidence=Evidence.SCHEMA):
    return Access(512 * number, 512 * number + 512, True, True, evidence)


def audited(*memories, engine="graph-dual"):
    """Audit a chain of nodes that take 1 µs each."""
    return ss.audit(captured(list(memories), CHAIN), engine=engine, device=Estimating(lambda launch: 1000.0))


def test_nothing_is_said_of_a_chain_that_is_one():
    assert audited(*[NodeMemory((own(0),))] * 4).findings == ()


@pytest.mark.parametrize("engine", ["sync", "async", "graph"])
def test_a_capture_that_orders_what_shares_nothing_is_said_once(engine):
    (found,) = audited(*(NodeMemory((own(number),)) for number in range(4)), engine=engine).findings
    assert (found.kind, found.severity, found.cost_ns) == (Kind.FALSE_SERIALISATION, Severity.WARNING, 3000)
    assert found.message == (
        "The capture orders 6 pairs of nodes, of which 0 share memory or are not understood; it has 3 of 3 edges without need, "
        "such as one to node 1, kernel, and costs at most 3.00 µs of 4.00 µs (estimated)."
    )


def test_captured_code_is_audited_in_the_order_of_the_capture_unless_told_otherwise():
    """A fork of two branches: one stream would order them without need, the graph of the capture does not."""
    program = captured([NodeMemory((own(number),)) for number in range(2)], ((), ()))
    assert ss.audit(program, device="simulated").plan.engine == "graph"
    assert ss.audit(program, device="simulated").findings == ()
    assert ss.audit(program, device="simulated", engine="async").findings != ()


def test_a_measured_replay_is_told():
    loaded = ss.load_captured(RECORDED / "lstm.captured.json")
    assert "a replay of the capture took 345 µs (measured)" in ss.audit(loaded, progress=False).circumstances


def test_the_order_of_collectives_is_told_where_it_counts():
    """The bound of the same capture is 427 µs, since collectives may change places there."""
    loaded = ss.load_captured(RECORDED.parents[2] / "tests/data/rank_captures/tp-256.rank0.captured.json")
    said = ss.audit(loaded, engine="graph-dual", progress=False).circumstances
    assert "at least 736 µs by dependencies and the order of collectives, 736 µs in this order" in said
    without = ss.load_captured(RECORDED / "lstm.captured.json")
    assert "by dependencies alone" in ss.audit(without, progress=False).circumstances


def test_the_order_of_the_capture_costs_nothing_where_the_plan_keeps_another():
    memories = [NodeMemory((own(number),)) for number in range(4)]
    assert audited(*memories, engine="graph-dual").findings == ()
    (found,) = audited(*memories, engine="dual").of(Kind.FALSE_SERIALISATION)
    assert found.cost_ns == 1000  # Two streams, of two nodes each.
    assert "The capture" not in found.message


def test_a_false_order_beside_the_longest_path_is_none_of_graph_dual():
    """Nodes 0, 1 and 2 are a chain; the capture lets node 3 wait for node 0, and nothing needs that."""
    memories = [NodeMemory((own(0),))] * 3 + [NodeMemory((own(1),))]
    program = captured(memories, ((), (0,), (1,), (0,)))
    assert ss.audit(program, engine="graph-dual", device=Estimating(lambda launch: 1000.0)).findings == ()


def test_a_node_that_is_not_understood_holds_all_others():
    """Node 1 is a barrier: 0, then 1, then 2 and 3. Understood, all are free."""
    audit = audited(NodeMemory((own(0),)), NodeMemory((own(1),), "no source"), NodeMemory((own(2),)), NodeMemory((own(3),)))
    (found,) = audit.of(Kind.NOT_UNDERSTOOD)
    assert (found.severity, found.cost_ns) == (Severity.WARNING, 2000)
    assert found.message == (
        "1 node is ordered against all others, because no source: node 1, kernel. That keeps 3 of 3 edges, and costs at most 2.00 µs of "
        "3.00 µs (estimated)."
    )
    assert "3.00 µs in this order" in str(audit)
    assert [operation.id for operation in found.operations] == [1]
    assert audit.ok


def test_many_reasons_are_said_together():
    count = 20
    memories = [NodeMemory(why_unknown=f"reason {number // 2}") for number in range(count)]
    chain = tuple((number - 1,) if number else () for number in range(count))
    found = ss.audit(captured(memories, chain), device=Estimating(lambda launch: 1000.0)).of("not understood")
    assert len(found) == MOST_REASONS + 1
    assert "4 nodes are ordered against all others, because of 2 other reasons: node 16" in found[-1].message


def test_memory_that_an_address_led_to_may_be_a_workspace():
    """Nodes 0 and 2 share what both were only led to; node 3 needs node 1."""
    shared = own(9, Evidence.POINTER)
    audit = audited(NodeMemory((own(0), shared)), NodeMemory((own(1),)), NodeMemory((own(2), shared)), NodeMemory((own(1),)))
    (found,) = audit.of("shared workspace")
    assert (found.severity, found.cost_ns) == (Severity.NOTE, 0)
    assert found.message == (
        "2 nodes lead to memory whose use is not known, as of workspaces: node 0, kernel and node 2, kernel. That keeps 1 of 2 edges, and "
        "costs nothing (estimated)."
    )
    assert audit.of("not understood") == ()


def nodes_of(*operators):
    return [GraphNode(NodeKind.KERNEL, "kernel", after, operator=name) for name, after in zip(operators, CHAIN, strict=True)]


def test_the_finding_names_who_gets_memory_again():
    memories = [NodeMemory((own(0, Evidence.ALLOCATED),)), NodeMemory((own(1),)), NodeMemory((own(0, Evidence.ALLOCATED),)), NodeMemory()]
    program = captured(memories, CHAIN)
    nodes = nodes_of("a", "b", "c", "d")
    program = replace(program, certificate=replace(program.certificate, nodes=nodes))
    (found,) = ss.audit(program, device=Estimating(lambda launch: 1000.0)).of("memory used twice")
    assert (found.severity, found.cost_ns) == (Severity.WARNING, 1000)
    assert found.message == (
        "1 node is handed memory that was used before: node 2, kernel (c). That keeps 1 of 1 edge, and costs at most 1.00 µs of 4.00 µs "
        "(estimated)."
    )
    assert "memory_limit" in found.advice


def test_captured_code_has_no_reference_that_could_be_missing():
    audit = audited(*[NodeMemory((own(0),))] * 4)
    assert audit.of("not checked") == ()
    assert "besides what their evidence says" in str(audit)
