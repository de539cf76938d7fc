"""Layouts: what must hold for any graph, and folded chains worked out by hand."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.engines.graphs.conftest import graphs

from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope_widgets.graph_layout import LaneColumns, folded, layout


def chain(length: int, start: int = 0, lane: str = "main", after: tuple[int, ...] = ()) -> list[GraphNode]:
    """Return a chain whose first node depends on ``after``."""
    return [GraphNode(NodeKind.KERNEL, "k", (start + i - 1,) if i else after, lane=lane) for i in range(length)]


@given(graphs(), st.integers(1, 40))
def test_every_node_is_in_one_box_and_arrows_go_down(nodes, most_boxes):
    laid_out = layout(nodes, most_boxes=most_boxes)
    assert sorted(node for box in laid_out.boxes for node in box.nodes) == list(range(len(nodes)))
    assert len({(box.level, box.column) for box in laid_out.boxes}) == len(laid_out.boxes)
    box_of = {node: index for index, box in enumerate(laid_out.boxes) for node in box.nodes}
    needed = {(box_of[before], box_of[index]) for index, node in enumerate(nodes) for before in node.after}
    assert set(laid_out.edges) == {(one, other) for one, other in needed if one != other}
    for one, other in laid_out.edges:
        assert laid_out.boxes[one].level < laid_out.boxes[other].level


@given(graphs())
def test_boxes_lie_in_the_columns_of_their_stream(nodes):
    laid_out = layout(nodes)
    columns = {column: lane.name for lane in laid_out.lanes for column in range(lane.first, lane.first + lane.count)}
    assert len(columns) == laid_out.columns
    assert all(columns[box.column] == nodes[box.nodes[0]].lane for box in laid_out.boxes)


@given(graphs(60), st.integers(1, 20))
def test_only_chains_are_folded(nodes, most_boxes):
    followers = [sum(index in node.after for node in nodes) for index in range(len(nodes))]
    for group in folded(nodes, most_boxes):
        for before, after in pairwise(group):
            assert nodes[after].after == (before,)
            assert followers[before] == 1
            assert nodes[before].lane == nodes[after].lane


def test_a_chain_is_cut_into_equal_pieces():
    groups = folded(chain(130), 60)
    assert {len(group) for group in groups} <= {2, 3}
    assert len(groups) == 44


def test_few_nodes_are_not_folded():
    assert folded(chain(60), 60) == [(index,) for index in range(60)]


def test_a_fork_and_a_join():
    # 0 → 1 → 2 on main, 0 → 3 on aux, 4 joins 2 and 3.
    nodes = [*chain(3), GraphNode(NodeKind.KERNEL, "k", (0,), lane="aux"), GraphNode(NodeKind.KERNEL, "k", (2, 3), lane="main")]
    laid_out = layout(nodes, ["aux", "main"])
    assert [(box.level, box.column) for box in laid_out.boxes] == [(0, 1), (1, 1), (2, 1), (1, 0), (3, 1)]
    assert laid_out.lanes == (LaneColumns("aux", 0, 1), LaneColumns("main", 1, 1))
    assert laid_out.edges == ((0, 1), (1, 2), (0, 3), (2, 4), (3, 4))


def test_two_at_once_on_one_stream_lie_side_by_side_and_chains_are_straight():
    nodes = [GraphNode(NodeKind.KERNEL, "k", after) for after in [(), (), (1,), (0,)]]
    laid_out = layout(nodes)
    assert [(box.level, box.column) for box in laid_out.boxes] == [(0, 0), (0, 1), (1, 1), (1, 0)]


def test_no_nodes():
    laid_out = layout([])
    assert (laid_out.levels, laid_out.columns, laid_out.boxes) == (0, 0, ())
