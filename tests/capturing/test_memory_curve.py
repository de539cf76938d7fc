"""What memory buys: orders with memory used again, on made-up captures."""

from __future__ import annotations

import doctest
import sys

from hypothesis import given
from hypothesis import strategies as st
from tests.capturing.drawn import closure

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.memory_curve import memory_curve
from streamscope.capturing.true_order import true_order

MIB = 2**20


@st.composite
def captures(draw):
    """Draw pieces of memory, and a chain of nodes that write and read them and what lies outside."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    starts = [10 * MIB * (1 + number) for number in range(len(sizes))]
    pieces = [(start, start + size * MIB) for start, size in zip(starts, sizes, strict=True)]
    places = st.sampled_from([*pieces, (MIB, 2 * MIB)])
    accesses = st.builds(lambda place, writes: Access(*place, True, writes, Evidence.SCHEMA), places, st.booleans())
    memories = draw(st.lists(st.lists(accesses, max_size=2).map(lambda one: NodeMemory(tuple(one))), max_size=8))
    return pieces, memories, tuple((number - 1,) if number else () for number in range(len(memories)))


@given(captures())
def test_memory_that_is_used_again_adds_order_and_takes_none_away_and_enough_memory_adds_none(capture):
    pieces, memories, chain = capture
    orders = []
    curve = memory_curve(memories, chain, pieces, [], lambda order: orders.append(order) or 1.0)
    needed = closure(true_order(memories, chain))
    assert all(one <= other for order in orders for one, other in zip(needed, closure(order), strict=True))
    assert orders[-1] == true_order(memories, chain)
    assert curve[-1].extra_mib == sum(end - start for start, end in pieces) / MIB
    assert [point.extra_mib for point in curve] == sorted(point.extra_mib for point in curve)


def test_a_result_is_not_used_again():
    pieces = [(MIB, 2 * MIB), (4 * MIB, 5 * MIB)]
    memories = [NodeMemory((Access(*one, False, True, Evidence.SCHEMA),)) for one in pieces]
    chain = ((), (0,))
    again = memory_curve(memories, chain, pieces, [], lambda order: float(order.count(())))
    kept = memory_curve(memories, chain, pieces, [pieces[0][0]], lambda order: float(order.count(())))
    assert [(point.extra_mib, point.speedup) for point in again] == [(1.0, 1.0), (2.0, 2.0)]
    assert [(point.extra_mib, point.speedup) for point in kept] == [(2.0, 2.0)]


def test_the_example_shows_what_it_gives():
    found = doctest.testmod(sys.modules[memory_curve.__module__], optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0
