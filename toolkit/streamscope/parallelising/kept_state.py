"""What a function changes besides its arguments, put back as if it had never been called.

To capture and to measure a function takes many calls. A training step would have trained meanwhile. So all arrays that Python knows of are
saved before the first call; those that it changes are put back in the end. What the first call makes, as an optimiser makes its state,
was nothing before. Where later calls go on with that, everything is put back as it was after the first call.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from streamscope.capturing.allocations import known_objects
from streamscope.capturing.function import generators_of
from streamscope.capturing.memory import Region
from streamscope.capturing.state import LEFT_FREE
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import libraries

Memory = Any
"""The memory of arrays as bytes: a tensor or a CuPy array, which keeps it alive."""
Saved = dict[Region, tuple[Memory, Memory]]
"""Memory, and a copy of what it held."""


class KeptState:
    """Saves what there is when it is made; `called` tells it that the function was called for the first time.

    Parameters
    ----------
    arguments : object
        What the function is called with, which may hold generators of random numbers that nothing else does.
    """

    def __init__(self, arguments: object = None) -> None:
        self._there = {_key(one): (one, one.get_state()) for one in generators_held(arguments)}
        self._generators: list[tuple[Any, Any]] = []
        self.draws_from(generators_of(()))
        live = dict(live_memory())
        self._fits = sum(end - start for start, end in live) + LEFT_FREE <= _free_bytes()
        self._before: Saved = {region: (memory, memory_copy(memory)) for region, memory in live.items()} if self._fits else {}
        self._after: Saved = {}
        self._made: set[Region] = set()

    def called(self) -> None:
        """Keep what the first call has changed, and what it has made; let the rest go."""
        if not self._fits:
            return
        known = set(self._before)
        self._before = changed_of(self._before)
        own = {id(copy) for _, copy in self._before.values()}
        live = dict(live_memory(own))
        self._made = live.keys() - known
        changed = {region: memory for region, (memory, _) in self._before.items()} | {region: live[region] for region in self._made}
        self._after = {region: (memory, memory_copy(memory)) for region, memory in changed.items()}

    def draws_from(self, generators: Iterable[Any]) -> None:
        """Put generators of PyTorch's back in the end: to what they were at the start or, if they were not there, to what they are now."""
        known = {_key(generator) for generator, _ in self._generators}
        self._generators += [self._there.get(_key(one)) or (one, one.get_state()) for one in generators if _key(one) not in known]

    def put_back(self) -> str:
        """Put everything back; return what a user has to know of that, where there is something."""
        libraries().runtime.deviceSynchronize()
        goes_on = bool(changed_of({region: self._after[region] for region in self._made}))
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
    """Return what tells a generator apart: its address in PyTorch, since operators see it through other Python objects."""
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


def live_memory(without: Collection[int] = ()) -> Iterator[tuple[Region, Memory]]:
    """Yield the memory on the current GPU of all tensors and CuPy arrays that Python knows of, each piece once, with where it lies.

    Objects whose ``id`` is among ``without`` are left out.
    """
    torch, cupy = sys.modules.get("torch"), libraries().cupy
    seen: set[Region] = set()
    for each in known_objects():
        kind = type(each)
        if id(each) in without:
            continue
        if kind is cupy.ndarray:
            found = [_of_array(each)]
        elif torch is not None and issubclass(kind, torch.Tensor) and _has_memory(each):
            # A gradient that nobody has looked at has no object of Python's yet.
            found = [_of_tensor(one) for one in (each, each.grad if each.is_leaf else None) if one is not None]
        else:
            continue
        for region, memory in found:
            if region[0] < region[1] and region not in seen:
                seen.add(region)
                yield region, memory


def _has_memory(tensor: Any) -> bool:
    """Tell whether a tensor lies in device memory itself: those that wrap others have none, and the others are found beside them."""
    torch = sys.modules["torch"]
    if not tensor.is_cuda or tensor.layout is not torch.strided:
        return False
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return True
    try:
        storage = tensor.untyped_storage()
        return bool(storage.device.type == "cuda" and storage.data_ptr())
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def _of_tensor(tensor: Any) -> tuple[Region, Memory]:
    torch = sys.modules["torch"]
    storage = tensor.untyped_storage()
    memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    return (storage.data_ptr(), storage.data_ptr() + storage.nbytes()), memory


def _of_array(array: Any) -> tuple[Region, Memory]:
    cupy, memory = libraries().cupy, array.data.mem
    size = int(memory.size)
    return (int(memory.ptr), int(memory.ptr) + size), cupy.ndarray((size,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))


def memory_copy(memory: Memory) -> Memory:
    """Return a copy of some memory."""
    return memory.clone() if hasattr(memory, "clone") else memory.copy()


def changed_of(saved: Saved) -> Saved:
    """Return what of saved memory holds something else now."""
    # All are compared before the first answer is asked for, since each asking waits for the device.
    differs = [(region, (memory != copy).any()) for region, (memory, copy) in saved.items()]
    return {region: saved[region] for region, any_differs in differs if bool(any_differs)}


def _free_bytes() -> int:
    """Return how much device memory is free, what PyTorch holds and nobody uses among it."""
    torch = sys.modules.get("torch")
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated() if torch is not None and torch.cuda.is_initialized() else 0
    return int(libraries().runtime.memGetInfo()[0]) + cached
