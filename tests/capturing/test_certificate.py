"""The certificate of captured code: it takes the true order, and refuses each schedule that leaves out an order that memory asks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.capturing.drawn import captures, closure, conflict

from streamscope.capturing.certificate import Certificate, conflicts
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.errors import RaceError
from streamscope.order.ancestors import known_before


@st.composite
def certificates(draw):
    """Draw captures, most of them chains, each with the certificate of its true order."""
    return certificate(*draw(captures()))


def certificate(memories, capture):
    nodes = [GraphNode(NodeKind.KERNEL, f"kernel_{number}", after, where="model.py:7") for number, after in enumerate(capture)]
    return Certificate("drawn", nodes, memories, true_order(memories, capture))


def needed(drawn):
    """Return the pairs that must keep their order, by looking at each."""
    before = closure([node.after for node in drawn.nodes])
    memories = drawn.memories
    return {(a, b) for b in range(len(memories)) for a in before[b] if conflict(memories[a], memories[b])}


def test_counts_are_made_once(monkeypatch):
    made = certificate([NodeMemory((Access(0, 8, True, True, Evidence.POINTER),))] * 3, ((), (0,), (1,)))
    counts = (made.pairs, made.capture_pairs, made.longest_path)
    monkeypatch.setattr("streamscope.capturing.certificate.known_before", None)
    monkeypatch.setattr("streamscope.capturing.certificate.count_of", None)
    assert (made.pairs, made.capture_pairs, made.longest_path) == counts == (3, 3, 3)


@given(certificates())
def test_it_takes_the_true_order_and_shows_a_path_for_each_pair_that_must_keep_its_order(drawn):
    drawn.check(drawn.order)
    assert drawn.unordered() == []
    pairs = list(drawn.ordered())
    assert {(pair.earlier, pair.later) for pair in pairs} == needed(drawn)
    assert len(pairs) == drawn.pairs
    for pair in pairs:
        assert pair.path[0] == pair.earlier
        assert pair.path[-1] == pair.later
        assert all(a in drawn.order[b] for a, b in zip(pair.path, pair.path[1:], strict=False))
        known = {number for number in (pair.earlier, pair.later) if drawn.memories[number].understood}
        assert pair.shared or len(known) < 2


@given(certificates())
def test_each_edge_of_the_true_order_is_needed(drawn):
    edges = [(earlier, later) for later, direct in enumerate(drawn.order) for earlier in direct]
    for earlier, later in edges:
        without = [[one for one in direct if (one, number) != (earlier, later)] for number, direct in enumerate(drawn.order)]
        assert (earlier, later) in {(pair.earlier, pair.later) for pair in drawn.unordered(without, most=100)}
        with pytest.raises(RaceError, match=r"nodes that share memory: node \d+, kernel_\d+ \(model.py:7\) must come before node"):
            drawn.check(without)


@given(certificates(), st.data())
def test_any_schedule_is_taken_or_refused_as_a_search_through_all_pairs_says(drawn, data):
    count = len(drawn.nodes)
    places = data.draw(st.permutations(range(count)))
    after = [[] for _ in range(count)]
    for at, number in enumerate(places):
        after[number] = sorted(data.draw(st.sets(st.sampled_from(places[:at]), max_size=4))) if at else []
    before = closure(after)
    left = {(a, b) for a, b in needed(drawn) if a not in before[b]}
    found = {(pair.earlier, pair.later) for pair in drawn.unordered(after, most=count**2)}
    assert found == left
    if left:
        with pytest.raises(RaceError, match=f"does not order {len(left)} of {drawn.pairs} pair"):
            drawn.check(after)
    else:
        drawn.check(after)


def buffer(number, *, reads=False, writes=False):
    return Access(512 * number, 512 * number + 512, reads, writes, Evidence.SCHEMA)


def test_a_refusal_names_nodes_operators_lines_and_the_memory():
    memories = [NodeMemory((buffer(3, writes=True),)), NodeMemory((Access(0x700, 0x900, True, False, Evidence.PROTOTYPE),))]
    nodes = [
        GraphNode(NodeKind.KERNEL, "relu_kernel", (), operator="aten::relu", where="model.py:7"),
        GraphNode(NodeKind.KERNEL, "gemm", (0,), operator="aten::mm", where="model.py:8"),
    ]
    made = Certificate("layer", nodes, memories, ((), (0,)))
    with pytest.raises(RaceError) as caught:
        made.check([[], []], "graph-dual")
    assert caught.value.message == (
        "graph-dual of layer does not order 1 of 1 pair of nodes that share memory: "
        "node 0, relu_kernel (aten::relu, model.py:7) must come before node 1, gemm (aten::mm, model.py:8): "
        "256 bytes at 0x700, written by the first (the operator's schema) and read by the second "
        "(the kernel's prototype)"
    )


def test_what_is_not_a_schedule_of_these_nodes_is_refused():
    made = certificate([NodeMemory((buffer(0, writes=True),))] * 2, ((), (0,)))
    with pytest.raises(RaceError, match="has 1 node, and the capture 2"):
        made.check([[]])
    with pytest.raises(RaceError, match="node 1 wait for nodes that do not exist"):
        made.check([[], [2]])
    with pytest.raises(RaceError, match=r"never ends: node 0, kernel_0 .* and node 1, kernel_1 .* wait for each other"):
        made.check([[1], [0]])


def test_counts_and_words():
    memories = [NodeMemory((buffer(0, writes=True),)), NodeMemory((buffer(1, writes=True),)), NodeMemory(why_unknown="no pointer in it")]
    made = certificate(memories, ((), (0,), (1,)))
    assert (made.pairs, made.capture_pairs, made.edges, made.longest_path) == (2, 3, 2, 2)
    assert made.unknown == {2: "no pointer in it"}
    assert str(made).splitlines() == [
        "Certificate of drawn: 2 pairs of nodes must keep their order, and each has a path in the true order",
        "3 nodes, 2 edges, 2 nodes on the longest path; the capture orders 3 pairs.",
        "2 accesses of memory: 2 by the operator's schema.",
        "1 node not understood, so ordered against all, because no pointer in it: node 2, kernel_2 (model.py:7).",
    ]
    assert made.to_dict()["edges"] == [[0, 2], [1, 2]]
    assert certificate([], ()).pairs == 0


def test_a_table_of_more_pairs_than_are_looked_at_together():
    """One buffer that 3,000 nodes write makes 4.5 million pairs."""
    memories = [NodeMemory((buffer(0, reads=True, writes=True), buffer(number + 1, writes=True))) for number in range(3000)]
    table = conflicts(memories)
    assert int(np.bitwise_count(table).sum()) == 3000 * 2999
    assert int(np.bitwise_count(known_before([[number - 1] if number else [] for number in range(3000)])).sum()) == 3000 * 2999 // 2


def test_notes_stand_in_its_text():
    memories = [NodeMemory((buffer(0, writes=True),))]
    made = replace(certificate(memories, ((),)), notes=("It was not checked.",))
    assert str(made).splitlines()[-1] == "It was not checked."
