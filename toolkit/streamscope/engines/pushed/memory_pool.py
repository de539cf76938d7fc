"""Memory that is handed out again in the order of streams, so that neither the host nor the device stops for it.

Freed memory may still be in use: the work of its last user has been issued, and is not done. Each free block keeps the events of
that work. It goes to a stream at once if they are done or are that stream's own; else the new user's stream waits for them, and
the host goes on. The host itself gets only blocks whose events are done.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from streamscope.errors import DeviceError, OutOfMemoryError
from streamscope.interrupts import clean_up
from streamscope.program.variable import ArraySpec, MemoryPlace

if TYPE_CHECKING:
    from streamscope.devices.protocol import Buffer, Device, MemoryBlock, Stream
    from streamscope.engines.pushed.lanes import EventStamp

_After: TypeAlias = "tuple[tuple[Stream, EventStamp], ...]"
"""The use of a block must come after these events, each with its stream."""

SMALLEST_BYTES = 512
"""Blocks are multiples of this, which is also the granularity of CuPy's pool."""

STEPS = 4
"""Size classes between a power of two and the next: at most a quarter of a block of 2 KiB or more is lost."""

_LOOKED_AT = 4
"""How many free blocks of one size are looked at for one that needs no wait: the oldest ones, whose events are done if any are."""


