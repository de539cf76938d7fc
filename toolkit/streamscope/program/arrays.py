"""Arrays that users pass to programs: their shape and dtype, and their values on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import ProgramError
from streamscope.program.variable import ArraySpec

HINT = "pass a NumPy or CuPy array"


def spec_of(value: Any, name: str) -> ArraySpec:
    """Return shape and dtype of an array argument.

    Raises
    ------
    ProgramError
        It is not an array, or its dtype is not supported.
    """
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ProgramError(f"argument {name!r} is a {type(value).__name__}, not an array", hint=HINT)
    try:
        return ArraySpec(value.shape, value.dtype)
    except ProgramError as error:
        raise ProgramError(f"argument {name!r}: {error.message}", hint=error.hint) from None


def host_array(values: Any) -> npt.NDArray[Any]:
    """Return an array's values on the host: NumPy as it is, CuPy copied.

    Raises
    ------
    ProgramError
        It has no values, none that NumPy could hold, or some that are masked.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ProgramError("a masked array would lose its mask", hint="fill it first: array.filled(value)")
    try:
        array = np.asarray(values.get() if hasattr(values, "__cuda_array_interface__") and hasattr(values, "get") else values)
    except (TypeError, ValueError, RuntimeError) as error:  # Lists of unequal rows; other libraries' arrays, in their own words.
        raise ProgramError(f"a {type(values).__name__} is no array of numbers: {error}", hint=HINT) from error
    if array.dtype == object:  # What NumPy makes of anything.
        if isinstance(values, np.ndarray):
            ArraySpec(array.shape, array.dtype)  # refuses it, by the name of the dtype
        raise ProgramError(f"a {type(values).__name__} is no array of numbers", hint=HINT)
    return array
