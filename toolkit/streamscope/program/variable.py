"""Variables: the buffers that a program's operations read and write."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from streamscope.errors import ProgramError

SUPPORTED_DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


class Place(Enum):
    """Where a variable's memory lies."""

    HOST = "host"
    """Page-locked host memory: host functions use it, copies read and write it."""
    DEVICE = "device"


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array.

    Raises
    ------
    ProgramError
        The dtype is not one of `SUPPORTED_DTYPES`, or an extent is negative.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(extent) for extent in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        if self.dtype.name not in SUPPORTED_DTYPES:
            raise ProgramError(f"dtype {self.dtype.name!r} is not supported", hint=f"use one of {', '.join(SUPPORTED_DTYPES)}")
        if any(extent < 0 for extent in self.shape):
            raise ProgramError(f"shape {self.shape} has a negative extent")

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
