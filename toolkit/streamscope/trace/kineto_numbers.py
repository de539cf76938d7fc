"""Numbers as Kineto writes them: times in µs with three decimals, whole numbers that may be texts, sizes of grids and blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.trace.activities import FAR_NS


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
    if any(type(number) is not int for number in numbers):
        numbers = [number if type(number) is int else _parsed(number) for number in numbers]
    return np.array(numbers, np.int64)


def _parsed(value: Any) -> int:
    if not isinstance(value, str) or len(value) > 20:
        raise ValueError(f"{value!r:.20} is not a whole number")
    return int(value)


def products(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the product of each list of three sizes; 0 where there is none, -1 where it cannot be."""
    known: dict[tuple[Any, ...], int] = {(): 0}  # few different ones stand in many events
    found = []
    for value in values:
        sizes = tuple(value or ())
        if sizes not in known:
            known[sizes] = _product(sizes)
        found.append(known[sizes])
    return np.array(found, np.int64)


def _product(sizes: tuple[Any, ...]) -> int:
    if len(sizes) != 3 or any(type(size) is not int for size in sizes):
        raise ValueError(f"the size of a grid or a block must be three whole numbers, not {sizes!r:.50}")
    product = math.prod(sizes)
    return product if min(sizes) >= 0 and product < 2**63 else -1
