"""Memory of PyTorch while something records: its allocator's own history, with the sizes of blocks, which the history does not tell.

The history has the bytes that were asked for. The allocator counts the bytes of the block that it lends, which are more: it rounds up, and
divides no block whose rest would be of little use. So its division of segments into blocks is done again here, from a snapshot on, and
has to arrive at the blocks of the snapshot at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.errors import printable
from streamscope.program.user_line import cell_name
from streamscope.recording.launch_lines import is_users
from streamscope.trace.launch_sites import Site
from streamscope.trace.memory import Level
from streamscope.trace.memory_events import MemoryEvents
from streamscope.words import counted

Json = Mapping[str, Any]
_MOST_ACTIONS = 1_000_000
"""Of one GPU that PyTorch keeps: each takes up to a kilobyte, with its stack."""
_ROUND, _SMALL = 512, 1 << 20
"""Blocks are multiples of that; requests up to a mebibyte come from segments for small ones (``c10/cuda/CUDACachingAllocator``)."""
_APART_US = 1_000
_TAKES, _GIVES = {"segment_alloc", "segment_map"}, {"segment_free", "segment_unmap"}


class UnknownDivisionError(Exception):
    """The allocator divides its segments in another way than is known here."""

    def __init__(self, why: str = "how its allocator rounds them up is not known") -> None:
        super().__init__(why)


@dataclass(frozen=True)
class Held:
    """Memory of one GPU and level that one allocator manages.

    Attributes
    ----------
    gpu : int
    events : MemoryEvents
        On the system's clock, in the order of time.
    before_bytes : int
        Held when they began.
    after_bytes : int, optional
        Held in the end, where the events lack what was given back.
    """

    gpu: int
    events: MemoryEvents
    before_bytes: int
    after_bytes: int | None = None


class TorchHistory:
    """Lets PyTorch record its allocator's actions from now on; a history that the user records goes on as it was."""

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        torch.cuda.init()  # Until then, it has no allocator that could record.
        self._memory, self._version = torch.cuda.memory, torch.__version__
        self._own = not torch._C._cuda_isHistoryEnabled()  # noqa: SLF001 — no public way
        if self._own:
            self._memory._record_memory_history("all", context="alloc", stacks="python", max_entries=_MOST_ACTIONS)  # noqa: SLF001 — as above
        try:
            self._before = self._memory._snapshot()  # noqa: SLF001 — as above
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Leave PyTorch as it was."""
        if self._own:
            self._memory._record_memory_history(None)  # noqa: SLF001 — as above
            self._own = False

    def end(self, said: list[str], since_ns: int) -> list[Held]:
        """Stop, and return what was taken and given back, of each GPU and level; where there was too much, from a time on."""
        try:
            after = self._memory._snapshot()  # noqa: SLF001 — as above
        finally:
            self.stop()
        return torch_memory(self._before, after, said, since_ns)


def torch_memory(before: Json, after: Json, said: list[str], since_ns: int = 0) -> list[Held]:
    """Return the memory of PyTorch's allocator between two snapshots, of each GPU and level, and note what is not known.

    ``since_ns``: from when on it is needed. A history that forgot only what came before is enough, but without the bytes of blocks.
    """
    found: list[Held] = []
    for gpu, trace in enumerate(after["device_traces"]):
        actions = _between(before["device_traces"][gpu] if gpu < len(before["device_traces"]) else (), trace)
        first, last = ([each for each in snapshot["segments"] if each["device"] == gpu] for snapshot in (before, after))
        segments: Sequence[Json] | None = first
        if actions is None and trace and 1000 * trace[0]["time_us"] < since_ns:
            actions, segments = trace, None
        if actions is None:
            many = counted(len(trace), "action")
            said.append(f"PyTorch's memory on GPU {gpu} is not known: its history keeps {many}, and there were more")
        elif segments or actions:
            found += [
                _lent(gpu, actions, segments, last, after.get("allocator_settings", {}), said),
                _reserved(gpu, actions, segments, last),
            ]
    return found


def _between(earlier: Sequence[Json], trace: Sequence[Json]) -> Sequence[Json] | None:
    """Return the actions since a snapshot; None where the first of them are forgotten.

    ``earlier``: the history in that snapshot. The snapshot is the next action after it.
    """
    if not earlier and not trace:
        return ()
    place = 0
    if earlier:
        place = next((at + 1 for at in reversed(range(len(trace))) if _is_same(earlier[-1], trace[at])), len(trace))
    return trace[place + 1 :] if place < len(trace) and trace[place]["action"] == "snapshot" else None


def _is_same(one: Json, other: Json) -> bool:
    """Tell whether two snapshots tell of the same action, whose time each makes of ticks of the processor anew."""
    return all(one.get(key) == other.get(key) for key in ("action", "addr", "size")) and abs(one["time_us"] - other["time_us"]) < _APART_US


def _lent(gpu: int, actions: Sequence[Json], before: Sequence[Json] | None, after: Sequence[Json], settings: Json, said: list[str]) -> Held:
    """Return the blocks that were lent to tensors. ``before``: the segments at the first action; None where they are not known."""
    moved = [one for one in actions if one["action"] in ("alloc", "free_requested")]
    try:
        sizes, size_of = _sizes(actions, before, after, settings), "size"
    except UnknownDivisionError as unknown:
        said.append(f"PyTorch's blocks on GPU {gpu} have the bytes that were asked for: {unknown}")
        sizes, size_of = [one["size"] if one["action"] == "alloc" else -one["size"] for one in moved], "requested_size"
    blocks = (
        block[size_of] for each in (after if before is None else before) for block in each["blocks"] if block["state"] == "active_allocated"
    )
    held = sum(blocks) - (sum(sizes) if before is None else 0)
    sites = _Sites()
    rows = [
        (1000 * one["time_us"], nbytes, one["addr"], sites.of(one.get("frames", ())) if nbytes > 0 else -1)
        for one, nbytes in zip(moved, sizes, strict=True)
    ]
    return Held(gpu, _events(gpu, rows, Level.ALLOCATED, tuple(sites.known)), held)


def _reserved(gpu: int, actions: Sequence[Json], before: Sequence[Json] | None, after: Sequence[Json]) -> Held:
    """Return the segments that the allocator took from the driver. ``before``: as of `_lent`."""
    mapped = _Mapped()
    sites = _Sites()
    rows = [
        (1000 * one["time_us"], nbytes, address, sites.of(one.get("frames", ())) if nbytes > 0 else -1)
        for one in actions
        for address, nbytes in mapped.changed(one)
    ]
    held = sum(each["total_size"] for each in (after if before is None else before))
    changed = sum(nbytes for _, nbytes, *_ in rows) if before is None else 0
    return Held(gpu, _events(gpu, rows, Level.RESERVED, tuple(sites.known)), held - changed)


def _events(gpu: int, rows: Sequence[tuple[int, int, int, int]], level: Level, sites: tuple[Site, ...]) -> MemoryEvents:
    time_ns, nbytes, address, site = np.array(rows, np.int64).reshape(-1, 4).T
    return MemoryEvents(time_ns, nbytes, address, np.full(len(rows), gpu), site=site, sites=sites, kind="PyTorch", level=level)


class _Sites:
    """The user's lines in PyTorch's stacks."""

    def __init__(self) -> None:
        self.known: dict[Site, int] = {}
        self._of_frame: dict[tuple[str, int], int] = {}

    def of(self, frames: Iterable[Json]) -> int:
        """Return the number of the innermost line of the user's; -1 where there is none, as in the threads of the backward pass."""
        for frame in frames:
            key = frame["filename"], frame["line"]
            if is_users(key[0]):
                number = self._of_frame.get(key)
                if number is None:
                    site = Site(printable(frame["name"]), printable(cell_name(key[0]) or key[0]), key[1])
                    number = self._of_frame[key] = self.known.setdefault(site, len(self.known))
                return number
        return -1


