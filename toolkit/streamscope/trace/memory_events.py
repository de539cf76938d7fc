"""Memory as profilers write it, event by event: memory taken and given back at an address, and totals of the allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.trace.columns import none
from streamscope.trace.file_checks import MOST_NS
from streamscope.trace.launch_sites import Site
from streamscope.trace.memory import BEFORE, BEFORE_THE_RECORDING, HELD, Allocations, Level
from streamscope.trace.spans import MOST_GPU
from streamscope.words import counted

_MOST_BYTES, _MOST_IN_ALL = 2**42, 2**50
"""Of one allocation, and in all: more than any machine has."""
_FEW = 4
"""Events in a row whose totals may be out of order, at most."""
_UNKNOWN = -1


@dataclass
class MemoryEvents:
    """Memory that is taken and given back, one row an event, those of one moment in the order in which they happened.

    Attributes
    ----------
    time_ns : int64 array
        On one clock, whatever its zero is.
    bytes : int64 array
        Negative where memory is given back; 0 in an event that only tells a total.
    address : int64 array
        Any number that stands for one piece of memory of a GPU at a time.
    gpu : int64 array
        -1 for the host.
    total, reserved : int64 arrays
        The allocator's own totals after the event: of memory that is lent, and of all that it took from the driver; -1 where they are not
        known. May be left out, as all that follows.
    name, site : int64 arrays
        Index into ``texts`` and ``sites`` of what took it; -1 where it is not known.
    texts : tuple of str
    sites : tuple of Site
    kind : str
        Kind of all of them, such as ``"PyTorch"``.
    level : Level
    """

    time_ns: IntArray
    bytes: IntArray
    address: IntArray
    gpu: IntArray
    total: IntArray = field(default_factory=none)
    reserved: IntArray = field(default_factory=none)
    name: IntArray = field(default_factory=none)
    site: IntArray = field(default_factory=none)
    texts: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()
    kind: str = ""
    level: Level = Level.ALLOCATED

    def __post_init__(self) -> None:
        for column in ("total", "reserved", "name", "site"):
            if not len(getattr(self, column)):
                setattr(self, column, np.full(len(self.time_ns), _UNKNOWN, np.int64))

    def __len__(self) -> int:
        return len(self.time_ns)

    def rows(self, chosen: npt.NDArray[Any]) -> MemoryEvents:
        """Return the rows that a mask or an index array picks."""
        columns: dict[str, Any] = {
            each.name: getattr(self, each.name)[chosen] for each in fields(self) if isinstance(getattr(self, each.name), np.ndarray)
        }
        return replace(self, **columns)


def allocations_of(several: Sequence[MemoryEvents], zero_ns: int, said: list[str]) -> Allocations:
    """Return the allocations that events tell, on a clock with this zero, and note what a trace cannot hold and what is odd.

    An event gives back what was last taken at its address. Memory whose begin is not among the events was held before; where totals are
    known, the rest of the first one is a row, too. If later totals differ from the events, that is an allocation of which no more is known.
    Totals of reserved memory are rows that begin and end where these change. Events of one moment are put 1 ns apart, so that their order
    is kept.
    """
    texts = {BEFORE_THE_RECORDING: 0}
    sites = [site for events in several for site in events.sites]
    parts: list[Mapping[str, npt.NDArray[Any]]] = []
    first_site = 0
    for events in several:
        code = np.array([*(texts.setdefault(text, len(texts)) for text in events.texts), _UNKNOWN], np.int64)
        kind = texts.setdefault(events.kind, len(texts)) if events.kind else _UNKNOWN
        known = _possible(replace(events, time_ns=events.time_ns - zero_ns), said)
        known = replace(known, name=code[known.name], site=np.where(known.site >= 0, known.site + first_site, _UNKNOWN))
        known = known.rows(np.lexsort((known.time_ns, known.gpu)))
        bounds = [0, *(np.flatnonzero(np.diff(known.gpu)) + 1).tolist(), len(known)]
        for first, behind in pairwise(bounds if len(known) else []):
            parts += _of_one_gpu(known.rows(np.arange(first, behind)), kind, said)
        first_site += len(events.sites)
    if not parts:
        return Allocations()
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns = _few_enough({name: column[np.argsort(columns["start_ns"], kind="stable")] for name, column in columns.items()}, said)
    return Allocations(**columns, operation=np.full(len(columns["bytes"]), _UNKNOWN), texts=tuple(texts), sites=tuple(sites))


def _possible(events: MemoryEvents, said: list[str]) -> MemoryEvents:
    """Leave out events at impossible times, of impossible sizes or GPUs, and those of no byte that tell no total."""
    right = (np.abs(events.time_ns) < MOST_NS // 2) & (np.abs(events.bytes) < _MOST_BYTES) & (events.gpu >= -1) & (events.gpu <= MOST_GPU)
    if not right.all():
        said.append(f"left out: {counted(int((~right).sum()), 'event')} of memory at impossible times, of impossible sizes or GPUs")
    return events.rows(right & ((events.bytes != 0) | (events.total >= 0) | (events.reserved >= 0)))


def _of_one_gpu(events: MemoryEvents, kind: int, said: list[str]) -> list[Mapping[str, npt.NDArray[Any]]]:
    """Return columns of allocations of the events of one GPU, in the order of their times."""
    count = np.arange(len(events))
    time_ns = np.maximum.accumulate(events.time_ns - count) + count
    gpu = int(events.gpu[0])
    where = f"GPU {gpu}" if gpu >= 0 else "the host"
    moved = np.flatnonzero(events.bytes)
    row, start_ns, end_ns, lost = paired(events.address[moved], events.bytes[moved] > 0, time_ns[moved])
    row = moved[row]
    if lost:
        said.append(f"memory of {where}: {counted(lost, 'event')} missing, since an address was taken, or given back, twice in a row")
    taken = events.bytes[row] > 0
    nbytes = np.abs(events.bytes[row])
    before = start_ns == BEFORE
    found = [
        _columns(
            (start_ns, end_ns, nbytes), gpu, events.level, kind=np.where(before, 0, kind),
            name=np.where(taken, events.name[row], _UNKNOWN), site=np.where(taken, events.site[row], _UNKNOWN),
        )
    ]  # fmt: skip
    known = (events.total >= 0) & (events.total < _MOST_IN_ALL)
    if known.any():
        rest, swapped = _settled(events.total[known] - held_bytes(start_ns, end_ns, nbytes, time_ns[known]))
        if swapped:
            said.append(
                f"memory of {where}: {counted(swapped, 'total')} out of order by the clock, as where several threads take memory at once"
            )
        if (rest < 0).any():
            wrong = counted(int((rest < 0).sum()), "moment")
            said.append(f"memory of {where}: at {wrong} the allocator's total is less than the events add up to: totals are not used")
        else:
            found.append(_of_total(time_ns[known], rest, gpu, events.level, _UNKNOWN))
            if unseen := int((np.diff(rest) != 0).sum()):
                said.append(f"memory of {where}: {counted(unseen, 'time')} the allocator's total changed without an event")
    known = (events.reserved >= 0) & (events.reserved < _MOST_IN_ALL)
    if events.reserved[known].any():  # The host's allocator reserves nothing.
        found.append(_of_total(time_ns[known], events.reserved[known], gpu, Level.RESERVED, kind))
    return found


def paired(address: IntArray, taken: npt.NDArray[np.bool_], time_ns: IntArray) -> tuple[IntArray, IntArray, IntArray, int]:
    """Join the events that take memory with those that give it back: rows of events, each of one allocation, with start and end.

    The row is that of the event that took it or, where there is none, of the one that gave it back. Events are in the order of their times.
    The last value counts events that are missing: where an address is taken twice, it was given back at the second time at the latest, and
    where it is given back twice, it was taken at the first time at the earliest.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace.memory_events import paired
    >>> row, start_ns, end_ns, lost = paired(np.array([1, 2, 1]), np.array([True, False, False]), np.array([10, 20, 30]))
    >>> row.tolist(), end_ns.tolist(), lost
    ([0, 1], [30, 20], 0)
    """
    order = np.argsort(address, kind="stable")
    place, takes, at_ns = address[order], taken[order], time_ns[order]
    same = np.diff(place) == 0
    later_ns, earlier_ns, lent = np.full(len(order), HELD), np.full(len(order), BEFORE), np.zeros(len(order), bool)
    later_ns[:-1][same] = at_ns[1:][same]
    earlier_ns[1:][same] = at_ns[:-1][same]
    lent[1:] = same & takes[:-1]
    unseen = ~takes & ~lent
    rows = np.flatnonzero(takes | unseen)
    lost = int((same & (takes[1:] == takes[:-1])).sum())
    start_ns, end_ns = np.where(takes, at_ns, earlier_ns)[rows], np.where(takes, later_ns, at_ns)[rows]
    return order[rows], start_ns, end_ns, lost


def held_bytes(start_ns: IntArray, end_ns: IntArray, nbytes: IntArray, at_ns: IntArray) -> IntArray:
    """Return how many bytes some allocations hold at each time; one that ends at it holds none."""
    begins, ends = np.argsort(start_ns, kind="stable"), np.argsort(end_ns, kind="stable")
    taken, given = (np.concatenate([[0], np.cumsum(nbytes[order])]) for order in (begins, ends))
    found: IntArray = (
        taken[np.searchsorted(start_ns[begins], at_ns, side="right")] - given[np.searchsorted(end_ns[ends], at_ns, side="right")]
    )
    return found


def _of_total(time_ns: IntArray, total: IntArray, gpu: int, level: Level, kind: int) -> Mapping[str, npt.NDArray[Any]]:
    """Return columns of allocations that add up to a total over time; what is given back is what was taken last.

    The first total was there before.
    """
    changes = np.flatnonzero(np.diff(total)) + 1
    held, found = [(BEFORE, int(total[0]))], list[tuple[int, int, int]]()
    for at_ns, change in zip(time_ns[changes].tolist(), np.diff(total)[changes - 1].tolist(), strict=True):
        if change > 0:
            held.append((at_ns, change))
        left = -change
        while left > 0:
            start_ns, nbytes = held.pop()
            found.append((start_ns, at_ns, min(nbytes, left)))
            if nbytes > left:
                held.append((start_ns, nbytes - left))
            left -= nbytes
    found += [(start_ns, HELD, nbytes) for start_ns, nbytes in held]
    table = np.array([row for row in found if row[2]], np.int64).reshape(-1, 3).T
    return _columns(table, gpu, level, kind=np.where(table[0] == BEFORE, 0, kind))


def _settled(rest: IntArray) -> tuple[IntArray, int]:
    """Return values of which those are taken out that go back to what they were within a few events, and how many these are.

    Threads read the clock before or after the allocator counts, so two events may have each other's order.
    """
    opens = np.flatnonzero(np.diff(rest, prepend=rest[0] - 1))
    values, begins, found = rest[opens].tolist(), [*opens.tolist(), len(rest)], rest.copy()
    swapped, run = 0, 1
    while run < len(values):
        near = range(run + 1, min(run + 1 + _FEW, len(values)))
        back = next((later for later in near if values[later] == values[run - 1]), None)
        if back is not None and begins[back] - begins[run] <= _FEW:
            found[begins[run] : begins[back]] = values[run - 1]
            swapped += begins[back] - begins[run]
            run = back
        run += 1
    return found, swapped


def _columns(table: Sequence[IntArray] | IntArray, gpu: int, level: Level, **known: IntArray) -> Mapping[str, npt.NDArray[Any]]:
    start_ns, end_ns, nbytes = table
    rows = len(start_ns)
    unknown = dict.fromkeys(("name", "site"), np.full(rows, _UNKNOWN, np.int64))
    whose = {"gpu": np.full(rows, gpu, np.int64), "level": np.full(rows, level, np.int64)}
    return {"start_ns": start_ns, "end_ns": end_ns, "bytes": nbytes, **whose, **unknown, **known}


def _few_enough(columns: dict[str, npt.NDArray[Any]], said: list[str]) -> dict[str, npt.NDArray[Any]]:
    """Leave out the smallest allocations where there are more than a trace keeps, and note how many bytes they held at most."""
    left = len(columns["bytes"]) - Allocations.MOST
    if left <= 0:
        return columns
    small = np.argsort(columns["bytes"], kind="stable")[:left]
    start_ns, end_ns, nbytes = (columns[name][small] for name in ("start_ns", "end_ns", "bytes"))
    most = int(held_bytes(start_ns, end_ns, nbytes, start_ns).max())
    many = counted(left, "allocation")
    said.append(f"left out: {many}, the smallest, which held {most:,} bytes together at most, since a trace keeps {Allocations.MOST:,}")
    return {name: np.delete(column, small) for name, column in columns.items()}
