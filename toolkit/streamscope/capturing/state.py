"""State that captured code changes from run to run: found by running its nodes, saved, and restored before each check.

A training step changes parameters and the optimiser's state, a dropout its random-number state, and no argument of the function names them.
But each node's arguments do: every word that is an address leads to a piece of memory. Two runs of the nodes then show which bytes change.
Other inputs may change other rows of an embedding. So known writes of a node count whole, whether these runs changed it or not.
Memory that only an address in device memory leads to, as in arrays of pointers, is not found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import Array
from streamscope.capturing.allocations import Allocated, blocks_in_use, pools_of, torch_segments
from streamscope.capturing.memory import Access, AddressRange, Evidence, inside, united
from streamscope.capturing.nodes import WORD
from streamscope.errors import HungError
from streamscope.interrupts import deferred
from streamscope.kernels.cuda import pieces
from streamscope.kernels.library.libraries import libraries
from streamscope.tolerance import absolute_errors, allowed_of_others

LINE = 512
"""Bytes that are saved together: CuPy's and PyTorch's allocators hand out nothing smaller, so two arrays never share a line."""
PIECE = 2**26
"""Bytes that are saved and compared at a time."""
LEFT_FREE = 8 * PIECE
"""Bytes of device memory that copies leave free; comparing a piece takes some."""
MOVED = 2**16
"""Bytes that a block of a kernel copies."""
_ALIGNED = 256
"""Copies begin at multiples of so many bytes, as allocations do."""


@dataclass(frozen=True)
class State:
    """Pieces of device memory with saved content."""

    saved: list[tuple[AddressRange, Any]]
    """The array is in device memory or, where that was full, on the host. Those come first that the captured code itself changes."""
    pool: Any
    """Where the arrays' memory comes from, which goes when its pool goes."""
    changing: int = 0
    """How many of them the captured code itself changes. The others may be set between runs: the seed of random numbers, a learning
    rate."""
    overwritten: list[AddressRange] = field(default_factory=list)
    """Memory of others in which results lie that a run writes whole, whatever was there before, as with ``out=``."""
    _all: Moves = field(init=False, repr=False)
    _changes: Moves = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Made now, in the same pool as what is saved: whoever puts back may do so while another pool is in use, which goes before this.
        object.__setattr__(self, "_all", _moves_back(self.saved))
        object.__setattr__(self, "_changes", _moves_back(self.saved[: self.changing]))

    def put_back(self) -> None:
        """Restore the saved content; blocking, since others may write there on other streams."""
        self._write(self.saved, self._all)

    def put_changes_back(self) -> None:
        """Restore the state that the captured code itself changes, so that it runs again as it did; blocking."""
        self._write(self.saved[: self.changing], self._changes)

    def _write(self, saved: Sequence[tuple[AddressRange, Any]], moves: Moves) -> None:
        if not saved:
            return
        runtime = libraries().runtime
        runtime.deviceSynchronize()
        # Between two waits: nothing may still write there, and whoever runs next must find it done.
        moves.run()
        for (start, end), values in saved:
            if isinstance(values, np.ndarray):
                bytes_at(start, end)[...] = libraries().cupy.asarray(values)
        runtime.deviceSynchronize()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Run a block that may change this memory, and restore it afterwards, unless the block hangs."""
        synchronize = libraries().runtime.deviceSynchronize
        synchronize()
        regions = [*(region for region, _ in self.saved), *self.overwritten]
        before = State(list(zip(regions, Copies(regions).values, strict=True)), None)
        synchronize()
        hung = False
        try:
            yield
        except HungError:
            hung = True
            raise
        finally:
            if not hung:
                with deferred():  # Else a second Ctrl-C would lose what the user had.
                    synchronize()
                    before.put_back()

    def changed(self) -> list[AddressRange]:
        """Return the lines that differ from the saved content."""
        return [line for region, values in self.saved for line in _changed_lines(region, values)]


def found_state(
    addresses: Iterable[int],
    accesses: Iterable[Access],
    own: Iterable[AddressRange],
    results: Sequence[AddressRange],
    outcome: Callable[[], Sequence[Array]],
    run: Callable[[], None],
) -> State:
    """Return the state of captured code; it is as before afterwards.

    ``addresses``: possible addresses of device memory: all words of the nodes' arguments.
    ``accesses``: known accesses of the nodes.
    ``own``: memory that the capture allocated, whose contents do not outlive a run.
    ``results``: where results of the function lie. Those that come out the same whatever was there before are written whole, so they are
        not state. In memory of others, which may be a weight that is returned, each element also has to be written with something else than
        0.
    ``outcome``: returns these results, on the host.
    ``run``: runs the nodes once, until the device is done.
    """
    # Copies come from a pool of their own: elsewhere they may lie beside what is looked at, and count as changed.
    pool = libraries().cupy.cuda.MemoryPool()
    with libraries().cupy.cuda.using_allocator(pool.malloc):
        saved = _found(_blocks(addresses), list(accesses), united(own), results, outcome, run, pool)
    pool.free_all_blocks()
    return saved


def _found(
    blocks: Sequence[AddressRange],
    accesses: Sequence[Access],
    own: Sequence[AddressRange],
    results: Sequence[AddressRange],
    outcome: Callable[[], Sequence[Array]],
    run: Callable[[], None],
    pool: Any,
) -> State:
    touched = _without(blocks, own)
    looked_at = _merged([*touched, *(region for region in results if not inside(region, own))])
    before = State(list(zip(looked_at, Copies(looked_at).values, strict=True)), pool)
    run()
    first = outcome()
    # Two runs: a counter that goes back to its start, or a buffer that is swapped, differs after one of them.
    lines = before.changed()
    run()
    lines += before.changed()
    before.put_back()
    # Zeros in the place of results: a run that writes them whole comes out the same, one that adds to them does not.
    for start, end in results:
        bytes_at(start, end).fill(0)
    run()
    # As closely as the check of results will look: sums by atomics differ from run to run.
    whole = [
        region
        for region, now, then in zip(results, outcome(), first, strict=True)
        if bool((absolute_errors(now, then) <= allowed_of_others(then)).all()) and (inside(region, own) or bool(now.all()))
    ]
    before.put_back()
    written = _common(_written(accesses, united(lines)), touched)
    changing = _without(_merged([*lines, *written]), sorted(whole))
    # PyTorch keeps the seed of its random numbers, and an optimiser its learning rate, in scalars that the host sets between runs.
    scalars = _without((region for region in touched if region[1] - region[0] <= LINE), sorted([*whole, *changing]))
    kept = [*changing, *scalars]
    overwritten = [region for region in whole if not inside(region, own)]
    return State(list(zip(kept, Copies(kept).values, strict=True)), pool, len(changing), overwritten)


def _written(accesses: Iterable[Access], lines: Sequence[AddressRange]) -> list[AddressRange]:
    """Return the regions that nodes write; those used in an unknown way count if lines of them changed."""
    writes = [one for one in accesses if one.writes]
    return [(one.start, one.end) for one in writes if one.evidence is not Evidence.POINTER or _common([(one.start, one.end)], lines)]


def _common(regions: Iterable[AddressRange], others: Sequence[AddressRange]) -> list[AddressRange]:
    """Intersect regions with `others`, which are sorted and apart."""
    ends = [end for _, end in others]
    found = []
    for start, end in regions:
        at = bisect_right(ends, start)
        while at < len(others) and others[at][0] < end:
            found.append((max(start, others[at][0]), min(end, others[at][1])))
            at += 1
    return found


def _blocks(addresses: Iterable[int]) -> list[AddressRange]:
    """Return the pieces of memory that addresses lie in: PyTorch's blocks in use or, elsewhere, allocations of CUDA."""
    segments = torch_segments()
    allocated = Allocated(held=blocks_in_use(segments), pools=pools_of(segments))
    return _merged({block for address in set(addresses) if (block := allocated.piece(address))})


