"""Memory of the simulated device: NumPy arrays, filled with poison until something is written."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.devices.cost_model import CostModel
from streamscope.errors import DeviceError, OutOfMemoryError
from streamscope.program.variable import ArraySpec, Place

Array = npt.NDArray[Any]

POISON_BYTE = 0x5A


class SimulatedBuffer:
    """Memory of one variable; `streamscope.devices.protocol.Buffer`."""

    def __init__(self, spec: ArraySpec, place: Place, array: Array) -> None:
        self._spec = spec
        self._place = place
        self._array = array
        self._view = array.view()
        self._view.flags.writeable = False

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype."""
        return self._spec

    @property
    def place(self) -> Place:
        """Host or device memory."""
        return self._place

    @property
    def values(self) -> Array:
        """What is in memory now: a read-only view, so that a reference that changes its arguments is found out."""
        return self._view

    def check(self, values: Array) -> None:
        """Raise DeviceError if `store` would not take these values: another shape, or another kind of number."""
        if values.shape != self._spec.shape or not np.can_cast(values.dtype, self._spec.dtype, casting="same_kind"):
            given = f"{values.dtype.name}{list(values.shape)}"
            raise DeviceError(f"{given} was written to memory for {self._spec}", hint="shape and kind of number must agree")

    def store(self, values: Array) -> None:
        """Replace all values by such as `check` accepts, converted to the buffer's dtype."""
        self._array[...] = values


class Memory:
    """Hands out buffers, as far as the device's memory reaches."""

    def __init__(self, model: CostModel) -> None:
        self._capacity = int(model.memory_gb * 1e9)
        self._used = 0

    def allocate(self, spec: ArraySpec, place: Place) -> SimulatedBuffer:
        """Return a buffer full of poison; its memory is free again when it is collected.

        Raises
        ------
        OutOfMemoryError
            More device memory than the model has, or more memory than this machine has.
        """
        if place is Place.DEVICE and self._used + spec.nbytes > self._capacity:
            raise OutOfMemoryError(
                f"{spec} takes {spec.nbytes:,} bytes and {self._capacity - self._used:,} of {self._capacity:,} are free",
                hint="use smaller shapes, or drop what is not used",
            )
        try:
            buffer = SimulatedBuffer(spec, place, poison(spec))
        except MemoryError as error:
            message = f"{spec} takes {spec.nbytes:,} bytes, more than this machine has for the simulation"
            raise OutOfMemoryError(message, hint="use smaller shapes") from error
        if place is Place.DEVICE:
            self._used += spec.nbytes
            weakref.finalize(buffer, self._release, spec.nbytes)
        return buffer

    def _release(self, nbytes: int) -> None:
        self._used -= nbytes


def outcome(what: str, results: Sequence[Array], sources: Sequence[Array], targets: Sequence[SimulatedBuffer]) -> list[Array]:
    """Return results that fit their targets, copied where they may be views of what they were made from and so would change with it.

    Raises
    ------
    DeviceError
        There are too many or too few results, or one does not fit.
    """
    if len(results) != len(targets):
        raise DeviceError(f"{what} returned {len(results)} arrays for {len(targets)} variables")
    for result, target in zip(results, targets, strict=True):
        target.check(result)
    return [result.copy() if any(np.may_share_memory(result, source) for source in sources) else result for result in results]


def poison(spec: ArraySpec) -> Array:
    """Return an array as fresh memory has it: NaN in floats, 0x5A in every byte of integers, True in bools."""
    array = np.empty(spec.shape, spec.dtype)
    if spec.dtype.kind == "f":
        array.fill(np.nan)
    elif spec.dtype.kind == "b":
        array.fill(True)
    else:
        array.fill(np.frombuffer(bytes([POISON_BYTE]) * spec.dtype.itemsize, spec.dtype)[0])
    return array
