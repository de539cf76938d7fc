"""The nodes that are done before each node starts, as tables of one bit for each pair of nodes.

A table has a row for each node, of whole 64-bit words; 5,000 nodes take 3 MB, and 25 MB while their table is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
"""A row for each node: bit j of row i says something of the pair of nodes i and j; shape (n, words)."""


class CircleError(ValueError):
    """Nodes that wait for each other, with their numbers."""

    def __init__(self, nodes: Sequence[int]) -> None:
        super().__init__(f"nodes {', '.join(map(str, nodes))} wait for each other")
        self.nodes = nodes


def packed(table: npt.NDArray[np.bool_]) -> Bits:
    """Return a square table of truth values as bits."""
    rows = np.packbits(table, axis=1, bitorder="little")
    padded = np.zeros((len(table), _words(len(table)) * 8), np.uint8)
    padded[:, : rows.shape[1]] = rows
    return padded.view("<u8").astype(np.uint64, copy=False)


def _words(count: int) -> int:
    """Return how many words hold a bit for each of ``count`` nodes."""
    return (count + 63) // 64


def known_before(after: Sequence[Sequence[int]]) -> Bits:
    """Return for each node which nodes are done before it starts, itself not among them.

    ``after``: for each node those that it waits for, in any order.

    Raises
    ------
    CircleError
        Nodes wait for each other.
    """
    before = np.zeros((len(after), _words(len(after))), np.uint64)
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
