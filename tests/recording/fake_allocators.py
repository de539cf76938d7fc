"""PyTorch's caching allocator and CuPy's pools as far as recordings ask them: written as their sources are, block by block."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

SMALL, ROUND = 1 << 20, 512


class Block:
    """A piece of a segment, with its neighbours; `CUDACachingAllocator.cpp`."""

    def __init__(self, address: int, size: int, *, small: bool) -> None:
        self.address, self.size, self.small = address, size, small
        self.before: Block | None = None
        self.behind: Block | None = None
        self.allocated = self.pending = False
        self.requested = 0


class Torch:
    """PyTorch with one GPU or several: ``sys.modules["torch"]``, its allocator, its history and its statistics."""

    def __init__(self, now_us, gpus: int = 1) -> None:
        self.__version__ = "2.11.0"
        self._now_us = now_us
        self.allocators = [TorchAllocator(now_us) for _ in range(gpus)]
        self.history: list[object] = []
        memory = SimpleNamespace(_record_memory_history=self._record, _snapshot=self._snapshot)
        self.cuda = SimpleNamespace(init=lambda: None, memory=memory, is_initialized=lambda: True)
        self._C = SimpleNamespace(_cuda_isHistoryEnabled=lambda: self.allocators[0].records)

    def _record(self, enabled, **options) -> None:
        self.history.append((enabled, options))
        for each in self.allocators:
            each.records = enabled is not None
            if enabled is None:
                each.trace = []

    def _snapshot(self) -> dict:
        traces = [list(each.trace) for each in self.allocators]  # Before it notes the snapshot itself, as PyTorch 2.11 does on an H100.
        segments = [segment | {"device": gpu} for gpu, each in enumerate(self.allocators) for segment in each.snapshot()]
        return {"segments": segments, "device_traces": traces, "allocator_settings": {}}


class TorchAllocator:
    """One GPU's allocator; ``allocated`` and ``reserved`` are what `torch.cuda.memory_stats` counts."""

    def __init__(self, now_us, expandable: bool = False) -> None:
        self._now_us, self.expandable = now_us, expandable
        self.blocks: list[Block] = []
        self.trace: list[dict] = []
        self.records = False
        self.allocated = self.reserved = 0
        self.frames: list[dict] = []
        self._next = itertools.count(1)
        self.log: list[tuple[int, int, int]] = []
        """Time in µs, allocated and reserved bytes after each change."""

    def malloc(self, asked: int) -> Block:
        size = max(ROUND, (asked + ROUND - 1) // ROUND * ROUND)
        fits = [one for one in self.blocks if not one.allocated and not one.pending and one.small == (size <= SMALL) and one.size >= size]
        block = min(fits, key=lambda one: (one.size, one.address), default=None) or self._segment(size)
        rest = block.size - size
        if rest >= ROUND if block.small else rest > SMALL:
            remaining = Block(block.address + size, rest, small=block.small)
            remaining.before, remaining.behind = block, block.behind
            if block.behind is not None:
                block.behind.before = remaining
            block.behind, block.size = remaining, size
            self.blocks.append(remaining)
        block.allocated, block.requested = True, asked
        self._note("alloc", block.address, asked, frames=self.frames)
        self.allocated += block.size
        self._log()
        return block

    def free(self, block: Block, *, used_elsewhere: bool = False) -> None:
        block.allocated, block.pending = False, used_elsewhere
        self.allocated -= block.size
        self._note("free_requested", block.address, block.requested)
        self._log()
        if not used_elsewhere:
            self.complete(block)

    def complete(self, block: Block) -> None:
        block.pending = False
        self._note("free_completed", block.address, block.requested)
        for other in (block.before, block.behind):
            if other is not None and not other.allocated and not other.pending:
                first, second = (other, block) if other is block.before else (block, other)
                block.address, block.size = first.address, first.size + second.size
                block.before, block.behind = first.before, second.behind
                if block.before is not None:
                    block.before.behind = block
                if block.behind is not None:
                    block.behind.before = block
                self.blocks.remove(other)

    def empty_cache(self) -> None:
        for block in [one for one in self.blocks if one.before is one.behind is None and not one.allocated and not one.pending]:
            self.blocks.remove(block)
            self.reserved -= block.size
            self._note("segment_free", block.address, block.size)
            self._log()

    def snapshot(self) -> list[dict]:
        segments = []
        for first in sorted((one for one in self.blocks if one.before is None), key=lambda one: one.address):
            blocks, block = [], first
            while block is not None:
                state = "active_allocated" if block.allocated else "active_pending_free" if block.pending else "inactive"
                blocks.append({"address": block.address, "size": block.size, "requested_size": block.requested, "state": state})
                block = block.behind
            total = sum(one["size"] for one in blocks)
            segments.append({"address": first.address, "total_size": total, "blocks": blocks, "is_expandable": False})
        self._note("snapshot", 0, sum(one.size for one in self.blocks if one.allocated or one.pending))
        return segments

    def _segment(self, size: int) -> Block:
        total = 2 * SMALL if size <= SMALL else 20 * SMALL if size < 10 * SMALL else -(-size // (2 * SMALL)) * 2 * SMALL
        # Side by side, as the driver puts them, and at the place of one that was given back.
        ends = sorted((one.address, one.address + one.size) for one in self.blocks)
        address = 1 << 30
        for start, end in ends:
            if address + total <= start:
                break
            address = max(address, end)
        block = Block(address, total, small=size <= SMALL)
        self.blocks.append(block)
        self.reserved += total
        self._note("segment_alloc", address, total)
        self._log()
        return block

    def _note(self, action: str, address: int, size: int, **more) -> None:
        if self.records:
            self.trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": self._now_us(), **more})

    def _log(self) -> None:
        self.log.append((self._now_us(), self.allocated, self.reserved))


class MemoryHook:
    """CuPy's base of hooks; ``hooks`` are those of the one thread."""

    name = "MemoryHook"
    hooks: dict[str, MemoryHook] = {}  # noqa: RUF012

    def __enter__(self):
        assert self.name not in self.hooks
        self.hooks[self.name] = self
        return self

    def __exit__(self, *_) -> None:
        del self.hooks[self.name]

    def _nothing(self, **_) -> None:
        pass

    alloc_preprocess = alloc_postprocess = malloc_preprocess = malloc_postprocess = free_preprocess = free_postprocess = _nothing


class Pool:
    """A memory pool of CuPy's that takes from an allocator: the driver, or another pool's `malloc`."""

    def __init__(self, allocate=None) -> None:
        self._allocate = allocate or self._driver
        self._driver_address = itertools.count(1 << 40, 1 << 24)
        self.free_chunks: list[tuple[int, int]] = []
        self.used: dict[int, int] = {}
        self.total = 0

    def _driver(self, size: int):
        return next(self._driver_address), size

    def malloc(self, size: int) -> tuple[int, int]:
        size = -(-size // ROUND) * ROUND
        whole = min((one for one in self.free_chunks if one[1] >= size), key=lambda one: one[1], default=None)
        if whole is None:
            _call("alloc_preprocess", mem_size=size)
            whole = self._allocate(size)[0], size
            self.total += size
            _call("alloc_postprocess", mem_size=size, mem_ptr=whole[0])
        else:
            self.free_chunks.remove(whole)
            if whole[1] > size:
                self.free_chunks.append((whole[0] + size, whole[1] - size))
        self.used[whole[0]] = size
        _call("malloc_postprocess", size=size, mem_size=size, mem_ptr=whole[0], pmem_id=id(self) ^ whole[0])
        return whole[0], size

    def free(self, piece: tuple[int, int]) -> None:
        self.free_chunks.append((piece[0], self.used.pop(piece[0])))
        _call("free_postprocess", mem_size=piece[1], mem_ptr=piece[0], pmem_id=id(self) ^ piece[0])

    def used_bytes(self) -> int:
        return sum(self.used.values())

    def total_bytes(self) -> int:
        return self.total


def _call(method: str, **values: int) -> None:
    for hook in MemoryHook.hooks.values():
        getattr(hook, method)(device_id=0, **values)


class Cupy:
    """``sys.modules["cupy"]`` with one GPU."""

    def __init__(self) -> None:
        import contextlib

        self.__version__ = "14.2.0"
        self.pool = Pool()
        self.get_default_memory_pool = lambda: self.pool
        self.cuda = SimpleNamespace(
            MemoryHook=MemoryHook, MemoryPool=Pool, Device=lambda _: contextlib.nullcontext(), get_allocator=lambda: self.pool.malloc
        )
