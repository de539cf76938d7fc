"""Joining and stacking inside a program: shapes, dtypes, values and errors are NumPy's, and one kernel does it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.joining import MOST_PARTS
from streamscope.program.reference import run_reference

X = np.arange(12, dtype=np.float32).reshape(3, 4)
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]


@given(st.data())
def test_joining_is_numpys(data):
    shape = data.draw(nps.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    extents = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    arrays = []
    for number, extent in enumerate(extents):
        own = list(shape)
        own[axis] = extent
        arrays.append((np.arange(np.prod(own)) + number).astype(data.draw(st.sampled_from(DTYPES))).reshape(own))
    for along in (axis, None):
        expected = np.concatenate(arrays, along)
        (found,) = run_reference(ss.program(lambda *each, along=along: np.concatenate(each, along)).trace(*arrays), arrays)
        np.testing.assert_array_equal(found, expected, strict=True)
    stacked = [arrays[0].astype(dtype) for dtype in data.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3))]
    place = data.draw(st.integers(-len(shape) - 1, len(shape)))
    (found,) = run_reference(ss.program(lambda *each: np.stack(each, place)).trace(*stacked), stacked)
    np.testing.assert_array_equal(found, np.stack(stacked, place), strict=True)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: ss.ops.concatenate([x, x]), ["concatenate"]),
        (lambda x: ss.ops.concatenate([x[:, 2:], x[:, :2]], axis=1), ["concatenate"]),  # parts of rows are read as they lie
        (lambda x: ss.ops.stack([x, x]), ["concatenate"]),
        (lambda x: ss.ops.stack(ss.ops.split(x, 2, axis=1), axis=1), ["concatenate"]),
        (lambda x: ss.ops.concatenate([x.T, x.T]), ["copy", "concatenate"]),  # one copy for both
        (lambda x: ss.ops.concatenate([x, x.astype("float64")]), ["astype", "astype", "concatenate"]),
        (lambda x: ss.ops.concatenate([x[0]] * (MOST_PARTS + 1)), ["concatenate"] * 3),
        (lambda x: ss.ops.concatenate([x[:0], x[3:]]), []),  # nothing is written
    ],
)
def test_one_kernel_does_it(function, names):
    program = ss.program(lambda x: function(x)).trace(X)  # noqa: PLW0108 — a name for each operation
    assert [launch.name for launch in program.launches()] == names


def test_joining_goes_where_it_is_told():
    def program(x, y):
        return np.concatenate([x, x], axis=1, out=y)

    y = np.zeros((3, 8), np.float32)
    np.testing.assert_array_equal(run_reference(ss.program(program).trace(X, y), [X, y])[0], np.concatenate([X, X], 1))


def test_a_cost_counts_what_is_moved():
    (launch,) = ss.program(lambda x: ss.ops.concatenate([x, x[:1]])).trace(X).launches()
    assert launch.cost.bytes == 2 * (X.nbytes + X[:1].nbytes)
    assert launch.cost.flops == 0


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (
            lambda x: ss.ops.concatenate([x, x[:, 1:]]),
            r"shapes \(3, 4\) and \(3, 3\) do not fit along axis 0.*\(but for the axis",
        ),
        (lambda x: ss.ops.concatenate([x, x[0]]), r"shapes \(3, 4\) and \(4,\) differ in the number of axes"),
        (lambda x: ss.ops.concatenate([x], axis=2), r"concatenate: axis 2 is outside of shape \(3, 4\)"),
        (lambda x: ss.ops.concatenate([x], axis=(0, 1)), r"axis=\(0, 1\) is not one axis"),
        (lambda x: ss.ops.stack([x], axis=None), r"stack: axis=None is not one axis"),
        (lambda x: ss.ops.concatenate([]) + x, "concatenate: there is nothing to join"),
        (ss.ops.concatenate, r"concatenate: it takes a list of variables.*\(give a list: \[a, b\]\)"),
        (lambda x: ss.ops.concatenate([x[0, 0]]), r"without axes cannot be joined at test_joining\.py:\d+ \(use ss\.ops\.stack\)"),
        (lambda x: ss.ops.stack([x, x.T]), r"stack: shapes \(3, 4\) and \(4, 3\) differ"),
        (lambda x: ss.ops.stack([x], axis=3), r"stack: axis 3 is outside of shape \(3, 4, 1\)"),
        (lambda x: ss.ops.concatenate([x, X]), "concatenate: it takes variables, got an ndarray"),
        (lambda x: np.concatenate([x, x], dtype="float64"), r"NumPy's concatenate with dtype= at"),
        (lambda x: ss.ops.concatenate([x, x], out=x), r"out= of concatenate at .* is float32\[3, 4\], but the result is float32\[6, 4\]"),
    ],
)
def test_what_does_not_fit_is_said(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(X)
