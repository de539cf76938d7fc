"""The dependency graph of small programs, by hand."""

import pytest

from streamscope.order import graph
from streamscope.order.graph import DependencyGraph, dependencies, without_implied
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation


def operation(reads, writes, on_host=False):
    """An operation on variables that are named by letters."""
    read, written = (tuple(map(ord, letters)) for letters in (reads, writes))
    work = HostCall(0, "host", read, written, len, 1.0) if on_host else ()
    return Operation(0, "kernel", read, written, {}, "", work)


@pytest.fixture
def diamond():
    """One kernel, two that read it, and one that reads both; they take 10, 5, 20 and 1 ns."""
    return DependencyGraph([operation(*each) for each in (("x", "a"), ("a", "b"), ("a", "c"), ("bc", "d"))], [10.0, 5.0, 20.0, 1.0])


def test_predecessors_and_successors(diamond):
    assert (diamond.before, diamond.after) == ([[], [0], [0], [1, 2]], [[1, 2], [3], [3], []])


def test_a_rank_is_the_longest_path_to_the_end_and_the_highest_comes_first(diamond):
    assert diamond.upward_ranks_ns() == [31, 6, 21, 1]
    assert diamond.by_rank() == [0, 2, 1, 3]


def test_host_functions_come_last_of_what_is_ready():
    ready = [operation("x", "a", on_host=True), operation("y", "b"), operation("z", "c")]
    assert DependencyGraph(ready, [50.0, 5.0, 5.0]).by_rank() == [1, 2, 0]


def test_a_chain_ends_where_paths_part_or_meet_and_where_the_link_is_refused(diamond):
    assert [diamond.chain(head, lambda _: True) for head in range(4)] == [[0], [1], [2], [3]]
    line = DependencyGraph([operation(*each) for each in (("x", "a"), ("a", "b"), ("b", "c"))], [1.0, 1.0, 1.0])
    assert line.chain(0, lambda _: True) == [0, 1, 2]
    assert line.chain(0, lambda following: following.writes != (ord("c"),)) == [0, 1]


def test_what_is_updated_in_place_comes_after_its_readers_and_host_functions_after_each_other():
    assert dependencies([operation("x", "a"), operation("a", "b"), operation("a", "a"), operation("a", "c")]) == [[], [0], [1], [2]]
    assert dependencies([operation("x", "a", True), operation("y", "b"), operation("z", "c", True)]) == [[], [], [0]]


def test_predecessors_of_predecessors_are_left_out_as_far_back_as_the_window(monkeypatch):
    assert without_implied([[], [], [0, 1], [0, 2], [1, 3]]) == [[], [], [0, 1], [2], [3]]
    monkeypatch.setattr(graph, "WINDOW", 3)
    line = [[], [0], [1], [2], [3], [4]]
    assert without_implied([*line[:-1], [0, 4]])[-1] == [0, 4]
    assert without_implied([*line[:-1], [1, 4]])[-1] == [4]
