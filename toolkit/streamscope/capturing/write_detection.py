"""Which memory each captured node changes, seen while the nodes run one by one.

A node that writes the same values changes nothing that can be seen. So this is a check of claims, and never a licence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.capturing.memory import AddressRange, NodeMemory
from streamscope.capturing.nodes import LaunchableNode
from streamscope.capturing.state import LINE, rows_of_lines
from streamscope.job import gathered
from streamscope.kernels.cuda import pieces
from streamscope.kernels.library.libraries import libraries

_LINES = 128
"""Lines in a piece, which one block of the kernel looks at."""
PIECE = LINE * _LINES
MOST_LOOKED_AT = 2**45
"""Bytes that are looked at behind all nodes together, at most; an H200 reads as many in eight seconds."""
_MOST_FOUND = 2**20
"""Changed pieces that are noted before the host fetches them."""
_AT_ONCE = 2**16
"""Pieces whose lines are looked through at once."""

_WRONG = "it changed memory that nothing had said it would"
_UNCHECKED = (
    "The device had no room, or too much memory, to check node by node that nothing else is written; free memory and capture again to have "
    "it checked."
)

_Found = list[tuple[int, AddressRange]]
"""Changed lines, each row of neighbours with the number of the look that found it."""


def observed_writes(
    nodes: Sequence[LaunchableNode], regions: Sequence[AddressRange], own: Sequence[AddressRange], put_back: Callable[[], None]
) -> list[list[AddressRange]]:
    """Return the changes of each node in some pieces of device memory, as rows of lines, when the nodes run one after the other.

    ``regions``: sorted and apart from each other.
    ``own``: memory whose contents do not outlive a run. It is cleared before: the same values as in the run before would not show.
    ``put_back``: restores all other memory; called before each run and at the end.
    """
    lib = libraries()
    pool = lib.cupy.cuda.MemoryPool()  # Its memory is none of the regions', which may be CuPy's.
    stream = lib.cupy.cuda.Stream(non_blocking=True)
    calls = [node.bind(stream.ptr) for node in nodes]
    found: list[list[AddressRange]] = [[] for _ in nodes]
    try:
        with lib.cupy.cuda.using_allocator(pool.malloc), stream:
            lines = _with_room(partial(_Lines, regions))
            for start, end in own:
                lib.runtime.memset(start, 0, end - start)
            put_back()
            lib.runtime.deviceSynchronize()
            # The first look hashes all lines as they are; only changes since then are changes of nodes.
            lines.look(0)
            lines.forget()
            seen: _Found = []
            for number, call in enumerate(calls):
                call()
                seen += lines.look(number)
            for number, region in seen + lines.found():
                found[number].append(region)
    finally:
        stream.synchronize()
        put_back()
    return [sorted(set(each)) for each in found]


def hidden_writes(observed: Sequence[Sequence[AddressRange]], memories: Sequence[NodeMemory]) -> list[list[AddressRange]]:
    """Return observed changes of each node that no claim covers; a claim covers all lines that it touches."""
    return [
        [part for region in changed for part in _outside(region, [(one.start, one.end) for one in memory.accesses if one.writes])]
        for changed, memory in zip(observed, memories, strict=True)
    ]


def checked_memories(
    nodes: Sequence[LaunchableNode],
    memories: Sequence[NodeMemory],
    regions: Sequence[AddressRange],
    own: Sequence[AddressRange],
    put_back: Callable[[], None],
) -> tuple[list[NodeMemory], tuple[str, ...]]:
    """Return the claimed accesses of nodes, and notes for the user; a node with other observed changes becomes opaque.

    Looking takes a sixtieth of the memory that is looked at. Where the device has no room for that, or it would take long, the claims stand
    unchecked, and a note says so.
    """
    # All ranks look or none: a collective waits for those of the others.
    if any(gathered("looking at writes", len(nodes) * sum(end - start for start, end in regions) > MOST_LOOKED_AT)):
        return list(memories), (_UNCHECKED,)
    try:
        hidden = hidden_writes(observed_writes(nodes, regions, own, put_back), memories)
    except _NoRoomError:
        return list(memories), (_UNCHECKED,)
    checked = [
        replace(memory, why_unknown=_WRONG) if each and memory.understood else memory for memory, each in zip(memories, hidden, strict=True)
    ]
    return checked, ()


class _NoRoomError(Exception):
    """A rank has no room for its hashes, so no rank looks."""


def _with_room(make: Callable[[], _Lines]) -> _Lines:
    """Return the hashes, if each rank has room for its own."""
    made: _Lines | None = None
    with suppress(libraries().cupy.cuda.memory.OutOfMemoryError):
        made = make()
    if any(gathered("making room for hashes", made is None)) or made is None:
        raise _NoRoomError
    return made


def _outside(region: AddressRange, claims: Iterable[AddressRange]) -> list[AddressRange]:
    """Return the lines of a row that no claim touches, neighbours together."""
    start, end = region
    hidden = np.ones(-(-(end - start) // LINE), np.bool_)
    for claimed, stop in claims:
        hidden[max(0, (claimed - start) // LINE) : max(0, -((start - stop) // LINE))] = False
    return rows_of_lines(hidden, start, end)


class _Lines:
    """A hash of each line of some regions, on the device, and the changes found so far.

    ``regions``: sorted and apart from each other.
    """

    def __init__(self, regions: Sequence[AddressRange]) -> None:
        cupy = libraries().cupy
        starts = [at for start, end in regions for at in range(start, end, PIECE)]
        sizes = [min(PIECE, end - at) for start, end in regions for at in range(start, end, PIECE)]
        self._starts, self._sizes = np.array(starts, np.uint64), np.array(sizes, np.uint32)
        self._memory = cupy.asarray(self._starts), cupy.asarray(self._sizes)
        self._hashes = cupy.zeros(len(starts) * _LINES, np.uint64)
        self._found = cupy.zeros((_MOST_FOUND, 6), np.uint32)
        self._found_count = cupy.zeros(1, np.uint32)
        self._pending = 0

    def look(self, look: int) -> _Found:
        """Note all changes since the last look under its number; return lines that were fetched to make room."""
        fetched: _Found = []
        for first in range(0, len(self._starts), _MOST_FOUND):
            count = min(_MOST_FOUND, len(self._starts) - first)
            fetched += self.found() if self._pending + count > _MOST_FOUND else []
            self._pending += count
            arguments = (np.uint32(first), np.uint32(look), self._hashes, self._found, self._found_count, np.uint32(_MOST_FOUND))
            _kernel()((count,), (256,), (*self._memory, *arguments))
        return fetched

    def found(self) -> _Found:
        """Return the changes since the last call."""
        rows = self._found[: int(self._found_count[0])].get()
        self.forget()
        order = np.lexsort((rows[:, 1], rows[:, 0]))
        return rows_of_pieces(rows[order], self._starts, self._sizes)

    def forget(self) -> None:
        """Forget the changes so far."""
        self._found_count.fill(0)
        self._pending = 0


def rows_of_pieces(rows: npt.NDArray[np.uint32], starts: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint32]) -> _Found:
    """Return rows of changed lines, each with the number of the look that found it.

    ``rows``: of shape (n, 6): number of the look, number of the piece, and a bit for each of its lines; sorted.
    ``starts`` and ``sizes``: of each piece, in bytes.
    """
    found: _Found = []
    for part in (rows[first : first + _AT_ONCE] for first in range(0, len(rows), _AT_ONCE)):
        bits = np.unpackbits(np.ascontiguousarray(part[:, 2:]).view(np.uint8), axis=1, bitorder="little")
        padded = np.zeros((len(part), _LINES + 2), np.int8)
        padded[:, 1:-1] = bits
        row, edge = np.nonzero(np.diff(padded, axis=1))
        look, piece = part[row[::2], 0], part[row[::2], 1]
        first = starts[piece] + edge[::2].astype(np.uint64) * np.uint64(LINE)
        last = starts[piece] + np.minimum(edge[1::2] * LINE, sizes[piece]).astype(np.uint64)
        begins = np.concatenate(([True], (look[1:] != look[:-1]) | (first[1:] != last[:-1])))
        ends = np.append(begins[1:], True)
        found += zip(look[begins].tolist(), zip(first[begins].tolist(), last[ends].tolist(), strict=True), strict=True)
    return found


@cache
def _kernel() -> Any:
    return libraries().cupy.RawKernel(pieces("changed_lines")["changed_lines"], "changed_lines")
