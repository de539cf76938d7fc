"""State that a function changes, restored as if it had never been called.

To capture and to measure a function takes many calls. A training step would have trained meanwhile. So all arrays that Python knows of are
saved before the first call; those that it changes are put back in the end. What the first call makes, as an optimiser makes its state,
was nothing before. Where later calls go on with that, everything is put back as it was after the first call. Counters in host memory,
such as an optimiser's steps, are arrays of one number: they are saved, too.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from streamscope.capturing.allocations import known_objects
from streamscope.capturing.arrays import plainly
from streamscope.capturing.function import generators_of
from streamscope.capturing.memory import AddressRange
from streamscope.capturing.state import LEFT_FREE, PIECE
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import libraries
from streamscope.parallelising.device_arrays import is_out_of_memory

Memory = Any
"""The memory of arrays as bytes: a tensor or a CuPy array, which keeps it alive."""
_Saved = dict[AddressRange, tuple[Memory, Memory]]
"""Memory, and a copy of its content."""
_Live = dict[AddressRange, tuple[Memory, int]]
"""Memory, and how often PyTorch has written to tensors in it, as far as it counts."""
_NUMBER_BYTES = 16
"""An array in host memory of at most so many bytes is a number."""
MOST_NUMBERS = 10_000
"""Of more numbers than these, none is saved: they are data."""


class KeptState:
    """Saves all state when it is made; `called` tells it that the function was called for the first time.

    ``arguments``: the function's arguments, which may hold generators of random numbers that nothing else does.
    """

    def __init__(self, arguments: object = None) -> None:
        self._there = {_key(one): (one, one.get_state()) for one in generators_held(arguments)}
        self._generators: list[tuple[Any, Any]] = []
        self.draws_from(generators_of(()))
        live = live_memory()
        self._fits = sum(end - start for start, end in live) + LEFT_FREE <= _free_bytes()
        self._before = self._saved(live)
        self._after: _Saved = {}
        self._made: set[AddressRange] = set()
        self._written = {region: written for region, (_, written) in live.items()}

    def called(self) -> None:
        """Keep the memory that the first call changed, wrote to or made; let the rest go.

        What it wrote may hold the same values by chance: the step of a weight may be less than the weight's last digit.
        """
        if not self._fits:
            return
        live = live_memory({id(one) for pair in self._before.values() for one in pair})
        self._made = live.keys() - self._written.keys()
        changed = changed_of(self._before).keys() | {
            region for region, (_, written) in live.items() if written != self._written.get(region)
        }
        self._before = {region: saved for region, saved in self._before.items() if region in changed}
        self._after = self._saved({region: found for region, found in live.items() if region in changed})

    def _saved(self, live: _Live) -> _Saved:
        """Return copies of memory; nothing, also from now on, where they do not fit."""
        try:
            return {region: (memory, memory_copy(memory)) for region, (memory, _) in live.items()} if self._fits else {}
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._fits = False
            self._before = {}
            return {}

    def draws_from(self, generators: Iterable[Any]) -> None:
        """Restore generators of PyTorch's in the end: to their state at the start or, if they were not there, to that of now."""
        known = {_key(generator) for generator, _ in self._generators}
        self._generators += [self._there.get(_key(one)) or (one, one.get_state()) for one in generators if _key(one) not in known]

    def put_back(self) -> str:
        """Restore everything; return notes for the user, where there are any."""
        libraries().runtime.deviceSynchronize()
        goes_on = bool(changed_of({region: self._after[region] for region in self._made & self._after.keys()}))
        with deferred():
            for memory, values in (self._after if goes_on else self._before).values():
                memory[...] = values
            for generator, state in self._generators:
                generator.set_state(state)
            libraries().runtime.deviceSynchronize()
        if not self._fits:
            return "What the function changes was not put back: there is too little device memory to save it."
        return "The function's own state is as after one call, which made it." if goes_on else ""


def _key(generator: Any) -> int:
    """Return a generator's identity: its address in PyTorch, since operators see it through other Python objects."""
    return int(generator._cdata)  # noqa: SLF001 — PyTorch's own name for it


