"""Kernels that read views, and those that copy and join them, built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import streamscope as ss
from streamscope.kernels.compile.batch import compile_kernel
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.copying import tiled
from streamscope.kernels.joining import MOST_PARTS, Rows, joined
from streamscope.kernels.layout import compact
from streamscope.kernels.source import KernelSource

DTYPES = ["bool", "int8", "float16", "float32", "float64"]


def values(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


COPIES = {
    "a transpose": ((33, 65), lambda x: x.T),
    "a transpose in tiles' extents": ((64, 32), lambda x: x.T),
    "a thin transpose": ((100, 3), lambda x: x.T),
    "many transposes": ((3, 17, 40), lambda x: x.swapaxes(1, 2)),
    "transposes along two axes": ((2, 3, 18, 35), lambda x: x.transpose(1, 0, 3, 2)),
    "heads": ((2, 5, 3, 8), lambda x: x.transpose(0, 2, 1, 3)),
    "heads, transposed": ((2, 33, 3, 20), lambda x: x.transpose(0, 2, 3, 1)),
    "the reverse of it": ((18, 2, 33), lambda x: x.T),
    "a transpose of a part": ((40, 50), lambda x: x[3:38, 1::2].T),
    "a transpose of what goes backwards": ((40, 50), lambda x: x[::-1, 5:].T),
    "every third": ((301,), lambda x: x[1::3]),
    "backwards": ((301,), lambda x: x[::-1]),
    "a column": ((37, 5), lambda x: x[:, 2]),
    "rows that repeat": ((7,), lambda x: np.broadcast_to(x, (5, 7))),
    "columns that repeat": ((40, 1), lambda x: np.broadcast_to(x, (40, 33)).T),
    "from the middle": ((50,), lambda x: x[3:]),
    "one element": ((4, 4), lambda x: x[1, 2]),
    "nothing": ((4, 4), lambda x: x[4:, ::2]),
    "a reshape": ((6, 20), lambda x: x.T.reshape(4, 30)),
}


def test_copies(differing):
    cases = {
        f"{name}, {dtype}": (lambda x, view=view: view(x), values(shape, dtype))
        for name, (shape, view) in COPIES.items()
        for dtype in DTYPES
    }
    assert differing(cases) == []


JOINED = {
    "rows": (lambda x, y: [x, y], 0),
    "columns": (lambda x, y: [x, y], 1),
    "parts of columns": (lambda x, y: [x[:, 3:], y[:, :2], x[:, 1:2]], 1),
    "one twice": (lambda x, y: [x, x, y], 0),
    "with nothing": (lambda x, y: [x[:, :0], y, x[:, 6:]], 1),
    "only nothing": (lambda x, y: [x[:, :0], y[:, :0]], 1),
    "as one": (lambda x, y: [x, y[1:]], None),
    "words of sixteen bytes": (lambda x, y: [x[:, :16], y[:, 16:32]], 1),
    "what is copied first": (lambda x, y: [x[::-1].T, y.T], 0),
    "many": (lambda x, y: [x[index // 40 % 3] for index in range(2 * MOST_PARTS + 3)], 0),
    "of three axes": (lambda x, y: [x.reshape(3, 4, 12), y.reshape(3, 4, 12)[:, :2]], 1),
}


def test_joining(differing):
    cases = {}
    for dtype in DTYPES:
        x, y = values((3, 48), dtype), values((3, 48), dtype, 1)
        for name, (make, axis) in JOINED.items():
            cases[f"{name}, {dtype}"] = lambda x, y, make=make, axis=axis: ss.ops.concatenate(make(x, y), axis), x, y
        for axis in (0, 1, -1):
            cases[f"stacked along {axis}, {dtype}"] = lambda x, y, axis=axis: ss.ops.stack([x, y[::-1], x], axis), x, y
    assert differing(cases) == []


SEEN = {
    "added to its transpose": lambda x: x + x.T,
    "joined with what goes backwards": lambda x: x[::-1, ::2] * x[:, 1::2],
    "a part that begins anywhere": lambda x: x[3:, 1:] - x[:-3, :-1],
    "sums of a transpose": lambda x: (ss.ops.sum(x.T, axis=0), ss.ops.sum(x.T, axis=1), ss.ops.sum(x.T)),
    "sums of a part": lambda x: (ss.ops.max(x[1::2, 3:], axis=0), ss.ops.max(x[1::2, 3:], axis=1), ss.ops.mean(x[:, 5])),
    "sums of rows that repeat": lambda x: ss.ops.sum(np.broadcast_to(x[0], (7, 40)), axis=0),
    "sums of columns that repeat": lambda x: ss.ops.sum(np.broadcast_to(x[:, :1], (40, 9)), axis=1),
    "sums of what goes backwards": lambda x: ss.ops.max(x[::-1], axis=0),
    "a softmax of rows in the middle": lambda x: ss.ops.softmax(x[3:]),
    "gradients": lambda x: ss.ops.multiply.gradient(x.T, x, x[::-1].T[0]),
    "gradients of sums": lambda x: ss.ops.sum.gradient(x[0], x.T, axis=0),
    "a gradient of a maximum": lambda x: ss.ops.max.gradient(x[:, 0], x[:, ::2], axis=1),
}  # fmt: skip


def test_kernels_follow_strides(differing):
    cases = {f"{name}, {dtype}": (function, values((40, 40), dtype)) for name, function in SEEN.items() for dtype in ("float16", "float64")}
    cases |= {f"{name}, fused": (ss.program(function, fuse=True), x) for name, (function, x) in cases.items() if "added" in name}
    assert differing(cases) == []


def test_kernels_are_compiled_ahead_for_the_views_that_they_get(traced_sources):
    cases = [(function, (40, 40)) for function in SEEN.values()]
    cases += [(view, shape) for shape, view in COPIES.values()]
    cases += [(lambda x, make=make, axis=axis: ss.ops.concatenate(make(x, x), axis), (3, 48)) for make, axis in JOINED.values()]
    for function, shape in cases:
        array, program = values(shape, "float32"), ss.program(lambda x, f=function: f(x))
        asked = {source.name for source in traced_sources(program, array)}
        assert {source.name for source in program_kernels(program.trace(array))} == asked


def layout(shape, axes):
    view = np.empty(shape, np.int8).transpose(axes)
    extents = view.shape
    return compact(extents, [view.strides, np.empty(extents, np.int8).strides])


@pytest.mark.parametrize(
    ("shape", "axes", "read_along", "tiles", "blocks"),
    [
        ((64, 96), (1, 0), 0, (3, 2), 6),
        ((5, 33, 17), (0, 2, 1), 1, (1, 2), 10),
        ((2, 32, 3, 32), (0, 2, 3, 1), 1, (3, 1), 6),  # two axes are one
        ((2, 32, 3, 32), (0, 2, 1, 3), None, None, None),  # rows stay rows
        ((100, 15), (1, 0), None, None, None),  # thin
    ],
)
def test_a_transpose_goes_by_tiles_where_they_are_full(shape, axes, read_along, tiles, blocks):
    found = tiled(layout(shape, axes))
    if read_along is None:
        assert found is None
    else:
        assert (found.source_axis, found.tiles, found.blocks) == (read_along, tiles, blocks)


@pytest.mark.parametrize(
    ("parts", "itemsize", "addresses", "nbytes", "widths"),
    [
        ([Rows(4, 8, 8), Rows(4, 24, 24)], 4, [0, 256, 512], 16, [2, 6]),
        ([Rows(4, 8, 9), Rows(4, 24, 24)], 4, [0, 256, 512], 4, [8, 24]),
        ([Rows(1, 8, 0), Rows(1, 24, 0)], 2, [2, 256, 512], 2, [8, 24]),
        ([Rows(4, 1, 1), Rows(4, 3, 3)], 1, [], 1, [1, 3]),
        ([Rows(4, 6, 12), Rows(4, 2, 2)], 4, [8, 0, 0], 8, [3, 1]),
    ],
)
def test_words_are_as_long_as_they_fit(parts, itemsize, addresses, nbytes, widths):
    kernel = joined(parts, itemsize, addresses)
    assert (kernel.bytes, [part.width for part in kernel.parts]) == (nbytes, widths)


def test_rows_of_many_words_are_found_in_64_bits():
    assert joined([Rows(3, 2**31, 2**31), Rows(3, 1, 1)], 1, []).source.name.startswith("concatenate_2_x1_64_")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64"])
def test_the_kernels_compile(traced_sources, dtype):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    x = values((3, 48), dtype)
    cases = [(lambda x, make=make, axis=axis: ss.ops.concatenate(make(x, x), axis), x) for make, axis in JOINED.values()]
    cases += [(view, values(shape, dtype)) for shape, view in COPIES.values()]
    sources = {source.name: source.code for function, array in cases for source in traced_sources(lambda x, f=function: f(x), array)}
    wide = joined([Rows(3, 2**31, 2**31), Rows(3, 1, 1)], 1, []).source
    sources[wide.name] = wide.code
    together = "\n".join(f"namespace n{number} {{\n{code}\n}}" for number, code in enumerate(sources.values()))
    image = compile_kernel(KernelSource(next(iter(sources)), together), "sm_90").image
    assert all(re.search(rb"\b%s\b" % name.encode(), image) for name in sources)
