"""Numbers as one block of binary columns, each described in a header: how Python hands arrays to the timeline's front end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt


class ColumnBlock:
    """Collects columns into one block of bytes.

    Each column lies in the block as little-endian numbers of the narrowest type that holds them, from an offset that is a multiple of
    eight; a column whose values are all alike is only in its description. ``decode.js`` is the reader.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Append a column of numbers not below zero and return its description for the header."""
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        name, dtype = next((name, dtype) for name, dtype, most in _TYPES if low >= 0 and high <= most)
        if low == high:
            return {"dtype": name, "constant": low}
        column = values.astype(dtype).tobytes()
        offset = self._length
        padding = bytes(-len(column) % 8)
        self._parts += [column, padding]
        self._length += len(column) + len(padding)
        return {"dtype": name, "offset": offset}

    def add_rising(self, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Append a column of numbers that do not fall, as differences."""
        first = int(values[0]) if len(values) else 0
        return self.add(np.diff(values, prepend=first)) | {"delta": True, "first": first}

    def add_codes(self, values: npt.NDArray[Any], *, wide: bool = False) -> dict[str, Any]:
        """Append a column of numbers from -1 on, shifted by one, so that "none" (-1) fits an unsigned type.

        ``wide`` ones may be larger than 32 bits hold; beyond 2**53 they are rounded.
        """
        return self.add(values.astype(np.float64 if wide else np.int64) + 1) | {"shift": -1} | ({"wide": True} if wide else {})

    def add_floats(self, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Append a column of any numbers, as they are."""
        column = values.astype("<f8").tobytes()
        offset = self._length
        self._parts.append(column)
        self._length += len(column)
        return {"dtype": "f64", "offset": offset}

    def to_bytes(self) -> bytes:
        """Return the columns added so far."""
        return b"".join(self._parts)


_TYPES: list[tuple[str, str, float]] = [
    ("u8", "<u1", 2**8 - 1),
    ("u16", "<u2", 2**16 - 1),
    ("u32", "<u4", 2**32 - 1),
    ("f64", "<f8", math.inf),
]
