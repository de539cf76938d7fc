"""What was allocated around an address while code was captured: PyTorch's blocks, CuPy's pieces, else what CUDA allocated at once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamscope.capturing.arguments import Allocations as Pieces
from streamscope.capturing.memory import Region, around


def torch_segments() -> list[dict[str, Any]]:
    """Return what PyTorch's allocator holds, as its memory snapshot has it; empty where it has none or is not used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or torch.cuda.get_allocator_backend() != "native":
        return []
    segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()
    return segments


def blocks_in_use(segments: Iterable[dict[str, Any]]) -> list[Region]:
    """Return the blocks of PyTorch's allocator that are in use."""
    return [
        (block["address"], block["address"] + block["size"])
        for each in segments
        for block in each["blocks"]
        if block["state"] == "active_allocated"
    ]


def united(regions: Iterable[Region]) -> list[Region]:
    """Return regions sorted, those that overlap made one; neighbours stay apart.

    Examples
    --------
    >>> united([(8, 16), (0, 8), (12, 20)])
    [(0, 8), (8, 20)]
    """
    found: list[Region] = []
    for start, end in sorted(regions):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


class Allocated:
    """All that was allocated at any time during a capture.

    Parameters
    ----------
    made : sequence of Region
        What was allocated during the capture, in that order. Pieces that overlap were handed out one after the other.
    held : iterable of Region
        What was in use when it began, or is in use now.
    pools : iterable of Region
        Memory that an allocator manages. An address there that lies in none of the allocations stands for the whole of its pool.
    """

    def __init__(self, made: Sequence[Region] = (), held: Iterable[Region] = (), pools: Iterable[Region] = ()) -> None:
        self.made = made
        self._known = united((*made, *held))
        self._pools = united(pools)
        self._elsewhere = Pieces()

    def around(self, address: int) -> Region | None:
        """Return all memory that an address may have been meant to lead to; None if it does not lead to device memory."""
        return around(self._known, address) or around(self._pools, address) or self._elsewhere.around(address)


class Counts(NamedTuple):
    """How often PyTorch's allocator has handed out memory so far, and how many bytes it got back."""

    allocations: int
    freed_bytes: int


class TorchCounts:
    """Counts of PyTorch's allocator since this was made."""

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self._statistics, self._device = torch._C._cuda_memoryStats, torch.cuda.current_device()  # noqa: SLF001 — the public way is slow
        self._first = self._all()

    def now(self) -> Counts:
        """Return the counts."""
        allocations, freed_bytes = self._all()
        return Counts(allocations - self._first.allocations, freed_bytes - self._first.freed_bytes)

    def _all(self) -> Counts:
        statistics = self._statistics(self._device)
        return Counts(statistics["allocation"]["all"]["allocated"], statistics["allocated_bytes"]["all"]["freed"])


@dataclass
class TorchHistory:
    """What PyTorch's allocator did in a block of code.

    Attributes
    ----------
    made : list of Region
        What it handed out, in that order.
    held : list of Region
        What was in use before or after.
    pools : list of Region
        What it manages.
    is_whole : bool
        Whether ``made`` has all of it, so that counts of allocations are indices in it.
    """

    made: list[Region]
    held: list[Region]
    pools: list[Region]
    is_whole: bool = False


@contextlib.contextmanager
def torch_history() -> Iterator[TorchHistory]:
    """Write down what PyTorch's allocator does in the block; the history that a user writes goes on."""
    torch = sys.modules["torch"]
    history = TorchHistory([], blocks_in_use(torch_segments()), [])
    users = torch._C._cuda_isHistoryEnabled()  # noqa: SLF001 — no public way
    if not users:
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=sys.maxsize)  # noqa: SLF001 — as above
    counts = TorchCounts()
    try:
        yield history
        made = counts.now().allocations
        snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001 — as above
        events = [one for one in snapshot["device_traces"][torch.cuda.current_device()] if one["action"] == "alloc"]
        history.made += [(one["addr"], one["addr"] + one["size"]) for one in events[max(0, len(events) - made) :]]
        history.held += blocks_in_use(snapshot["segments"])
        history.pools += [(each["address"], each["address"] + each["total_size"]) for each in snapshot["segments"]]
        history.is_whole = len(history.made) == made
    finally:
        if not users:
            torch.cuda.memory._record_memory_history(None)  # noqa: SLF001 — as above
