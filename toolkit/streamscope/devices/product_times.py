"""Durations of matrix products and convolutions on a device: measured tables, and interpolation between their entries."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from streamscope.devices.piecewise_linear import Points, checked_points
from streamscope.errors import DeviceError
from streamscope.program.launch import Cost, Product

TILE = 64
"""Edge of the tiles in which the results of products are counted. Libraries take larger or smaller ones, as suits the shape."""

HOPPER_THREADS = 384
"""From as many threads in a block, a library's kernel takes multiprocessors whole. cuBLAS and cuDNN have such kernels for H100 and H200:
one group of 128 threads loads for two that multiply, by way of all the shared memory. Blocks of fewer threads leave room for others."""

_TILES = ((128, 256), (128, 128), (128, 64), (64, 64), (64, 32), (64, 16), (64, 8))
"""Tiles of these kernels, the largest first; either edge may be the rows'."""
_FILLING = 80
"""Blocks from which cuBLAS takes a tile: 88 and more were seen, and 64 where the next smaller tile makes twice as many."""

_ALIGNED = 8
"""Libraries have their fast kernels of half precision for rows of whole 16 bytes only."""
NARROW = 32
"""Up to so many rows or columns, libraries have kernels of their own."""
WIDE = 128
"""From so many columns, convolutions have kernels of their own: where these fill an H200, as much work takes 0.6 to 1.2 times as long."""
NARROWEST = 16
"""Results of fewer rows or columns than a tile take a smaller one, of whole such parts: as the matrix units take them."""


def tiles_of(product: Product) -> float:
    """Return how many tiles the results of a product have; parts of a tile where matrices are small. Convolutions take whole tiles."""
    if product.kind == "matmul":
        return product.count * _tiles(product.rows) * _tiles(product.columns)
    return product.count * -(-product.rows // TILE) * -(-product.columns // TILE)


def _tiles(extent: int) -> float:
    return -(-extent // TILE) if extent >= TILE else -(-extent // NARROWEST) * NARROWEST / TILE


def table_of(product: Product) -> str:
    """Return the name of a product's table: ``"matmul float16"``, or ``"matmul float16 vector"`` where libraries have other kernels."""
    return f"{product.kind} {product.dtype} {_special(product)}".rstrip()


def _special(product: Product) -> str:
    """Return the special kind of a product, if it has one."""
    if product.kind == "matmul":
        return _special_matrices(product)
    return "wide" if product.kind in ("convolution", "data_gradient") and product.columns >= WIDE else ""


def _special_matrices(product: Product) -> str:
    """Tell whether rows are not aligned, one matrix is a vector, there are few rows or columns, or matrices are small."""
    if product.dtype == "float16" and (product.inner % _ALIGNED or product.columns % _ALIGNED):
        return "odd"
    short, long = sorted((product.rows, product.columns))
    if product.count > 1:
        return "small" if long <= NARROW else ""
    return "vector" if short == 1 else "narrow" if short <= NARROW else ""


def as_launched(cost: Cost) -> Cost:
    """Return the cost of a kernel with the blocks that it is launched with, where those follow from its product; else the cost.

    cuBLAS takes the largest tiles that still fill most of the chip, and a block takes a multiprocessor. Of 102 products of half precision
    that were timed on an H200, 61 fill it: in the median with 128 blocks, and nine in ten with 88 to 132.
    """
    product = cost.product
    if product is None or product.dtype != "float16" or product.kind not in ("matmul", "pointwise"):
        return cost
    edges = [(edge, other) for tile in _TILES for edge, other in (tile, tile[::-1])]
    counts = [product.count * -(-product.rows // high) * -(-product.columns // wide) for high, wide in edges]
    fewest = [min(pair) for pair in zip(counts[::2], counts[1::2], strict=True)]
    blocks = next((count for count in fewest if count >= _FILLING), fewest[-1])
    return replace(cost, blocks=blocks, threads=HOPPER_THREADS, per_multiprocessor=1)


@dataclass(frozen=True)
class ProductTimes:
    """How long products of one kind and dtype take, by the tiles of the result and the length of the sum behind each number.

    Between entries, the logarithm of the time is linear in both logarithms: times of the form ``tiles ** a * inner ** b``, where ``a`` and
    ``b`` go from 0, while multiprocessors are free and starting takes longest, to 1, where the arithmetic does. Beyond the table the last
    such powers go on, from 0 to 1 each, but never at a higher rate than that of the fastest entry.
    """

    curves: tuple[tuple[float, Points], ...]
    """Two or more, the tiles growing."""

    @classmethod
    def checked(cls, name: str, values: object) -> ProductTimes:
        """Make a table from its values in a file."""
        what = f"cost model: product_times {name!r}"
        if not isinstance(values, list | tuple) or not all(isinstance(row, list | tuple) and len(row) == 2 for row in values):
            raise DeviceError(f"{what} is {values!r}, expected pairs of tiles and curves")
        curves = tuple((tiles, checked_points(f"{what} of {tiles} tiles", curve)) for tiles, curve in values)
        numbers = [number for tiles, curve in curves for number in (tiles, *(each for pair in curve for each in pair))]
        if any(isinstance(each, bool) or not isinstance(each, int | float) or not each > 0 for each in numbers):
            raise DeviceError(f"{what} has numbers that are not above 0")
        if len(curves) < 2 or any(left[0] >= right[0] for left, right in pairwise(curves)):
            raise DeviceError(f"{what} is of {[tiles for tiles, _ in curves]} tiles, expected two or more numbers that grow")
        return cls(tuple((float(tiles), curve) for tiles, curve in curves))

    def to_list(self) -> list[Any]:
        """Return the table as JSON values."""
        return [[tiles, [list(pair) for pair in curve]] for tiles, curve in self.curves]

    def of(self, product: Product) -> float:
        """Return how long a product takes, in ns; it is never at a higher rate than the fastest entry."""
        tiles, inner = tiles_of(product), math.log(product.inner)
        at, curves = self._logs
        between_ns = math.exp(_between(at, [_between(*curve, inner) for curve in curves], math.log(tiles)))
        return max(between_ns, tiles * product.inner / self._fastest)

    @cached_property
    def _fastest(self) -> float:
        """The most steps of a sum that all tiles made in a nanosecond."""
        return max(tiles * inner / ns for tiles, curve in self.curves for inner, ns in curve)

    @cached_property
    def _logs(self) -> tuple[list[float], list[tuple[list[float], list[float]]]]:
        curves = [([math.log(inner) for inner, _ in curve], [math.log(ns) for _, ns in curve]) for _, curve in self.curves]
        return [math.log(tiles) for tiles, _ in self.curves], curves


def checked_tables(values: object) -> dict[str, ProductTimes]:
    """Return the tables of a cost model by name, those made that were read from a file."""
    if not isinstance(values, Mapping):
        raise DeviceError(f"cost model: product_times is {values!r}, expected tables by name")
    return {name: each if isinstance(each, ProductTimes) else ProductTimes.checked(name, each) for name, each in values.items()}


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return the value at ``x`` of the line through its two neighbours: level before the first, of a slope of 0 to 1 after the last."""
    if x <= xs[0]:
        return ys[0]
    right = min(bisect_right(xs, x), len(xs) - 1)
    slope = (ys[right] - ys[right - 1]) / (xs[right] - xs[right - 1])
    beyond = x - xs[right]
    return ys[right] + (min(max(slope, 0.0), 1.0) if beyond > 0 else slope) * beyond
