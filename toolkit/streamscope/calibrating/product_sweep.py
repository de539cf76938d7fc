"""Matrix products and convolutions of many sizes, timed through the libraries as the operators call them: the tables of a cost model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean
from typing import Any

import numpy as np

from streamscope.calibrating.launch_times import LaunchTimer
from streamscope.devices.piecewise_linear import Points
from streamscope.devices.product_times import NARROW as MOST_NARROW
from streamscope.devices.product_times import NARROWEST, TILE, WIDE, ProductTimes, table_of, tiles_of
from streamscope.devices.protocol import Device
from streamscope.ops.convolutions import STEM_CHANNELS, convolution, convolution_backward
from streamscope.ops.linear import matmul
from streamscope.program.launch import Launch, Product
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec
from streamscope.tracing import program

RESULTS = ((1, 1), (2, 2), (4, 4), (8, 8), (11, 12), (16, 16), (32, 32), (64, 64))
"""Tiles of the results of products, down and across."""
SUMS = (32, 128, 512, 2048, 8192, 65_536)
"""Lengths of the sums behind each number."""
MATMUL_SUMS = (16, 64, 256, 1024, *SUMS)
VECTORS = (128, 512, 2048, 8192)
"""Length of a vector, and rows or columns of the matrix that it is multiplied with."""
_NARROW = (NARROWEST, MOST_NARROW)
"""Rows, or columns, of narrow matrices; and extents of small ones."""
LONG = (16, 64, 256, 1024, 4096, 10_240)
COUNTS = (4, 32, 128, 512, 2048)
"""Small matrices that are multiplied in one call."""
_LONGEST_SMALL = 256
_PIXELS = 32
"""Height and width of images, where their number counts."""
MOST_ELEMENTS = 1 << 23
"""Largest operand: longer ones take longer in proportion, as a table goes on. Matrices beside vectors need twice as many for that."""
IMAGES = ((1, 8), (1, 16), (1, 32), (1, 64), (4, 64), (16, 64))
"""Images, and their height and width."""
CHANNELS = (8, 32, 128, 512)
"""Channels behind each number of a 3 x 3 convolution, nine times."""
MANY = 64, 64
"""Images that stems are of, too: their output is the largest of a network."""
_STEMS = ((7, 2), (11, 4))
"""Edges and strides of the filters that networks begin with."""
_MOST_CHANNELS = 2048
"""Behind each number of a 1 x 1 convolution. Longer sums are over pixels: those of the gradient of its weights."""
WEIGHTS = ((32, 8), (64, 64), (128, 128), (256, 256), (512, 512))
"""Channels out and in of the weights whose gradients are computed."""

_Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
"""An operator, and the shapes of its operands."""


@dataclass(frozen=True)
class Sweep:
    """The cases of one table, and kind and dtype of their products."""

    kind: str
    dtype: str
    cases: tuple[_Case, ...]


def sweeps() -> Iterator[Sweep]:
    """Yield the products of each table. Libraries do not convolve float64 on GPUs (see `kernels.library.cudnn`)."""
    for dtype in ("float16", "float32", "float64"):
        for cases in (_products(), _vectors(), _narrow(), _small()):
            yield Sweep("matmul", dtype, tuple(turned for case in cases for turned in _turned(case)))
    yield Sweep("matmul", "float16", tuple(_products(odd=1)))
    for dtype in ("float16", "float32"):
        yield Sweep("pointwise", dtype, tuple(_pointwise()))
        yield Sweep("convolution", dtype, tuple(_convolutions()))
        yield Sweep("data_gradient", dtype, tuple(_data_gradients()))
        yield Sweep("weight_gradient", dtype, tuple(_weight_gradients()))
        yield Sweep("convolution", dtype, tuple(_convolutions(wide=True)))
        yield Sweep("data_gradient", dtype, tuple(_data_gradients(wide=True)))
        yield Sweep("stem_convolution", dtype, tuple(_stems(convolution)))
        for kind in ("stem_data_gradient", "stem_weight_gradient"):
            yield Sweep(kind, dtype, tuple(_stems(convolution_backward)))


def _sizes(sums: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    for down, across in RESULTS:
        for inner in sums:
            if max(down, across) * TILE * inner <= MOST_ELEMENTS:
                yield down * TILE, inner, across * TILE


def _products(odd: int = 0) -> Iterator[_Case]:
    for rows, inner, columns in _sizes(MATMUL_SUMS):
        yield matmul, ((rows, inner + odd), (inner + odd, columns - odd))


def _vectors() -> Iterator[_Case]:
    for inner, columns in itertools.product(VECTORS, VECTORS):
        if inner * columns <= 2 * MOST_ELEMENTS:
            yield matmul, ((1, inner), (inner, columns))


def _narrow() -> Iterator[_Case]:
    for rows, inner, columns in itertools.product(_NARROW, MATMUL_SUMS, LONG):
        if inner * columns <= MOST_ELEMENTS:
            yield matmul, ((rows, inner), (inner, columns))
            if columns not in _NARROW:
                yield matmul, ((columns, inner), (inner, rows))


def _small() -> Iterator[_Case]:
    for count, extent, inner in itertools.product(COUNTS, _NARROW, MATMUL_SUMS):
        if inner <= _LONGEST_SMALL and count * extent * inner <= MOST_ELEMENTS:
            yield matmul, ((count, extent, inner), (count, inner, extent))


def _turned(case: _Case) -> Iterator[_Case]:
    """Yield a product, and the same of matrices that lie the other way in memory."""
    function, (a, b) = case
    yield case
    yield partial(function, transpose_b=True), (a, (*b[:-2], b[-1], b[-2]))
    yield partial(function, transpose_a=True), ((*a[:-2], a[-1], a[-2]), b)


def _pointwise() -> Iterator[_Case]:
    for rows, inner, columns in _sizes(SUMS):
        if inner <= _MOST_CHANNELS:
            yield convolution, ((1, rows // 8, 8, inner), (columns, 1, 1, inner))
        elif rows <= 8 * TILE:  # Pixels: of the gradient of weights.
            images = inner // _PIXELS**2, _PIXELS, _PIXELS
            yield convolution_backward, ((*images, columns), (rows, 1, 1, columns), (*images, rows))


def _images(channels: int) -> list[tuple[int, int, int]]:
    return [(count, size, size) for count, size in IMAGES if count * size * size * channels <= MOST_ELEMENTS]


def _convolutions(*, wide: bool = False) -> Iterator[_Case]:
    for channels in CHANNELS:
        out = max(WIDE, channels) if wide else TILE
        for image in _images(max(channels, out)):
            yield lambda x, w: convolution(x, w, padding=1), ((*image, channels), (out, 3, 3, channels))


def _data_gradients(*, wide: bool = False) -> Iterator[_Case]:
    for channels in CHANNELS:
        into = max(WIDE, channels) if wide else TILE
        for image in _images(max(channels, into)):
            yield _backward, ((*image, into), (channels, 3, 3, into), (*image, channels))


def _stems(function: Callable[..., Any]) -> Iterator[_Case]:
    for edge, stride in _STEMS:
        for count, size in (*IMAGES, MANY):
            x, w, dy = (count, size * stride, size * stride, STEM_CHANNELS), (TILE, edge, edge, STEM_CHANNELS), (count, size, size, TILE)
            applied = partial(function, stride=stride, padding=edge // 2)
            yield applied, ((x, w) if function is convolution else (x, w, dy))


def _weight_gradients() -> Iterator[_Case]:
    for outputs, inputs in WEIGHTS:
        for image in _images(max(outputs, inputs)):
            yield _backward, ((*image, inputs), (outputs, 3, 3, inputs), (*image, outputs))


def _backward(x: Any, w: Any, dy: Any) -> Any:
    return convolution_backward(x, w, dy, padding=1)


def product_steps(device: Device) -> Iterator[tuple[str, list[tuple[Product, float]]]]:
    """Yield the times of each table's products, with the gap before them, in ns; see `LaunchTimer.step_ns`."""
    for sweep in sweeps():
        timer = LaunchTimer(device)
        steps = [_timed(timer, sweep, case) for case in sweep.cases]
        yield table_of(steps[0][0]), steps


