"""Pairs of nodes of captured code that touch the same memory, one of them writing.

A certificate is made with this table. `true_order` has its own way, so that one cannot be wrong because the other is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from streamscope.capturing.memory import NodeMemory
from streamscope.order.ancestors import Bits, packed

_Numbers = npt.NDArray[np.int64]

_MOST_PAIRS = 2**21
"""Pairs of accesses that are looked at together, so that the memory for them has a bound."""


def conflicts(memories: Sequence[NodeMemory]) -> Bits:
    """Return which pairs of nodes may not change places: they touch the same memory and one of them writes, or one is not understood."""
    count = len(memories)
    table = np.zeros((count, count), np.bool_)
    for one, other in _meeting(memories):
        table[one, other] = table[other, one] = True
    unknown = [number for number, memory in enumerate(memories) if not memory.understood]
    table[unknown, :] = table[:, unknown] = True
    np.fill_diagonal(table, val=False)
    return packed(table)


def _meeting(memories: Sequence[NodeMemory]) -> Iterator[tuple[_Numbers, _Numbers]]:
    """Yield pairs of nodes whose accesses meet, one of them a write; a pair may come several times.

    Two pieces of memory meet where the one that starts later starts before the other one's end. So, by start, each access meets a row of
    those behind it: a write all of them, a read those among them that write.
    """
    rows = sorted({
        (one.start, one.end, one.writes, number)
        for number, memory in enumerate(memories)
        for one in memory.accesses
        if one.start < one.end and (one.reads or one.writes)
    })  # fmt: skip
    start, end = (np.array([row[which] for row in rows], np.uint64) for which in (0, 1))
    writes = np.array([row[2] for row in rows], np.bool_)
    node = np.array([row[3] for row in rows], np.int64)
    everywhere = np.arange(len(rows))
    behind = np.searchsorted(start, end, "left")  # the first access that starts at the end or later
    yield from _pairs(node, everywhere[writes], everywhere[writes] + 1, behind[writes], everywhere)
    writers = everywhere[writes]
    first, last = (np.searchsorted(writers, places, "left") for places in (everywhere[~writes] + 1, behind[~writes]))
    yield from _pairs(node, everywhere[~writes], first, last, writers)


def _pairs(node: _Numbers, rows: _Numbers, first: _Numbers, last: _Numbers, others: _Numbers) -> Iterator[tuple[_Numbers, _Numbers]]:
    """Yield the nodes of each row, and of those that stand from its first place to its last one among others."""
    lengths = np.maximum(last - first, 0)
    ends = np.cumsum(lengths)
    at = 0
    while at < len(rows):
        done = ends[at - 1] if at else 0
        until = max(at + 1, int(np.searchsorted(ends, done + _MOST_PAIRS, "right")))
        many = lengths[at:until]
        within = np.arange(int(many.sum())) - np.repeat(ends[at:until] - many - done, many)
        yield np.repeat(node[rows[at:until]], many), node[others[np.repeat(first[at:until], many) + within]]
        at = until
