"""The allocation around an address while code was captured: PyTorch's blocks, CuPy's pieces, else CUDA's own."""

from __future__ import annotations

import contextlib
import gc
import sys
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from streamscope.capturing.arrays import plainly
from streamscope.capturing.memory import AddressRange, Kept, around, united
from streamscope.kernels.library.libraries import libraries

_LOWEST, _HIGHEST = 2**16, 2**57  # No address of a GPU lies outside; most numbers that are none do.


def known_objects() -> list[Any]:
    """Return all objects that Python's garbage collector knows, also those that `gc.freeze` has set aside.

    They are not set aside again: garbage that has come since would be, too, and the memory that it holds would never be free.
    """
    gc.unfreeze()
    return gc.get_objects()


def torch_segments() -> list[dict[str, Any]]:
    """Return the memory snapshot of PyTorch's allocator; empty where it has none or is not used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or torch.cuda.get_allocator_backend() != "native":
        return []
    segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()
    return segments


def pools_of(segments: Iterable[dict[str, Any]]) -> list[AddressRange]:
    """Return the memory that PyTorch's allocator manages."""
    return [(each["address"], each["address"] + each["total_size"]) for each in segments]


def blocks_in_use(segments: Iterable[dict[str, Any]]) -> list[AddressRange]:
    """Return the blocks of PyTorch's allocator that are in use."""
    return [
        (block["address"], block["address"] + block["size"])
        for each in segments
        for block in each["blocks"]
        if block["state"] == "active_allocated"
    ]


class Allocated:
    """The memory around addresses: known allocations first, then the driver's answer, once for each piece.

    ``made``: allocations of a capture, in that order. Pieces that overlap were handed out one after the other.
    ``held``: memory in use when it began, or now.
    ``pools``: memory that an allocator manages. The driver knows nothing of how it is divided.
    """

    def __init__(self, made: Sequence[AddressRange] = (), held: Iterable[AddressRange] = (), pools: Iterable[AddressRange] = ()) -> None:
        self.made = made
        self._known = united((*made, *held))
        self._pools = united(pools)
        self._asked: list[AddressRange] = []
        self._elsewhere: set[int] = set()

    def around(self, address: int) -> AddressRange | None:
        """Return all memory that an address may have been meant to lead to; None if it does not lead to device memory.

        An address in a pool that lies in none of the allocations stands for the whole pool.
        """
        return self.piece(address) or around(self._pools, address)

    def piece(self, address: int) -> AddressRange | None:
        """Return the one allocation that an address lies in; None where it lies in none, as between those of a pool."""
        if found := around(self._known, address):
            return found
        return None if around(self._pools, address) else self._asked_for(address)

    def is_known(self, address: int) -> bool:
        """Tell whether an address lies in memory of PyTorch's or CuPy's allocators, and not in some library's own."""
        return around(self._known, address) is not None or around(self._pools, address) is not None

    def _asked_for(self, address: int) -> AddressRange | None:
        if not _LOWEST <= address < _HIGHEST or address in self._elsewhere:
            return None
        found = around(self._asked, address)
        if found is None:
            status, start, nbytes = libraries().cuda.cuMemGetAddressRange(address)
            if int(status) == 0:
                found = int(start), int(start) + int(nbytes)
                insort(self._asked, found)
            else:
                self._elsewhere.add(address)
        return found


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
    """Actions of PyTorch's allocator in a block of code."""

    made: list[AddressRange]
    """Blocks it handed out, in that order."""
    held: list[AddressRange]
    """Blocks in use before or after."""
    pools: list[AddressRange]
    """Segments it manages."""
    counts: TorchCounts
    """Since the block began: a count of allocations is an index in ``made``."""
    most_bytes: int = 0
    """Peak of the memory handed out in the block."""


@contextlib.contextmanager
def torch_history() -> Iterator[TorchHistory]:
    """Record the actions of PyTorch's allocator in the block; a user's own recorded history goes on."""
    torch = sys.modules["torch"]
    held = blocks_in_use(torch_segments())
    users = torch._C._cuda_isHistoryEnabled()  # noqa: SLF001 — no public way
    if not users:
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=sys.maxsize)  # noqa: SLF001 — as above
    history = TorchHistory([], held, [], TorchCounts())
    try:
        yield history
        snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001 — as above
        events = snapshot["device_traces"][torch.cuda.current_device()]
        history.made += _made(events, history.counts.now().allocations)
        history.most_bytes = most_in_use([(one["action"], one["addr"], one["size"]) for one in events]) if history.made else 0
        history.held += blocks_in_use(snapshot["segments"])
        history.pools += pools_of(snapshot["segments"])
    finally:
        if not users:
            torch.cuda.memory._record_memory_history(None)  # noqa: SLF001 — as above


