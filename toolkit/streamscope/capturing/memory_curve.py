"""How much memory buys how much speed: the order that captured code would have if what it holds were used again."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from streamscope import display
from streamscope.capturing.memory import Access, NodeMemory, Region, around
from streamscope.capturing.true_order import true_order
from streamscope.order.graph import Edges
from streamscope.words import aligned

SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)
"""Of what a capture holds beyond what a plain call has in use: the points of a curve."""


_ELSEWHERE = 2**60
"""Above all addresses, so that what is moved meets nothing else."""


class CurvePoint(NamedTuple):
    """What an amount of memory buys.

    Attributes
    ----------
    extra_mib : float
        MiB that the capture holds beyond what a plain call has in use.
    speedup : float
        How many times as fast as the capture the true order is at most. It is predicted, not measured.
    """

    extra_mib: float
    speedup: float


CURVE_HEADS = ("beyond a plain call", "at most × as fast, predicted")


def by_amount(curve: Iterable[CurvePoint]) -> dict[str, float]:
    """Return the speed-up of each amount of memory as it reads; of amounts that read alike, the largest."""
    return {f"{extra_mib:,.1f} MiB": speedup for extra_mib, speedup in curve}


class MemoryCurve(list[CurvePoint], display.Shown):
    """What more and more memory buys, shown as a table."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the points as text, in the order of `CURVE_HEADS`."""
        return ((amount, f"{speedup:.2f}") for amount, speedup in by_amount(self).items())

    def __repr__(self) -> str:
        return "\n".join(aligned([CURVE_HEADS, *self.rows()], numbers=True))


def memory_curve(
    memories: Sequence[NodeMemory],
    capture: Edges,
    pieces: Iterable[Region],
    results: Iterable[int],
    speedup: Callable[[Edges], float],
    plain_bytes: int = 0,
) -> MemoryCurve:
    """Return what more and more memory buys.

    ``pieces``: what the capture allocated, apart from each other.
    ``results``: addresses of results: what they lie in is not used again.
    ``speedup``: ``speedup(order)`` predicts how many times as fast as the capture an order is.
    ``plain_bytes``: what a plain call has in use at once.

    Examples
    --------
    Two branches of two nodes each, through a piece of 1 MiB that both could use:

    >>> from streamscope.capturing.memory import Access, Evidence, NodeMemory
    >>> from streamscope.capturing.memory_curve import memory_curve
    >>> pieces = [(n << 20, n + 1 << 20) for n in range(2)]
    >>> write, read = ([NodeMemory((Access(*one, use, not use, Evidence.SCHEMA),)) for one in pieces] for use in (False, True))
    >>> chain = ((), (0,), (1,), (2,))
    >>> memory_curve([write[0], read[0], write[1], read[1]], chain, pieces, [], lambda order: 1 + order.count(()))
    beyond a plain call  at most × as fast, predicted
    -------------------  ----------------------------
    1.0 MiB                                      2.00
    2.0 MiB                                      3.00
    """
    uses = _Uses(memories, sorted(pieces), tuple(results))
    least, _ = uses.within(0)
    whole = sum(end - start for start, end in uses.pieces)
    points: dict[int, float] = {}
    for share in SHARES:
        held, placed = uses.within(least + int(share * (whole - least)) if share else 0)
        extra = max(0, (whole if share == 1 else held) - plain_bytes)
        points[extra] = max(points.get(extra, 0.0), speedup(true_order(placed, capture)))
    return MemoryCurve(CurvePoint(nbytes / 2**20, each) for nbytes, each in sorted(points.items()))


class _Uses:
    """Which nodes use which pieces of memory from when to when, in the order of the capture."""

    def __init__(self, memories: Sequence[NodeMemory], pieces: Sequence[Region], results: Sequence[int]) -> None:
        self._memories, self.pieces = memories, pieces
        first: dict[Region, int] = {}
        last: dict[Region, int] = {}
        for number, memory in enumerate(memories):
            for access in memory.accesses:
                piece = self._piece(access)
                if piece is not None:
                    first.setdefault(piece, number)
                    last[piece] = number
        kept = {around(pieces, address) for address in results}
        self._born: list[list[Region]] = [[] for _ in memories]
        self._done: list[list[Region]] = [[] for _ in memories]
        for piece, number in first.items():
            self._born[number].append(piece)
        for piece, number in last.items():
            if piece not in kept:
                self._done[number].append(piece)

    def _piece(self, access: Access) -> Region | None:
        piece = around(self.pieces, access.start)
        return piece if piece is not None and access.end <= piece[1] else None

    def within(self, budget_bytes: int) -> tuple[int, list[NodeMemory]]:
        """Return how many bytes are held, and the nodes' memory, where memory is used again once so much is held."""
        room, moved = _Room(budget_bytes), dict[Region, int]()
        for born, done in zip(self._born, self._done, strict=True):
            for piece in born:
                moved[piece] = room.take(piece[1] - piece[0])
            for start, end in done:
                room.give_back((moved[start, end], moved[start, end] + end - start))
        placed = [replace(memory, accesses=tuple(self._moved(one, moved) for one in memory.accesses)) for memory in self._memories]
        return room.nbytes, placed

    def _moved(self, access: Access, moved: dict[Region, int]) -> Access:
        piece = self._piece(access)
        if piece is None:
            return access
        start = _ELSEWHERE + moved[piece] + access.start - piece[0]
        return replace(access, start=start, end=start + access.end - access.start)


class _Room:
    """Memory from address 0 on. Once a budget of bytes is used up, what was given back is used again, the first first."""

    def __init__(self, budget_bytes: int) -> None:
        self.nbytes = 0
        self._budget_bytes = budget_bytes
        self._idle: deque[Region] = deque()
        self._free: list[tuple[int, int]] = []

    def give_back(self, region: Region) -> None:
        """Note that nobody uses a region any more."""
        self._idle.append(region)

    def take(self, nbytes: int) -> int:
        """Return where there is room."""
        if self.nbytes + nbytes > self._budget_bytes:
            again = self._again(nbytes)
            if again is not None:
                return again
        self.nbytes += nbytes
        return self.nbytes - nbytes

    def _again(self, nbytes: int) -> int | None:
        """Return the smallest piece that is free and large enough; None where there is none, though all that is idle is free by now."""
        while (at := bisect.bisect_left(self._free, (nbytes, 0))) == len(self._free):
            if not self._idle:
                return None
            start, end = self._idle.popleft()
            bisect.insort(self._free, (end - start, start))
        size, start = self._free.pop(at)
        if size > nbytes:
            bisect.insort(self._free, (size - nbytes, start + nbytes))
        return start