def _timed(timer: LaunchTimer, sweep: Sweep, case: _Case) -> tuple[Product, float]:
    traced, launch, timed = traced_case(sweep, case)
    return timed, timer.step_ns(timer.bound(traced, launch))


def traced_case(sweep: Sweep, case: _Case) -> tuple[Program, Launch, Product]:
    """Return the program of a case, the launch of it that is timed, and its product."""
    function, shapes = case
    traced = program(function).trace(*(ArraySpec(shape, np.dtype(sweep.dtype)) for shape in shapes))
    launches = ((one, one.cost.product) for one in traced.launches() if one.cost.product is not None)
    return traced, *next((one, each) for one, each in launches if each.kind == sweep.kind)


def table(steps: Sequence[tuple[Product, float]], gap_ns: float) -> ProductTimes:
    """Return the table of measured times: geometric means of products with the same tiles and length of sums.

    Where longer sums were faster, shorter ones are as fast: libraries could take that kernel.
    """
    curves: dict[float, dict[int, list[float]]] = {}
    for timed, ns in steps:
        curves.setdefault(tiles_of(timed), {}).setdefault(timed.inner, []).append(max(1.0, ns - gap_ns))
    means = {tiles: {inner: round(geometric_mean(each)) for inner, each in curve.items()} for tiles, curve in curves.items()}
    return ProductTimes(tuple((float(tiles), _rising(curve)) for tiles, curve in sorted(means.items()) if len(curve) > 1))


def _rising(curve: Mapping[int, float]) -> Points:
    inner = sorted(curve)
    least = np.minimum.accumulate([curve[at] for at in reversed(inner)])[::-1]
    return tuple((float(at), float(ns)) for at, ns in zip(inner, least.tolist(), strict=True))