def size_class(nbytes: int) -> int:
    """Return the size of the block that serves a request: the next of `STEPS` sizes between powers of two, in bytes."""
    if nbytes <= SMALLEST_BYTES:
        return SMALLEST_BYTES
    power = 1 << ((nbytes - 1).bit_length() - 1)
    step = max(SMALLEST_BYTES, power // STEPS)
    return -(-nbytes // step) * step


@dataclass
class MemoryStatistics:
    """A pool's memory of one kind, and counts of its work."""

    in_use_bytes: int = 0
    """Size of the blocks that are handed out."""
    high_water_bytes: int = 0
    """The most that ``in_use_bytes`` has been."""
    reserved_bytes: int = 0
    """Size of all blocks taken from the device and not given back, in use or free."""
    allocations: int = 0
    reuses: int = 0
    """Requests served with memory new from the device, and with a block that was there."""
    waits: int = 0
    """Waits put on streams before a block could be used again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A block that is handed out: for which stream, and which events of former users need not be done yet."""

    buffer: Buffer
    block: MemoryBlock
    stream: Stream | None
    inherited: _After
    gpu: int

    def freed(self, after: _After) -> _Free:
        """Return the block as it is when freed; work of former users counts on, unless the new user's work comes after it."""
        streams = [stream for stream, _ in after]
        if self.stream is not None and self.stream in streams:
            return _Free(self.block, after)
        return _Free(self.block, (*after, *(entry for entry in self.inherited if entry[0] not in streams)))


@dataclass(frozen=True, slots=True, eq=False)
class _Free:
    """A block that waits for its next user, and the events of its last ones."""

    block: MemoryBlock
    after: _After

    def pending(self, stream: Stream | None) -> _After:
        """Return the events that a stream, or the host, would have to wait for."""
        return tuple(entry for entry in self.after if entry[0] is not stream and not entry[1].event.done())


class _Store:
    """The free blocks of one kind of memory by size, oldest first, and the counts."""

    def __init__(self) -> None:
        self.free: dict[int, deque[_Free]] = {}
        self.sizes: list[int] = []
        self.counts = MemoryStatistics()

    def put(self, freed: _Free) -> None:
        """Take a block back."""
        size = freed.block.nbytes
        if size not in self.free:
            self.free[size] = deque()
            insort(self.sizes, size)
        self.free[size].append(freed)
        self.counts.in_use_bytes -= size

    def find(self, nbytes: int, stream: Stream | None) -> tuple[_Free, _After] | None:
        """Return the best free block that is not twice as large as needed, and the events that the stream must wait for, or None.

        The best is the smallest that needs no wait or, for a stream, the one with the fewest waits.
        """
        waiting: list[tuple[_Free, _After]] = []
        for size in self.sizes[bisect_left(self.sizes, nbytes) : bisect_left(self.sizes, 2 * size_class(nbytes))]:
            for free in islice(self.free[size], _LOOKED_AT):
                pending = free.pending(stream)
                if not pending:
                    return free, ()
                waiting.append((free, pending))
        return min(waiting, key=lambda found: len(found[1])) if waiting and stream is not None else None

    def remove(self, free: _Free) -> None:
        """Take a block out."""
        self.free[free.block.nbytes].remove(free)

    def use(self, nbytes: int) -> None:
        """Count a block as handed out."""
        self.counts.in_use_bytes += nbytes
        self.counts.high_water_bytes = max(self.counts.high_water_bytes, self.counts.in_use_bytes)


class MemoryPool:
    """Hands out memory of one device, of each GPU its own, again and again; safe to use from several threads.

    Memory that is handed out for a stream may be used there at once; on another stream, only behind what the first use on that
    stream comes behind (an event, as for any other dependency).
    """

    def __init__(self, device: Device) -> None:
        self.reclaim: Callable[[], object] = lambda: None
        """Called when memory has run out and the pool has none to give back: whoever else keeps memory lets go of blocks that it can make
        again."""
        self._device = device
        """Where the memory comes from."""
        self._stores: defaultdict[tuple[MemoryPlace, int], _Store] = defaultdict(_Store)
        """By place and GPU."""
        # By address: `_Held` keeps the buffer, so no other object gets that address.
        self._held: dict[int, _Held] = {}
        self._freed: deque[tuple[int, _Free]] = deque()
        self._lock = Lock()

    def statistics(self, place: MemoryPlace = MemoryPlace.DEVICE) -> MemoryStatistics:
        """Return the pool's device memory, summed over GPUs, or page-locked host memory, and counts of its work."""
        with self._lock:
            self._collect()
            counts = [astuple(store.counts) for (where, _), store in self._stores.items() if where is place]
            return MemoryStatistics(*map(sum, zip(*counts, strict=True)))

    def allocate(self, spec: ArraySpec, place: MemoryPlace, stream: Stream | None = None, *, purpose: str = "", gpu: int = 0) -> Buffer:
        """Hand out memory for an array; its contents are undefined.

        ``place``: device memory, or page-locked host memory.
        ``stream``: the stream that uses it first; it waits for the last users of the memory. Without one the host may use the memory at
            once.
        ``purpose``: what the memory is for, for the error message.
        ``gpu``: whose memory it is; the stream may be another's.
        """
        with self._lock:
            self._collect()
            store = self._stores[place, gpu]
            found = store.find(spec.nbytes, stream)
            held = self._new(store, spec, place, stream, purpose, gpu) if found is None else self._again(store, *found, spec, stream, gpu)
            store.use(held.block.nbytes)
            self._held[id(held.buffer)] = held
        return held.buffer

    def free(self, buffer: Buffer, after: Sequence[tuple[Stream, EventStamp]] = ()) -> None:
        """Take memory back. Takes no lock, so that a finaliser may call it in the middle of anything.

        ``buffer``: a result of `allocate`.
        ``after``: the last event of each stream that used it, whether as reader or as writer. Those of other streams that are known to be
            done or implied may be left out.
        """
        held = self._held.pop(id(buffer), None)
        if held is None:
            raise DeviceError(f"cannot free memory for {buffer.spec}: this pool does not lend it", hint="free each buffer once")
        self._freed.append((held.gpu, held.freed(tuple(after))))

    def trim(self, *, wait: bool = False) -> int:
        """Give free blocks back to the device and return their size in bytes.

        ``wait``: block the host until the last users of free blocks are done; without it, blocks that are still in use stay.
        """
        with self._lock:
            self._collect()
            return sum(self._give_back(store, wait=wait) for store in self._stores.values())

    def _collect(self) -> None:
        """Put freed blocks where they can be found."""
        clean_up()
        while self._freed:
            gpu, freed = self._freed.popleft()
            self._stores[freed.block.place, gpu].put(freed)

    def _again(self, store: _Store, free: _Free, pending: _After, spec: ArraySpec, stream: Stream | None, gpu: int) -> _Held:
        if stream is not None:
            for _, stamp in pending:
                stream.wait(stamp.event)
        buffer = self._device.buffer_on(free.block, spec, stream)
        # Only now: if a wait or the buffer failed, the block is still free.
        store.remove(free)
        store.counts.reuses += 1
        store.counts.waits += len(pending)
        earlier_here = (entry for entry in free.after if entry[0] is stream)
        return _Held(buffer, free.block, stream, (*pending, *earlier_here), gpu)

    def _new(self, store: _Store, spec: ArraySpec, place: MemoryPlace, stream: Stream | None, purpose: str, gpu: int) -> _Held:
        try:
            block = self._block(size_class(spec.nbytes), place, gpu)
        except OutOfMemoryError:
            # To wait for the last users of free blocks is slow, and better than to fail; and now every byte counts.
            self._give_back(store, wait=True)
            try:
                block = self._block(max(1, spec.nbytes), place, gpu)
            except OutOfMemoryError:
                block = self._last_block(store, spec, place, purpose, gpu)
        store.counts.reserved_bytes += block.nbytes
        store.counts.allocations += 1
        return _Held(self._device.buffer_on(block, spec), block, stream, (), gpu)

    def _block(self, nbytes: int, place: MemoryPlace, gpu: int) -> MemoryBlock:
        # Said only where there are several: devices of other packages may have one GPU.
        return self._device.allocate_block(nbytes, place, gpu=gpu) if gpu else self._device.allocate_block(nbytes, place)

    def _last_block(self, store: _Store, spec: ArraySpec, place: MemoryPlace, purpose: str, gpu: int) -> MemoryBlock:
        """Allocate after everybody has let go of memory that can be made again."""
        self.reclaim()
        try:
            return self._block(max(1, spec.nbytes), place, gpu)
        except OutOfMemoryError as error:
            counts = store.counts
            raise OutOfMemoryError(
                f"{purpose or spec} needs {spec.nbytes:,} bytes of {place.value} memory, where this pool has "
                f"{counts.in_use_bytes:,} in use and {counts.reserved_bytes:,} reserved: {error.message}",
                hint="delete variables that are not used any more, or use smaller shapes",
            ) from error

    @staticmethod
    def _give_back(store: _Store, *, wait: bool) -> int:
        """Drop free blocks, which gives their memory back to the device; return their size in bytes."""
        given = 0
        for free in [free for blocks in store.free.values() for free in blocks]:
            if wait:
                for _, stamp in free.after:
                    stamp.event.synchronize()
            if not free.pending(None):
                store.remove(free)
                given += free.block.nbytes
        store.counts.reserved_bytes -= given
        return given