class _Mapped:
    """Pieces that the allocator took since the beginning; those of an expandable segment are given back in other pieces than taken."""

    def __init__(self) -> None:
        self._pieces: dict[int, int] = {}

    def changed(self, action: Json) -> Iterator[tuple[int, int]]:
        """Yield address and bytes of the memory that an action takes, or gives back (negative)."""
        if action["action"] in _TAKES:
            self._pieces[action["addr"]] = action["size"]
            yield action["addr"], action["size"]
        elif action["action"] in _GIVES:
            yield from self._cut(action["addr"], action["addr"] + action["size"])

    def _cut(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Give whole pieces back, and take again what of them stays; the rest was taken before."""
        unseen = start
        whole = {start: self._pieces[start]} if self._pieces.get(start) == end - start else self._pieces
        for address, size in sorted(each for each in whole.items() if each[0] < end and start < sum(each)):
            del self._pieces[address]
            if unseen < address:
                yield unseen, unseen - address
            yield address, -size
            unseen = address + size
            for low, high in ((address, start), (end, unseen)):
                if low < high:
                    self._pieces[low] = high - low
                    yield low, high - low
        if unseen < end:
            yield unseen, unseen - end


def _sizes(actions: Sequence[Json], before: Sequence[Json] | None, after: Sequence[Json], settings: Json) -> list[int]:
    """Return the bytes of the block of each action that lends one or, negative, takes one back.

    Raises
    ------
    UnknownDivisionError
        The segments are not divided in the end as they should be, or it is not known how they were at the beginning.
    """
    if before is None:
        raise UnknownDivisionError("its history keeps the last actions only")
    blocks = _Blocks(before, settings)
    found: list[int] = []
    for one in actions:
        action, address, nbytes = one["action"], one.get("addr", 0), one["size"]
        if action == "alloc":
            found.append(blocks.lend(address, nbytes))
        elif action == "free_requested":
            found.append(-blocks.lent(address))
        elif action == "free_completed":
            blocks.free(address)
        elif action in _TAKES:
            blocks.take(address, nbytes, apart=action == "segment_alloc")
        elif action in _GIVES:
            blocks.give(address, nbytes)
    if not blocks.are(after):
        raise UnknownDivisionError
    return found


class _Blocks:
    """The division of one GPU's segments into blocks, lent and free."""

    def __init__(self, segments: Sequence[Json], settings: Json) -> None:
        expandable = settings.get("expandable_segments", any(each.get("is_expandable") for each in segments))
        self._most_split = most if (most := settings.get("max_split_size", 0)) > 0 else sys.maxsize
        self._least_rest = _ROUND if expandable else _SMALL + 1
        self._lent, self._free = _by_state(segments)
        self._start = {start + size: start for start, size in self._free.items()}
        """Of each free block, by its end."""
        self._borders = {each["address"] for each in segments} | {each["address"] + each["total_size"] for each in segments}
        """Where ``cudaMalloc``'s segments begin and end: over these, blocks are not joined."""
        self._borders -= {
            border for each in segments if each.get("is_expandable") for border in (each["address"], each["address"] + each["total_size"])
        }

    def lend(self, address: int, asked: int) -> int:
        """Lend the beginning of a free block, and return the bytes."""
        size = max(_ROUND, -(-asked // _ROUND) * _ROUND)
        whole = self._free.pop(address, -1)
        if whole < size:
            raise UnknownDivisionError
        del self._start[address + whole]
        rest = whole - size
        if rest >= _ROUND if size <= _SMALL else rest >= self._least_rest and size < self._most_split:
            self._free[address + size], self._start[address + whole] = rest, address + size
        else:
            size = whole
        self._lent[address] = size
        return size

    def lent(self, address: int) -> int:
        """Return the bytes of a lent block."""
        if address not in self._lent:
            raise UnknownDivisionError
        return self._lent[address]

    def free(self, address: int) -> None:
        """Make a lent block free, which joins it with its free neighbours."""
        self._join(address, self.lent(address))
        del self._lent[address]

    def take(self, address: int, nbytes: int, *, apart: bool) -> None:
        """Take a segment of the driver, or a part of an expandable one."""
        if apart:
            self._borders |= {address, address + nbytes}
        self._join(address, nbytes)

    def give(self, address: int, nbytes: int) -> None:
        """Give free memory back to the driver."""
        within = ((start, size) for start, size in self._free.items() if start <= address and address + nbytes <= start + size)
        start = address if self._free.get(address, 0) >= nbytes else next((start for start, _ in within), None)
        if start is None:
            raise UnknownDivisionError
        end = start + self._free.pop(start)
        del self._start[end]
        self._borders -= {address, address + nbytes}
        for low, high in ((start, address), (address + nbytes, end)):
            if low < high:
                self._free[low], self._start[high] = high - low, low

    def are(self, segments: Sequence[Json]) -> bool:
        """Tell whether a snapshot has these blocks."""
        return (self._lent, self._free) == _by_state(segments)

    def _join(self, address: int, nbytes: int) -> None:
        end = address + nbytes
        if end not in self._borders and end in self._free:
            end += self._free.pop(end)
            del self._start[end]
        if address not in self._borders and address in self._start:
            address = self._start.pop(address)
        self._free[address], self._start[end] = end - address, address


def _by_state(segments: Sequence[Json]) -> tuple[dict[int, int], dict[int, int]]:
    """Return bytes by address of blocks that are lent, or wait for streams to finish with them, and of the free ones."""
    blocks = [block for each in segments for block in each["blocks"]]
    lent, free = (
        {block["address"]: block["size"] for block in blocks if (block["state"] == "inactive") == is_free} for is_free in (False, True)
    )
    return lent, free