def _made(events: Sequence[dict[str, Any]], count: int) -> list[AddressRange]:
    """Return the last allocations; nothing where a user's short history has forgotten some, since then no count is an index."""
    made = [(one["addr"], one["addr"] + one["size"]) for one in events if one["action"] == "alloc"]
    return made[len(made) - count :] if count <= len(made) else []


def most_in_use(events: Iterable[tuple[str, int, int]]) -> int:
    """Return the peak in bytes of the memory handed out among events of PyTorch's allocator.

    ``events``: action, address, bytes.

    Examples
    --------
    >>> most_in_use([("alloc", 0, 512), ("alloc", 512, 512), ("free_completed", 0, 512), ("alloc", 0, 512)])
    1024
    """
    in_use: dict[int, int] = {}
    now = most = 0
    for action, address, nbytes in events:
        if action == "alloc":
            in_use[address] = nbytes
            now += nbytes
            most = max(most, now)
        elif action == "free_completed":
            now -= in_use.pop(address, 0)
    return most


def pieces_of_arrays() -> list[AddressRange]:
    """Return the memory of CuPy's arrays, as its allocator divided it; not that of arrays which only show other memory."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return []
    held = (one.data.mem for one in known_objects() if type(one) is cupy.ndarray)
    own = (each for each in held if not isinstance(each, cupy.cuda.UnownedMemory) and each.size)
    return list({(int(each.ptr), int(each.ptr) + int(each.size)) for each in own})


def arrays_memory_behind(addresses: Iterable[int]) -> list[Any]:
    """Return the owners of the memory of CuPy's arrays and PyTorch's tensors at addresses: none is given back while they live."""
    sought = sorted(set(addresses))
    found = {}
    for owner, start, nbytes in _owners():
        first = bisect_left(sought, start)
        if first < len(sought) and sought[first] < start + nbytes:
            found[start, nbytes] = owner
    return list(found.values())


def _owners() -> list[tuple[Any, int, int]]:
    """Return the owner, address and length in bytes of each living array and tensor."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    found: list[tuple[Any, int, int]] = []
    with plainly():
        for one in known_objects():
            kind = type(one)
            if cupy is not None and kind is cupy.ndarray:
                found.append((one.data.mem, int(one.data.mem.ptr), int(one.data.mem.size)))
            elif torch is not None and issubclass(kind, torch.Tensor) and one.is_cuda and one.layout is torch.strided:
                # A tensor that only stands for another, as in a compiler's notes, has no memory, nor has one that is still to be made.
                with contextlib.suppress(RuntimeError, TypeError, ValueError):
                    storage = one.untyped_storage()
                    if storage.device.type == "cuda":  # Elsewhere, PyTorch warns of whoever asks for the address.
                        found.append((storage, storage.data_ptr(), storage.nbytes()))
    return found


def _allocate(own: list[AddressRange], nbytes: int) -> Any:
    memory = libraries().cupy.cuda.memory
    pointer = memory.MemoryPointer(memory.Memory(nbytes), 0)
    own.append((pointer.ptr, pointer.ptr + nbytes))
    return pointer


class PrivatePool:
    """A memory pool of CuPy's."""

    def __init__(self) -> None:
        self.own: list[AddressRange] = []
        """All memory that it took from CUDA."""
        # No method of this object: a pool in a circle would wait for the garbage collector, which may come while a capture goes on.
        self._pool = libraries().cupy.cuda.memory.MemoryPool(partial(_allocate, self.own))

    @property
    def nbytes(self) -> int:
        """Memory taken from CUDA, in bytes."""
        return sum(end - start for start, end in self.own)

    @contextlib.contextmanager
    def plain(self) -> Iterator[None]:
        """Let CuPy allocate from the pool in the block."""
        with libraries().cupy.cuda.using_allocator(self._pool.malloc):
            yield

    @contextlib.contextmanager
    def keeping(self, budget_bytes: int) -> Iterator[list[AddressRange]]:
        """Let CuPy allocate from the pool, where nothing that is given back is used again in the block; yield the allocations.

        Once the budget is used up, later memory is used again.
        """
        made: list[AddressRange] = []
        kept = Kept(budget_bytes, is_free=lambda _: False)

        def allocate(nbytes: int) -> Any:
            pointer = self._pool.malloc(nbytes)
            if nbytes:
                made.append((pointer.ptr, pointer.ptr + pointer.mem.size))
                # A pointer that is kept holds its block, so the pool cannot hand it out again.
                if kept.nbytes + pointer.mem.size <= budget_bytes:
                    kept.add(len(made), pointer, pointer.mem.size)
            return pointer

        with libraries().cupy.cuda.using_allocator(allocate):
            yield made
