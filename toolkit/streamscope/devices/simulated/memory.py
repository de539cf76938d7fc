"""Memory of the simulated device: NumPy arrays, full of poison until something is written.

A program of thousands of operations has more intermediates than this machine has memory. So a block takes memory when it is first written
to, and gives it back when nobody reads it any more in this run; who reads it then reads poison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from streamscope.arrays import Array
from streamscope.devices.cost_model import CostModel
from streamscope.errors import DeviceError, OutOfMemoryError
from streamscope.interrupts import deferred
from streamscope.program.launch import HostCall, Launch, read_only
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.program.view import View
from streamscope.words import counted

_POISON_BYTE = 0x5A
_NO_ARRAY: Array = np.empty(0)


class SimulatedBlock:
    """Memory without a shape; `streamscope.devices.protocol.Block`."""

    def __init__(self, nbytes: int, place: MemoryPlace, memory: npt.NDArray[np.uint8] | None = None, gpu: int | None = None) -> None:
        self.nbytes = nbytes
        self.place = place
        self.gpu = gpu
        """None: memory of the host, or the user's, which is any GPU's."""
        self.memory = memory
        """None until something is written, and again when that was let go."""

    def take(self) -> npt.NDArray[np.uint8]:
        """Return its memory, which it takes now if it has none."""
        if self.memory is None:
            try:
                self.memory = np.empty(self.nbytes, np.uint8)
            except MemoryError as error:
                message = f"a block takes {self.nbytes:,} bytes, more than this machine has for the simulation"
                raise OutOfMemoryError(message, hint="use smaller shapes") from error
        return self.memory


class SimulatedBuffer:
    """Memory of one variable; `streamscope.devices.protocol.Buffer`."""

    def __init__(self, block: SimulatedBlock, spec: ArraySpec) -> None:
        if block.nbytes < spec.nbytes:
            raise DeviceError(f"a block of {block.nbytes:,} bytes cannot hold {spec}, which takes {spec.nbytes:,}")
        self._block = block
        self.spec = spec
        self._memory: npt.NDArray[np.uint8] | None = None
        self._array, self._view = _NO_ARRAY, _NO_ARRAY
        self._first: Launch | HostCall | None = None
        self._uses = self._used = 0

    @property
    def place(self) -> MemoryPlace:
        """Host or device memory."""
        return self._block.place

    @property
    def gpu(self) -> int | None:
        """The GPU whose memory it is, if it is one's."""
        return self._block.gpu

    def poison(self, view: View | None = None) -> None:
        """Make the values those of memory that nobody has written to: NaN in floats, 0x5A in every byte of integers, True in bools.

        ``view``: those of a part only.
        """
        if self._block.memory is None:
            return
        if view is None:
            self.hold().fill(poison_of(self.spec.dtype))
        else:
            view.put(self.hold(), np.broadcast_to(np.asarray(poison_of(self.spec.dtype), self.spec.dtype), view.spec.shape))

    @property
    def values(self) -> Array:
        """Values in memory now: a read-only view, so that a reference that changes its arguments is found out."""
        memory = self._block.memory
        if memory is None:
            return np.broadcast_to(np.asarray(poison_of(self.spec.dtype), self.spec.dtype), self.spec.shape)
        if memory is not self._memory:
            self.hold()
        return self._view

    def hold(self) -> Array:
        """Return the array, for which memory is taken now if there is none."""
        memory = self._block.memory
        if memory is None or self._memory is not memory:
            memory = self._block.take()
            self._memory, self._array = memory, memory[: self.spec.nbytes].view(self.spec.dtype).reshape(self.spec.shape)
            self._view = read_only(self._array)
        return self._array

    def expect(self, first: Launch | HostCall, uses: int) -> None:
        """Let the values go when a run has used them so often, from the launch or host call on that writes them first."""
        self._first, self._uses = first, uses

    def used(self, by: Launch | HostCall) -> None:
        """Count a use that is over."""
        if self._first is not None:
            # Begun anew by each run: the one before may have been broken off.
            self._used = 1 if by is self._first else self._used + 1
            if self._used == self._uses:
                self._block.memory = self._memory = None
                self._array = self._view = _NO_ARRAY

    def check(self, values: Array, what: str = "") -> None:
        """Raise DeviceError if `store` would not take these values, made by ``what``: another shape, or another kind of number."""
        if values.shape != self.spec.shape or not np.can_cast(values.dtype, self.spec.dtype, casting="same_kind"):
            given = f"{values.dtype.name}{list(values.shape)}"
            made = f"{what} returned {given}" if what else f"{given} was written to memory"
            raise DeviceError(f"{made} for {self.spec}", hint="shape and kind of number must agree")

    def store(self, values: Array) -> None:
        """Replace all values by such as `check` accepts, converted to the buffer's dtype."""
        self.hold()[...] = values


def poison_of(dtype: np.dtype[Any]) -> Any:
    """Return a value of memory that nobody has written to."""
    return {"f": np.nan, "b": True}.get(dtype.kind) or np.frombuffer(bytes([_POISON_BYTE]) * dtype.itemsize, dtype)[0]


class Memory:
    """Hands out blocks, as far as the device's memory reaches."""

    def __init__(self, model: CostModel, gpu: int = 0) -> None:
        self._gpu = gpu
        self._capacity = int(model.memory_gb * 1e9)
        self._used = 0
        self._sizes: dict[ref[SimulatedBlock], int] = {}
        self._gone: deque[ref[SimulatedBlock]] = deque()

    @property
    def free_share(self) -> float:
        """The share of the device's memory that is free."""
        self._collect()
        return 1 - self._used / self._capacity

    def allocate(self, nbytes: int, place: MemoryPlace) -> SimulatedBlock:
        """Return a block; its memory is free again when it is collected."""
        self._collect()
        if place is MemoryPlace.DEVICE and self._used + nbytes > self._capacity:
            raise OutOfMemoryError(
                f"a block takes {nbytes:,} bytes and {self._capacity - self._used:,} of {self._capacity:,} are free",
                hint="use smaller shapes, or drop what is not used",
            )
        block = SimulatedBlock(nbytes, place, gpu=self._gpu if place is MemoryPlace.DEVICE else None)
        block.take()
        block.memory = None  # So much is there; it is taken when it is used.
        if place is MemoryPlace.DEVICE:
            # A deque's `append` is a C function, in which no Ctrl-C can come. Nor can it between these lines, which call nothing.
            self._sizes[ref(block, self._gone.append)] = nbytes
            self._used += nbytes
        return block

    def _collect(self) -> None:
        """Count the memory of blocks that Python has let go as free."""
        if self._gone:
            with deferred(), suppress(IndexError):  # Another thread does it.
                while self._gone:
                    self._used -= self._sizes.pop(self._gone.popleft())


def outcome(what: str, results: Sequence[Array], sources: Sequence[Array], targets: Sequence[SimulatedBuffer]) -> list[Array]:
    """Return results that fit their targets, copied where they may be views of their arguments and so would change with them."""
    if len(results) != len(targets):
        raise DeviceError(f"{what} returned {counted(len(results), 'array')} for {counted(len(targets), 'variable')}")
    for result, target in zip(results, targets, strict=True):
        target.check(result, what)
    return [result.copy() if any(np.may_share_memory(result, source) for source in sources) else result for result in results]
