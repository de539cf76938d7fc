"""Device memory: what nodes read and write, with the evidence, and how much of it a capture holds."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamscope.words import binary_size, listed

AddressRange = tuple[int, int]
"""Start and end of a piece of memory, as addresses; the end is the first that does not belong to it."""


class Evidence(Enum):
    """Evidence that a node touches a piece of memory."""

    NODE = "the copy or set itself"
    SCHEMA = "the operator's schema"
    ALLOCATED = "allocated while its operator ran"
    PROTOTYPE = "the kernel's prototype"
    TRITON = "Triton's analysis of the kernel"
    COMMUNICATOR = "the collectives' own order"
    POINTER = "a pointer in the arguments, used in an unknown way"


@dataclass(frozen=True)
class Access:
    """A piece of memory that a node reads, writes, or both."""

    start: int
    end: int
    """Addresses of device memory; the end is the first that does not belong to it."""
    reads: bool
    writes: bool
    """Both where only the address is known."""
    evidence: Evidence


@dataclass(frozen=True)
class NodeMemory:
    """All that a node touches."""

    accesses: tuple[Access, ...] = ()
    """They may overlap; memory that one of them writes is written."""
    why_unknown: str = ""
    """Why the node may touch more than that, so that it is ordered against all others; empty where the accesses are all."""

    @property
    def understood(self) -> bool:
        """Whether the accesses are all that the node touches."""
        return not self.why_unknown


def regions_of(memory: NodeMemory) -> list[AddressRange]:
    """Return where a node's accesses lie in device memory."""
    return [(one.start, one.end) for one in memory.accesses if one.start < one.end and one.evidence is not Evidence.COMMUNICATOR]


def around(regions: Sequence[AddressRange], address: int) -> AddressRange | None:
    """Return the region that an address lies in; the regions are sorted and apart."""
    at = bisect.bisect_right(regions, (address, sys.maxsize)) - 1
    return regions[at] if at >= 0 and address < regions[at][1] else None


def inside(region: AddressRange, regions: Sequence[AddressRange]) -> bool:
    """Tell whether a region lies in one of others, which are sorted and apart."""
    piece = around(regions, region[0])
    return piece is not None and region[1] <= piece[1]


def united(regions: Iterable[AddressRange]) -> list[AddressRange]:
    """Return regions sorted, those that overlap made one; neighbours stay apart.

    Examples
    --------
    >>> united([(8, 16), (0, 8), (12, 20)])
    [(0, 8), (8, 20)]
    """
    found: list[AddressRange] = []
    for start, end in sorted(regions):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def with_first_writers(pieces: Sequence[AddressRange], memories: Sequence[NodeMemory]) -> list[tuple[int, int]]:
    """Return the bytes of each piece of memory, and the first node that writes to it; -1 where none is known to.

    ``pieces``: sorted and apart. ``memories``: of the nodes, in the order of the capture.

    Examples
    --------
    >>> def writing(start, end):
    ...     return NodeMemory((Access(start, end, False, True, Evidence.SCHEMA),))
    >>> with_first_writers([(0, 8), (8, 24), (24, 28)], [writing(8, 12), writing(0, 4), writing(12, 16)])
    [(8, 1), (16, 0), (4, -1)]
    """
    found: dict[AddressRange, int] = {}
    for number, memory in enumerate(memories):
        for access in memory.accesses:
            if access.writes and (piece := around(pieces, access.start)) is not None:
                found.setdefault(piece, number)
    return [(piece[1] - piece[0], found.get(piece, -1)) for piece in pieces]


_LOOKED_AT = 64
"""Pieces that are looked at before one is let go, at most."""


@dataclass(frozen=True, repr=False)
class MemoryHeld:
    """Device memory of a capture."""

    plain_bytes: int
    """Peak of a plain call's own allocations."""
    pieces: tuple[AddressRange, ...]
    """Allocations of the capture. Pieces that overlapped since memory was used twice are one."""

    @property
    def held_bytes(self) -> int:
        """Memory that the capture holds, so that none is used twice."""
        return sum(end - start for start, end in self.pieces)

    def __repr__(self) -> str:
        return f"{binary_size(self.held_bytes)} held, where a plain call has at most {binary_size(self.plain_bytes)} in use"


class Kept:
    """Pieces of memory that are kept until they are too many; then those go first that were allocated first and nobody else uses.

    Memory that is used again orders its earlier users before its later ones. The oldest were done long ago, so that costs least.

    ``budget_bytes``: how much may be kept.
    ``is_free``: ``is_free(piece)`` tells whether nobody else uses a piece, so that letting it go gives memory back.

    Examples
    --------
    Of three pieces of 100 bytes there is room for two, and somebody still uses the first one:

    >>> kept = Kept(200, is_free=lambda piece: piece != "first")
    >>> for number, piece in enumerate(("first", "second", "third")):
    ...     kept.add(number, piece, 100)
    >>> [number in kept for number in range(3)]
    [True, False, True]
    """

    def __init__(self, budget_bytes: int, is_free: Callable[[Any], bool]) -> None:
        self.nbytes = self.let_go = 0
        """How much is kept, and how many pieces were let go."""
        self._budget_bytes, self._is_free = budget_bytes, is_free
        self._pieces: dict[int, tuple[Any, int]] = {}

    def __contains__(self, key: int) -> bool:
        """Tell whether a piece is kept."""
        return key in self._pieces

    def add(self, key: int, piece: Any, nbytes: int) -> None:
        """Keep a piece under a key of its own, and let others go if they are too many now."""
        self.nbytes += nbytes
        for _ in range(min(len(self._pieces), _LOOKED_AT)):
            if self.nbytes <= self._budget_bytes:
                break
            self._turn()
        self._pieces[key] = piece, nbytes

    def _turn(self) -> None:
        """Let the first piece go, or put it last if somebody uses it."""
        key = next(iter(self._pieces))
        piece, nbytes = self._pieces.pop(key)
        if self._is_free(piece):
            self.nbytes -= nbytes
            self.let_go += 1
        else:
            self._pieces[key] = piece, nbytes


@dataclass(frozen=True)
class CaptureOrigin:
    """Place and memory of a capture."""

    device: str
    """Name of the GPU."""
    date: str
    """In ISO format, UTC."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Streamscope, the framework and the driver; empty in files of older versions."""
    memory: MemoryHeld | None = None
    """None in files of older versions."""
    results: tuple[int, ...] = ()
    """Addresses of the function's results."""


def origin_words(origin: CaptureOrigin) -> str:
    """Place, time and versions of a capture: ``"on an NVIDIA H200, 2026-11-22 20:42 UTC, with torch 2.11"``."""
    day, _, clock = origin.date.partition("T")
    when = f", {day} {clock[:5]} UTC" if clock else f", {day}" if day else ""
    versions = [f"{name} {version}" for name, version in origin.versions.items()]
    return f"on an {origin.device}{when}" + (f", with {listed(versions)}" if versions else "")
