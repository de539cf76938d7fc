"""Memory of a CUDA device: CuPy arrays on the device, NumPy arrays in page-locked host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.devices.cuda.driver import cuda_errors, libraries
from streamscope.program.variable import ArraySpec, Place


@dataclass(frozen=True)
class CudaBuffer:
    """Memory of one variable: a CuPy array (device) or a NumPy array over page-locked memory (host)."""

    spec: ArraySpec
    place: Place
    array: Any

    @property
    def pointer(self) -> int:
        """Address of the memory."""
        return int(self.array.data.ptr if self.place is Place.DEVICE else self.array.ctypes.data)


def allocate(spec: ArraySpec, place: Place) -> CudaBuffer:
    """Allocate memory for an array; its contents are undefined.

    Raises
    ------
    OutOfMemoryError
    """
    cupy = libraries().cupy
    with cuda_errors(f"allocating {spec.nbytes} bytes for {spec} in {place.value} memory"):
        if place is Place.DEVICE:
            return CudaBuffer(spec, place, cupy.empty(spec.shape, spec.dtype))
        pinned = cupy.cuda.alloc_pinned_memory(max(1, spec.nbytes))
        array = np.frombuffer(pinned, spec.dtype, spec.size).reshape(spec.shape)
        return CudaBuffer(spec, place, array)
