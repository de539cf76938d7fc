"""How long matrix products and convolutions take on a device: tables that were measured, and what lies between their entries."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from streamscope.errors import DeviceError
from streamscope.program.launch import Product

TILE = 64
"""Edge of the tiles in which the results of products are counted. What libraries really take is larger or smaller, as suits the shape."""


def tiles(rows: int, columns: int) -> int:
    """Return how many tiles a matrix of this size has."""
    return -(-rows // TILE) * -(-columns // TILE)


def table_name(kind: str, dtype: str) -> str:
    """Return the name of the table for products of a kind and dtype: ``"matmul float16"``."""
    return f"{kind} {dtype}"


@dataclass(frozen=True)
class ProductTimes:
    """How long products of one kind and dtype take, by the tiles of the result and the length of the sum behind each number.

    Between entries, the logarithm of the time is linear in both logarithms: times of the form ``tiles ** a * inner ** b``, where ``a`` and
    ``b`` go from 0, while multiprocessors are free and starting takes longest, to 1, where the arithmetic does. Beyond the table the last
    such powers go on, from 0 to 1 each.

    Attributes
    ----------
    tiles, inner : tuple of float
        Two or more of each, growing.
    ns : tuple of tuple of float
        A row for each of ``tiles``.
    """

    tiles: tuple[float, ...]
    inner: tuple[float, ...]
    ns: tuple[tuple[float, ...], ...]

    @classmethod
    def checked(cls, name: str, values: object) -> ProductTimes:
        """Make a table from what a file has of it.

        Raises
        ------
        DeviceError
            It is no table, or an entry is not a number above 0.
        """
        what = f"cost model: product_times {name!r}"
        if not isinstance(values, Mapping) or set(values) != {"tiles", "inner", "ns"}:
            raise DeviceError(f"{what} is {values!r}, expected tiles, inner and ns")
        axes = [_numbers(f"{what}, {axis}", values[axis]) for axis in ("tiles", "inner")]
        for axis in axes:
            if len(axis) < 2 or any(left >= right for left, right in pairwise(axis)):
                raise DeviceError(f"{what} has the axis {list(axis)}, expected two or more numbers that grow")
        rows = values["ns"]
        if not isinstance(rows, Sequence) or isinstance(rows, str) or len(rows) != len(axes[0]):
            raise DeviceError(f"{what} has times {rows!r}, expected {len(axes[0])} rows")
        times = tuple(_numbers(f"{what}, ns", row) for row in rows)
        if any(len(row) != len(axes[1]) for row in times):
            raise DeviceError(f"{what} has rows of {sorted({len(row) for row in times})} times, expected {len(axes[1])} in each")
        return cls(axes[0], axes[1], times)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {"tiles": list(self.tiles), "inner": list(self.inner), "ns": [list(row) for row in self.ns]}

    def of(self, product: Product) -> float:
        """Return how long a product takes, in ns."""
        tiles_at, inner_at, logs = self._logs
        inner = math.log(product.inner)
        by_tiles = [_between(inner_at, row, inner) for row in logs]
        return math.exp(_between(tiles_at, by_tiles, math.log(product.count * tiles(product.rows, product.columns))))

    @cached_property
    def _logs(self) -> tuple[list[float], list[float], list[list[float]]]:
        return [*map(math.log, self.tiles)], [*map(math.log, self.inner)], [[*map(math.log, row)] for row in self.ns]


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return the value at ``x`` of the line through its two neighbours: level before the first, of a slope of 0 to 1 after the last."""
    if x <= xs[0]:
        return ys[0]
    right = min(bisect_right(xs, x), len(xs) - 1)
    slope = (ys[right] - ys[right - 1]) / (xs[right] - xs[right - 1])
    beyond = x - xs[right]
    return ys[right] + (min(max(slope, 0.0), 1.0) if beyond > 0 else slope) * beyond


def _numbers(what: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise DeviceError(f"{what} is {values!r}, expected numbers")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise DeviceError(f"{what} has {value!r}, expected numbers above 0")
    return tuple(map(float, values))
