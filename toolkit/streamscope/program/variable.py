"""Variables, the buffers that a program's operations read and write, and the arrays that users pass for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import ProgramError
from streamscope.words import a_kind

HINT = "pass a NumPy or CuPy array"
SUPPORTED_DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool")
_SUPPORTED = frozenset(map(np.dtype, SUPPORTED_DTYPES))
_PLAIN = (np.ndarray, np.memmap, np.recarray)
"""Classes of NumPy's whose operators mean the same."""


class MemoryPlace(Enum):
    """Where a variable's memory lies."""

    HOST = "host"
    """Page-locked host memory: host functions use it, copies read and write it."""
    DEVICE = "device"


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype

    Raises
    ------
    ProgramError
        The dtype is not one of `SUPPORTED_DTYPES` in this machine's byte order, or an extent is negative or no whole number.

    Examples
    --------
    >>> spec = ss.ArraySpec((64, 128), "float16")
    >>> print(spec, spec.size, spec.nbytes)
    float16[64, 128] 8192 16384
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "shape", tuple(index(extent) for extent in self.shape))
        except TypeError:
            raise ProgramError(f"shape {self.shape!r} is not a tuple of whole numbers") from None
        given: Any = self.dtype
        try:
            object.__setattr__(self, "dtype", np.dtype("none" if given is None else given))  # To NumPy, None is float64.
        except TypeError:
            from streamscope.arguments import shown  # not at import, which loads no more than it must

            hint = "pass its dtype" if isinstance(getattr(given, "dtype", None), np.dtype) else f"use one of {', '.join(SUPPORTED_DTYPES)}"
            raise ProgramError(f"dtype {shown(given)} is unknown to NumPy", hint=hint) from None
        if self.dtype not in _SUPPORTED and self.dtype.name not in SUPPORTED_DTYPES:
            raise ProgramError(f"dtype {self.dtype.name!r} is not supported", hint=f"use one of {', '.join(SUPPORTED_DTYPES)}")
        if not self.dtype.isnative:
            raise ProgramError(f"dtype {self.dtype.str!r} has the other byte order", hint=f"convert it: astype({self.dtype.name!r})")
        if any(extent < 0 for extent in self.shape):
            raise ProgramError(f"shape {self.shape} has a negative extent")

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


def _check_meaning(value: object) -> None:
    """Raise a `ProgramError` for a subclass of NumPy's arrays that may mean something else by the same operators."""
    if isinstance(value, np.ma.MaskedArray):
        raise ProgramError("a masked array would lose its mask", hint="fill it first: array.filled(value)")
    if isinstance(value, np.matrix):
        hint = "pass its values, np.asarray(...), and write @ for the product"
        raise ProgramError("np.matrix has a matrix product for *, where a program multiplies element by element", hint=hint)
    if isinstance(value, np.ndarray) and type(value) not in _PLAIN:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ProgramError(
            f"{kind} is a subclass of NumPy's arrays, and its operators may have another meaning", hint="pass np.asarray(...)"
        )


def spec_of(value: Any, name: str) -> ArraySpec:
    """Return shape and dtype of an array argument."""
    if type(value).__module__.partition(".")[0] == "torch":
        hint = f"{HINT}; of PyTorch code, ss.capture(function, *inputs)"
        raise ProgramError(f"argument {name!r} is {a_kind(value)} of PyTorch's", hint=hint)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        hint = f"{HINT}; of several, each by itself: the function may put them together" if isinstance(value, dict | list | tuple) else HINT
        raise ProgramError(f"argument {name!r} is {a_kind(value)}, not an array", hint=hint)
    try:
        _check_meaning(value)
        return ArraySpec(value.shape, value.dtype)
    except ProgramError as error:
        raise ProgramError(f"argument {name!r}: {error.message}", hint=error.hint) from None


def host_array(values: Any) -> npt.NDArray[Any]:
    """Return an array's values on the host: NumPy as it is, CuPy copied."""
    _check_meaning(values)
    try:
        array = np.asarray(values.get() if hasattr(values, "__cuda_array_interface__") and hasattr(values, "get") else values)
    except (TypeError, ValueError, RuntimeError) as error:  # Lists of unequal rows; other libraries' arrays, in their own words.
        raise ProgramError(f"{a_kind(values)} is not an array of numbers: {error}", hint=HINT) from error
    if array.dtype == object:  # What NumPy makes of anything.
        if isinstance(values, np.ndarray):
            ArraySpec(array.shape, array.dtype)  # refuses it, by the name of the dtype
        raise ProgramError(f"{a_kind(values)} is not an array of numbers", hint=HINT)
    return array
