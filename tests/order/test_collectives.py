"""Orders of collectives keep what memory asks for, and the rules choose what a person would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.order.collectives import collective_orders


@st.composite
def captures(draw):
    """Draw nodes in a random order of memory, some of them collectives of one or two nodes."""
    count = draw(st.integers(1, 12))
    order = tuple(tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=2)))) if number else () for number in range(count))
    units, last = [], -1
    for _ in range(count):
        kind = draw(st.integers(0, 3))
        last += kind == 1
        units.append(last if kind == 1 or (kind == 2 and units and units[-1] == last) else -1)
    return units, order, [float(draw(st.integers(1, 9))) for _ in range(count)]


@given(captures())
def test_each_order_keeps_what_memory_asks_for(drawn):
    units, order, durations = drawn
    for nodes in collective_orders(units, order, durations).values():
        place = {node: at for at, node in enumerate(nodes)}
        assert sorted(nodes) == list(range(len(units)))
        assert all(place[earlier] < place[node] for node, direct in enumerate(order) for earlier in direct)


def sequence(units, nodes):
    return [units[node] for node in nodes if units[node] >= 0]


def test_gradients_are_reduced_as_they_are_ready():
    """A backward pass makes the last layer's gradient first; the capture reduces the first layer's first."""
    units, order = [-1, -1, -1, 0, 1, 2], ((), (0,), (1,), (2,), (1,), (0,))
    found = collective_orders(units, order, [1.0] * 6)
    assert sequence(units, found["as captured"]) == [0, 1, 2]
    assert sequence(units, found["ready first"]) == [2, 1, 0]


def test_micro_batches_take_turns():
    """Two chains of two kernels and a collective, twice each, captured one after the other; a collective takes less than two kernels."""
    units = [-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3]
    order = tuple((number - 1,) if number % 6 else () for number in range(12))
    found = collective_orders(units, order, [3.0, 3.0, 2.0] * 4)["in turns"]
    assert sequence(units, found) == [0, 2, 1, 3]
    assert [number for number in found if units[number] < 0] == [0, 1, 6, 7, 3, 4, 9, 10]


def test_a_collective_whose_result_is_needed_next_goes_first():
    """Both are ready at once; behind the second one is a long path."""
    units, order = [-1, 0, 1, -1], ((), (0,), (0,), (2,))
    found = collective_orders(units, order, [1.0, 1.0, 1.0, 9.0])
    assert sequence(units, found["by next use"]) == [1, 0]


def test_a_chain_has_one_order():
    assert list(collective_orders([-1, 0, -1, 1], ((), (0,), (1,), (2,)), [1.0] * 4)) == ["as captured"]


def test_a_kernel_between_two_nodes_of_one_collective_leaves_the_order_of_the_capture():
    assert list(collective_orders([0, -1, 0, 1], ((), (0,), (1,), ()), [1.0] * 4)) == ["as captured"]
