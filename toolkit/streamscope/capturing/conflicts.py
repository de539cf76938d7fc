"""Which nodes of captured code touch the same memory, one of them writing, and which a schedule orders: tables of one bit for each pair.

A certificate is made with these. `true_order` has its own way, so that one cannot be wrong because the other is.
A table has a row for each node, of whole 64-bit words; 5,000 nodes take 3 MB, and 25 MB while their table is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from streamscope.capturing.memory import NodeMemory

Bits = npt.NDArray[np.uint64]
"""A row for each node: bit j of row i says something of the pair of nodes i and j; shape (n, words)."""
Numbers = npt.NDArray[np.int64]

MOST_PAIRS = 2**21
"""Pairs of accesses that are looked at together, so that the memory for them has a bound."""


class CircleError(ValueError):
    """Nodes that wait for each other, with their numbers."""

    def __init__(self, nodes: Sequence[int]) -> None:
        super().__init__(f"nodes {', '.join(map(str, nodes))} wait for each other")
        self.nodes = nodes


def conflicts(memories: Sequence[NodeMemory]) -> Bits:
    """Return which pairs of nodes may not change places: they touch the same memory and one of them writes, or one is not understood."""
    count = len(memories)
    table = np.zeros((count, count), np.bool_)
    for one, other in _meeting(memories):
        table[one, other] = table[other, one] = True
    unknown = [number for number, memory in enumerate(memories) if not memory.understood]
    table[unknown, :] = table[:, unknown] = True
    np.fill_diagonal(table, val=False)
    return _packed(table)


def _meeting(memories: Sequence[NodeMemory]) -> Iterator[tuple[Numbers, Numbers]]:
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


def _pairs(node: Numbers, rows: Numbers, first: Numbers, last: Numbers, others: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the nodes of each row, and of those that stand from its first place to its last one among others."""
    lengths = np.maximum(last - first, 0)
    ends = np.cumsum(lengths)
    at = 0
    while at < len(rows):
        done = ends[at - 1] if at else 0
        until = max(at + 1, int(np.searchsorted(ends, done + MOST_PAIRS, "right")))
        many = lengths[at:until]
        within = np.arange(int(many.sum())) - np.repeat(ends[at:until] - many - done, many)
        yield np.repeat(node[rows[at:until]], many), node[others[np.repeat(first[at:until], many) + within]]
        at = until


def _packed(table: npt.NDArray[np.bool_]) -> Bits:
    rows = np.packbits(table, axis=1, bitorder="little")
    padded = np.zeros((len(table), words(len(table)) * 8), np.uint8)
    padded[:, : rows.shape[1]] = rows
    return padded.view("<u8").astype(np.uint64, copy=False)


def words(count: int) -> int:
    """Return how many words hold a bit for each of so many nodes."""
    return (count + 63) // 64


def known_before(after: Sequence[Sequence[int]]) -> Bits:
    """Return for each node which nodes are done before it starts, itself not among them.

    ``after``: for each node those that it waits for, in any order.

    Raises
    ------
    CircleError
        Nodes wait for each other.
    """
    before = np.zeros((len(after), words(len(after))), np.uint64)
    for number in _in_order(after):
        direct = np.array(after[number], np.int64)
        if len(direct):
            before[number] = np.bitwise_or.reduce(before[direct], axis=0)
            np.bitwise_or.at(before[number], direct >> 6, np.uint64(1) << (direct & 63).astype(np.uint64))
    return before


def _in_order(after: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield nodes so that each comes behind those that it waits for."""
    missing = [len(set(direct)) for direct in after]
    behind: list[list[int]] = [[] for _ in after]
    for number, direct in enumerate(after):
        for earlier in set(direct):
            behind[earlier].append(number)
    ready = deque(number for number, count in enumerate(missing) if count == 0)
    while ready:
        number = ready.popleft()
        yield number
        for later in behind[number]:
            missing[later] -= 1
            if missing[later] == 0:
                ready.append(later)
    if circle := [number for number, count in enumerate(missing) if count]:
        raise CircleError(circle)


def has(table: Bits, row: int, column: int) -> bool:
    """Tell one bit of a table."""
    return bool(int(table[row, column >> 6]) >> (column & 63) & 1)


def pairs_of(table: Bits, most: int) -> list[tuple[int, int]]:
    """Return the first pairs of a table, each as column and row, row by row."""
    found: list[tuple[int, int]] = []
    for row in np.flatnonzero(table.any(axis=1)):
        bits = np.unpackbits(table[row].astype("<u8").view(np.uint8), bitorder="little")
        found += [(int(column), int(row)) for column in np.flatnonzero(bits)[: most - len(found)]]
        if len(found) >= most:
            break
    return found


def count_of(table: Bits) -> int:
    """Return how many pairs of a table are true."""
    return int(np.bitwise_count(table).sum())
