"""The true order of captured code: of nodes that share memory which one of them writes, where the capture ordered them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamscope.capturing.memory import Access, NodeMemory
from streamscope.program.captured_graph import Edges


def true_order(memories: Sequence[NodeMemory], capture: Edges) -> Edges:
    """Return the fewest edges that keep every order which memory asks for; none of them follows from others.

    Two nodes keep their order if the capture has one for them, and they touch the same memory, one of them writing. A node that is not
    understood keeps its order against all. So a capture that forks streams itself loses nothing.

    Examples
    --------
    Two nodes write their own memory, and a third one reads both:

    >>> from streamscope.capturing.memory import Access, Evidence, NodeMemory
    >>> from streamscope.capturing.true_order import true_order
    >>> one, two = (Access(start, start + 512, False, True, Evidence.SCHEMA) for start in (0, 512))
    >>> both = Access(0, 1024, True, False, Evidence.SCHEMA)
    >>> memories = [NodeMemory((one,)), NodeMemory((two,)), NodeMemory((both,))]
    >>> true_order(memories, ((), (0,), (1,)))
    ((), (), (0, 1))
    """
    pieces = _Pieces(memories)
    # For each piece of memory, a bit for each node that reads it, and for each that writes it. The last piece stands for all memory.
    readers, writers = [0] * (len(pieces) + 1), [0] * (len(pieces) + 1)
    before_in_capture: list[int] = []
    reached: list[int] = []
    order = []
    for number, memory in enumerate(memories):
        before_in_capture.append(_closed(capture[number], before_in_capture))
        reads, writes = pieces.of(memory)
        earlier = _either(writers[piece] for piece in reads | writes) | _either(readers[piece] for piece in writes)
        order.append(_direct(earlier & before_in_capture[number], reached))
        reached.append(_closed(order[number], reached))
        for piece in reads:
            readers[piece] |= 1 << number
        for piece in writes:
            writers[piece] |= 1 << number
    return tuple(order)


def all_orders(orders: Sequence[Sequence[Sequence[int]]]) -> Edges:
    """Return the fewest edges that keep each order of several, all of which go from earlier nodes to later ones.

    Examples
    --------
    >>> all_orders([((), (0,), ()), ((), (0,), (1, 0))])
    ((), (0,), (1,))
    """
    reached: list[int] = []
    order = []
    for each in zip(*orders, strict=True):
        order.append(_direct(_closed([one for direct in each for one in direct], reached), reached))
        reached.append(_closed(order[-1], reached))
    return tuple(order)


class _Pieces:
    """Memory cut where an access begins or ends, so that each access is a row of whole pieces."""

    def __init__(self, memories: Sequence[NodeMemory]) -> None:
        ends = [end for memory in memories for one in memory.accesses for end in (one.start, one.end)]
        self._cuts = np.unique(np.array(ends, np.uint64))

    def __len__(self) -> int:
        return len(self._cuts)

    def of(self, memory: NodeMemory) -> tuple[set[int], set[int]]:
        """Return the pieces that a node reads and those that it writes; "all memory" is read by each node, and written by some."""
        everything = len(self)
        reads = {everything}.union(*(self._row(one) for one in memory.accesses if one.reads))
        writes = set().union(*(self._row(one) for one in memory.accesses if one.writes))
        return reads, writes if memory.understood else writes | {everything}

    def _row(self, access: Access) -> range:
        first, last = np.searchsorted(self._cuts, np.array((access.start, access.end), np.uint64))
        return range(int(first), int(last))


def _either(masks: Iterator[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _closed(direct: Sequence[int], reached: Sequence[int]) -> int:
    """Return a bit for each node that comes before one that comes directly after these."""
    return _either(reached[number] | 1 << number for number in direct)


def _direct(earlier: int, reached: Sequence[int]) -> tuple[int, ...]:
    """Return those of a set of nodes that come before no other of them."""
    found = []
    while earlier:
        latest = earlier.bit_length() - 1
        found.append(latest)
        earlier &= ~(reached[latest] | 1 << latest)
    return tuple(reversed(found))
