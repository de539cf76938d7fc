"""Columns of numbers of the events of a Kineto file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.formats.kineto.events import Sizes
from streamscope.trace.activities import FAR_NS

_MOST_DIGITS = 20
"""Of a number that is a text."""


def times_ns(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return times in µs, doubles or decimal numbers, as whole ns; those beyond `FAR_NS`, which are left out and noted, as that."""
    if values and not isinstance(values[0], float):
        return np.array([int(min(max((value * 1000).to_integral_value(), -FAR_NS), FAR_NS)) for value in values], np.int64)
    us = np.clip(np.array(values, np.float64), -FAR_NS / 1000, FAR_NS / 1000)
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def whole_numbers(values: Sequence[Any], missing: int) -> npt.NDArray[np.int64]:
    """Return whole numbers, which some versions write as texts."""
    numbers = [missing if value is None else value for value in values]
    found = np.array(numbers or np.zeros(0, np.int64))
    if found.dtype != np.int64 or found.ndim != 1:
        found = np.array([_parsed(number) for number in numbers], np.int64)
    return found


def _parsed(value: Any) -> int:
    """Return a whole number of 64 bits; one without a sign beyond half of them stands for a negative one, as 2**64 - 1 for -1."""
    try:
        number = int(value) if isinstance(value, str) and len(value) <= _MOST_DIGITS else value
    except ValueError:
        number = None
    if type(number) is not int or not -(2**63) <= number < 2**64:
        raise ValueError(f"{value!r:.20} is not a whole number of 64 bits")
    return number if number < 2**63 else number - 2**64


def products(values: Sequence[Sizes | str | int | None]) -> npt.NDArray[np.int64]:
    """Return the product of each three sizes; 0 where there are none, -1 where it cannot be."""
    known: dict[Sizes | str | int | None, int] = {None: 0}  # few different ones stand in many events
    found = []
    for value in values:
        product = known.get(value)
        if product is None:
            product = known[value] = _product(value)
        found.append(product)
    return np.array(found, np.int64)


def _product(sizes: Sizes | str | int | None) -> int:
    if not isinstance(sizes, Sizes):
        raise TypeError(f"{sizes!r:.20} is not the size of a grid or a block")
    product = sizes.x * sizes.y * sizes.z
    return product if min(sizes.x, sizes.y, sizes.z) >= 0 and product < 2**63 else -1