def generators_held(arguments: object) -> list[Any]:
    """Return the generators of PyTorch's on GPUs that Python objects hold: some arguments, and all that the garbage collector knows.

    It knows neither generators nor dictionaries and tuples that hold nothing else that it would have to know.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    found: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    left = [arguments, *known_objects()]
    while left:
        held = gc.get_referents(*left)
        kinds = {kind for kind in set(map(type, held)) if issubclass(kind, torch.Generator)}
        found |= {id(one): one for one in held if type(one) in kinds and one.device.type == "cuda"}
        unknown = {id(one): one for one in held if type(one) in (dict, tuple) and not gc.is_tracked(one)}
        left = [one for key, one in unknown.items() if key not in seen]
        seen |= unknown
    return list(found.values())


def live_memory(without: Collection[int] = ()) -> _Live:
    """Return the memory on the current GPU of all tensors and CuPy arrays that Python knows of, and that of numbers on the host.

    Objects whose ``id`` is among ``without`` are left out.
    """
    torch, cupy = sys.modules.get("torch"), libraries().cupy
    current = int(libraries().runtime.getDevice())
    live: _Live = {}
    numbers: _Live = {}
    with plainly():
        for each in known_objects():
            kind = type(each)
            if id(each) in without:
                continue
            if kind is cupy.ndarray:
                found = [(*_of_array(each), 0)] if each.device.id == current else []
            elif torch is not None and issubclass(kind, torch.Tensor):
                found = _of_tensor(each, current)
            else:
                continue
            there = live if kind is cupy.ndarray or each.is_cuda else numbers
            for region, memory, written in found:
                if region[0] < region[1]:
                    there[region] = (memory, written + (there[region][1] if region in there else 0))
    return live | numbers if len(numbers) <= MOST_NUMBERS else live


def _of_tensor(tensor: Any, current: int) -> list[tuple[AddressRange, Memory, int]]:
    """Return where a tensor and its gradient lie, their memory as bytes, and how often they were written; nothing of what has none.

    Tensors that wrap others have none, and the others are found beside them. Sparse ones have none, and those that are still to be made.
    """
    torch = sys.modules["torch"]
    found = []
    try:
        # A gradient that nobody has looked at has no object of Python's yet.
        for one in (tensor, tensor.grad if tensor.is_leaf else None):
            if one is None or one.layout is not torch.strided or not (one.is_cuda or one.nbytes <= _NUMBER_BYTES):
                continue
            storage = one.untyped_storage()
            place = storage.device  # Where this is "meta", PyTorch warns of whoever asks for the address.
            # What other processes may write meanwhile, such as a sign to stop, is not the function's.
            is_number = place.type == "cpu" and storage.nbytes() <= _NUMBER_BYTES and not storage.is_shared()
            if (is_number or (place.type == "cuda" and place.index == current)) and (start := storage.data_ptr()):
                memory = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
                written = 0 if one.is_inference() else one._version  # noqa: SLF001 — no public way
                found.append(((start, start + storage.nbytes()), memory, written))
    except (RuntimeError, TypeError, ValueError):
        return found
    return found


def _of_array(array: Any) -> tuple[AddressRange, Memory]:
    cupy, memory = libraries().cupy, array.data.mem
    size = int(memory.size)
    return (int(memory.ptr), int(memory.ptr) + size), cupy.ndarray((size,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))


def memory_copy(memory: Memory) -> Memory:
    """Return a copy of some memory."""
    return memory.clone() if hasattr(memory, "clone") else memory.copy()


def changed_of(saved: _Saved) -> _Saved:
    """Return saved memory with other content now; memory that cannot be compared, as none is free, counts as changed."""
    # All are compared before the first answer is asked for, since each asking waits for the device.
    differs = [(region, [_differs(memory, copy, at) for at in range(0, len(memory), PIECE)]) for region, (memory, copy) in saved.items()]
    return {region: saved[region] for region, parts in differs if any(map(bool, parts))}


def _differs(memory: Memory, copy: Memory, at: int) -> Any:
    """Tell whether a piece of memory differs from a copy; to compare takes as much memory as the piece."""
    try:
        return (memory[at : at + PIECE] != copy[at : at + PIECE]).any()
    except Exception as error:
        if is_out_of_memory(error):
            return True
        raise


def _free_bytes() -> int:
    """Return the free device memory in bytes, unused blocks of PyTorch's included."""
    torch = sys.modules.get("torch")
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated() if torch is not None and torch.cuda.is_initialized() else 0
    return int(libraries().runtime.memGetInfo()[0]) + cached