def _merged(regions: Iterable[AddressRange]) -> list[AddressRange]:
    """Return the same memory as regions that are sorted, do not overlap, and are no longer than a piece.

    Neighbours stay apart: no copy may cross from one allocation into another, and a scalar is known by its length.
    """
    return [(at, min(at + PIECE, end)) for start, end in united(regions) for at in range(start, end, PIECE)]


def _without(regions: Iterable[AddressRange], others: Sequence[AddressRange]) -> list[AddressRange]:
    """Subtract `others`, which are sorted, from regions."""
    left = []
    for start, end in regions:
        at = start
        for other_start, other_end in others:
            if other_end > at and other_start < end:
                left += [(at, other_start)] if other_start > at else []
                at = other_end
        left += [(at, end)] if at < end else []
    return left


def led_to(regions: Iterable[AddressRange], targets: Sequence[AddressRange]) -> list[bool]:
    """Tell for each target whether pieces of device memory hold an address in it, as arrays of pointers do."""
    found = [False] * len(targets)
    for start, end in united(regions):
        first, last = -(-start // WORD) * WORD, end // WORD * WORD
        for at in range(first, last, PIECE):
            words = bytes_at(at, min(at + PIECE, last)).view(np.uint64)
            found = [seen or bool(((words >= low) & (words < high)).any()) for seen, (low, high) in zip(found, targets, strict=True)]
    return found


def bytes_at(start: int, end: int) -> Any:
    """Return device memory as an array of bytes."""
    cupy = libraries().cupy
    memory = cupy.cuda.UnownedMemory(start, end - start, None)
    return cupy.ndarray((end - start,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))


class Moves:
    """Copies between pieces of device memory, all in one launch on the current stream.

    ``moves``: where each source begins, and its target; the target of source 0 is filled with zeros.
    """

    def __init__(self, moves: Iterable[tuple[int, AddressRange]]) -> None:
        parts = [
            (source and source + at - start, at, min(MOVED, end - at)) for source, (start, end) in moves for at in range(start, end, MOVED)
        ]
        self._count = len(parts)
        self._parts = libraries().cupy.asarray(np.array(parts, np.uint64)) if parts else None

    def run(self) -> None:
        """Put the copies on the current stream."""
        if self._count:
            _moving()((self._count,), (256,), (self._parts,))


def _moves_back(saved: Iterable[tuple[AddressRange, Any]]) -> Moves:
    """Return the copies that restore the content saved on the device."""
    return Moves((int(values.data.ptr), region) for region, values in saved if not isinstance(values, np.ndarray))


class Copies:
    """Copies of pieces of device memory: in one array or, where device memory is almost full, on the host."""

    def __init__(self, regions: Sequence[AddressRange]) -> None:
        cupy, sizes = libraries().cupy, [end - start for start, end in regions]
        ends = np.cumsum([-(-size // _ALIGNED) * _ALIGNED for size in sizes], dtype=np.int64).tolist()
        nbytes = ends[-1] if ends else 0
        self._whole: Any = None
        if libraries().runtime.memGetInfo()[0] < LEFT_FREE + nbytes:
            self.values: list[Any] = [bytes_at(*region).get() for region in regions]
            return
        self._whole = whole = cupy.zeros(nbytes, np.uint8)
        starts = [end - -(-size // _ALIGNED) * _ALIGNED for end, size in zip(ends, sizes, strict=True)]
        self.values = [whole[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        """Of each piece, in bytes."""
        first = int(whole.data.ptr)
        Moves(
            (source, (first + start, first + start + size)) for (source, _), start, size in zip(regions, starts, sizes, strict=True)
        ).run()

    def differing(self, other: Copies) -> int:
        """Return how many bytes differ from other copies of the same pieces."""
        cupy = libraries().cupy
        both = self._whole is not None and other._whole is not None
        pairs = [(self._whole, other._whole)] if both else zip(self.values, other.values, strict=True)
        # Summed up on the device, and slice by slice: to compare takes as much memory as what is compared.
        return int(
            sum(
                cupy.count_nonzero(cupy.asarray(one[at : at + PIECE]) != cupy.asarray(another[at : at + PIECE]))
                for one, another in pairs
                for at in range(0, one.size, PIECE)
            )
        )


@cache
def _moving() -> Any:
    text = pieces("moved_bytes")
    return libraries().cupy.RawKernel(text["move"] + text["moved_bytes"], "moved_bytes")


def _changed_lines(region: AddressRange, values: Any) -> list[AddressRange]:
    """Return the lines of a piece of memory that differ from its saved content, neighbours together."""
    cupy = libraries().cupy
    differs = bytes_at(*region) != cupy.asarray(values)
    padded = cupy.pad(differs, (0, -differs.size % LINE))
    return rows_of_lines(padded.reshape(-1, LINE).any(axis=1).get(), *region)


def rows_of_lines(lines: npt.NDArray[np.bool_], start: int, end: int) -> list[AddressRange]:
    """Return the regions of neighbouring lines that are true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lines, [False])).astype(np.int8)))
    return [(start + int(first) * LINE, min(start + int(last) * LINE, end)) for first, last in edges.reshape(-1, 2)]
