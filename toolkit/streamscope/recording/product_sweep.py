"""Matrix products and convolutions of many sizes, timed through the libraries as the operators call them: the tables of a cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.devices.product_times import TILE, ProductTimes, table_name, tiles
from streamscope.devices.protocol import Device
from streamscope.ops.convolutions import convolution, convolution_backward
from streamscope.ops.linear import matmul
from streamscope.program.launch import Product
from streamscope.program.variable import ArraySpec
from streamscope.recording.launch_times import LaunchTimer
from streamscope.tracing import program

RESULTS = ((1, 1), (2, 2), (4, 4), (8, 8), (11, 12), (16, 16), (32, 32), (64, 64))
"""Tiles of the results of matrix products, down and across."""
SUMS = (32, 128, 512, 2048, 8192)
IMAGES = ((1, 8), (1, 16), (1, 32), (1, 64), (4, 64), (16, 64))
"""Images, and their height and width."""
CHANNELS = (8, 32, 128, 512)
"""Channels behind each number of a 3 x 3 convolution, nine times."""
WEIGHTS = ((32, 8), (64, 64), (128, 128), (256, 256), (512, 512))
"""Channels out and in of the weights whose gradients are computed."""

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
"""What is applied, and to which shapes."""


@dataclass(frozen=True)
class Sweep:
    """The cases of one table.

    Attributes
    ----------
    kind, dtype : str
        Of the products.
    cases : tuple of Case
    """

    kind: str
    dtype: str
    cases: tuple[Case, ...]


def sweeps() -> Iterator[Sweep]:
    """Yield what is timed for each table. Libraries do not convolve float64 on GPUs (see `kernels.library.cudnn`)."""
    for dtype in ("float16", "float32", "float64"):
        yield Sweep("matmul", dtype, tuple(_products()))
    for dtype in ("float16", "float32"):
        yield Sweep("convolution", dtype, tuple(_convolutions()))
        yield Sweep("data_gradient", dtype, tuple(_data_gradients()))
        yield Sweep("weight_gradient", dtype, tuple(_weight_gradients()))


def _products() -> Iterator[Case]:
    for down, across in RESULTS:
        for inner in SUMS:
            yield matmul, ((down * TILE, inner), (inner, across * TILE))


def _convolutions() -> Iterator[Case]:
    for count, size in IMAGES:
        for channels in CHANNELS:
            yield lambda x, w: convolution(x, w, padding=1), ((count, size, size, channels), (TILE, 3, 3, channels))


def _data_gradients() -> Iterator[Case]:
    for count, size in IMAGES:
        for channels in CHANNELS:
            image = (count, size, size)
            yield _backward, ((*image, TILE), (channels, 3, 3, TILE), (*image, channels))


def _weight_gradients() -> Iterator[Case]:
    for outputs, inputs in WEIGHTS:
        for count, size in IMAGES:
            image = (count, size, size)
            yield _backward, ((*image, inputs), (outputs, 3, 3, inputs), (*image, outputs))


def _backward(x: Any, w: Any, dy: Any) -> Any:
    return convolution_backward(x, w, dy, padding=1)


def product_times(
    device: Device, *, excess_ns: float, gap_ns: float, said: Callable[[str], None] = lambda what: None
) -> dict[str, ProductTimes]:
    """Time all sweeps on a device; see `LaunchTimer.each_ns` for the parameters."""
    found = {}
    for sweep in sweeps():
        name = table_name(sweep.kind, sweep.dtype)
        said(name)
        timer = LaunchTimer(device)
        samples = [_timed(timer, sweep, case, excess_ns, gap_ns) for case in sweep.cases]
        found[name] = table(samples)
    return found


def _timed(timer: LaunchTimer, sweep: Sweep, case: Case, excess_ns: float, gap_ns: float) -> tuple[Product, float]:
    function, shapes = case
    traced = program(function).trace(*(ArraySpec(shape, np.dtype(sweep.dtype)) for shape in shapes))
    for launch in traced.launches():
        product = launch.cost.product
        if product is not None and product.kind == sweep.kind:
            return product, timer.each_ns(timer.bound(traced, launch), excess_ns, gap_ns)
    raise AssertionError(f"{function} multiplies nothing")  # A sweep is written wrong.


def table(samples: Sequence[tuple[Product, float]]) -> ProductTimes:
    """Return the table of times on a grid; where more work was faster, it is as fast as that, since no kernel has to be the slower one.

    Parameters
    ----------
    samples : sequence of (Product, ns)
        One for each pair of a number of tiles and a length of the sums.
    """
    times = {(_tiles(product), product.inner): ns for product, ns in samples}
    down, along = sorted({down for down, _ in times}), sorted({along for _, along in times})
    ns = np.array([[times[row, column] for column in along] for row in down])
    for axis in (0, 1):
        ns = np.flip(np.minimum.accumulate(np.flip(ns, axis), axis), axis)
    rows = tuple(tuple(float(max(1, round(value))) for value in row) for row in ns.tolist())
    return ProductTimes(tuple(map(float, down)), tuple(map(float, along)), rows)


def _tiles(product: Product) -> int:
    return product.count * tiles(product.rows, product.columns)
