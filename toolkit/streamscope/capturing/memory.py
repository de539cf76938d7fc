"""The memory that each captured node reads and writes, each piece with its evidence."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

AddressRange = tuple[int, int]
"""Start and end of a piece of memory, as addresses; the end is the first that does not belong to it."""


class Evidence(Enum):
    """Evidence that a node touches a piece of memory."""

    NODE = "the copy or set itself"
    SCHEMA = "the operator's schema"
    ALLOCATED = "allocated while its operator ran"
    PROTOTYPE = "the kernel's prototype"
    TRITON = "Triton's analysis of the kernel"
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
    """Return where a node's accesses lie."""
    return [(one.start, one.end) for one in memory.accesses if one.start < one.end]


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
