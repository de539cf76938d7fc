"""How products of views are put to a library: what it would read and write, by the library's own rules, is the product."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.gemm import LIMIT, gemm
from streamscope.program.reference import run_reference
from streamscope.program.view import whole

EXTENT = st.integers(1, 4)


def steps(array):
    return [step // array.itemsize for step in array.strides]


def multiplied(product, a, b, memory):
    """Return what a library makes of a product: operands at element offsets in flat memory, with what it says of leading dimensions."""

    def matrix(start, shape, stored, number):
        across, along = (1, stored.leading) if stored.transposed else (stored.leading, 1)
        rows, columns = shape
        # The library's own demand on a leading dimension.
        assert stored.leading >= max(1, rows if stored.transposed else columns)
        places = start + number * stored.apart + np.arange(rows)[:, None] * across + np.arange(columns) * along
        return memory[places]

    return np.array(
        [
            matrix(a, (product.rows, product.inner), product.a, number) @ matrix(b, (product.inner, product.columns), product.b, number)
            for number in range(product.count)
        ]
    )


@st.composite
def operands(draw, rows, columns, batch):
    """Return matrices as a view of some memory, in an order of axes and with gaps by chance."""
    shape = (*batch, rows, columns)
    order = draw(st.permutations(range(len(shape))))
    stored = [shape[axis] + draw(st.integers(0, 1)) for axis in order]
    memory = np.arange(np.prod(stored), dtype=np.int64)
    view = memory.reshape(stored)[tuple(slice(shape[axis]) for axis in order)].transpose(np.argsort(order))
    return memory, view


@given(st.data())
def test_a_product_reads_what_the_views_see(data):
    rows, inner, columns = (data.draw(EXTENT) for _ in range(3))
    batch = tuple(data.draw(st.lists(EXTENT, max_size=2)))
    (first, a), (second, b) = (
        data.draw(operands(*extents, data.draw(st.sampled_from([batch, (), (1,) * len(batch)]))))
        for extents in ((rows, inner), (inner, columns))
    )
    product = gemm(a.shape, steps(a), b.shape, steps(b))
    if product is None:
        return
    memory = np.concatenate([first, second])
    np.testing.assert_array_equal(multiplied(product, 0, len(first), memory).reshape(-1), (a @ b).reshape(-1))


X = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
W = np.arange(5 * 6).reshape(5, 6)


@pytest.mark.parametrize(
    ("a", "b", "count", "transposed"),
    [
        (W.T, W, 1, (True, False)),
        (X, W, 1, (False, False)),  # many matrices times one are one product
        (X[0, 0, 0], W, 1, (False, False)),
        (X[0, 0], X[0, 0].T, 1, (False, True)),
        (X, X.swapaxes(-1, -2), 6, (False, True)),
        (X[0].swapaxes(0, 1), X[0].swapaxes(0, 1).swapaxes(1, 2), 4, (False, True)),  # heads beside each other
        (W[::2, 1:3], W[1:3, ::1], 1, (False, False)),
        (W.T, X[0].swapaxes(-1, -2), 3, (True, True)),
    ],
)
def test_what_needs_no_copy(a, b, count, transposed):
    product = gemm(a.shape, steps(a), b.shape, steps(b))
    assert (product.count, (product.a.transposed, product.b.transposed)) == (count, transposed)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (W[:, ::2].T, W[:, ::2]),  # elements of rows and of columns lie apart
        (X.transpose(0, 2, 1, 3), X.transpose(0, 2, 3, 1)),  # two axes count matrices, at no single distance
        (np.broadcast_to(W[0], (4, 6)), W.T),  # a row that repeats
    ],
)
def test_what_needs_one(a, b):
    assert gemm(a.shape, steps(a), b.shape, steps(b)) is None


FAR = 3_000_000_000


@pytest.mark.parametrize(
    ("shape", "strides", "others", "found"),
    [
        ((4, 64), (LIMIT - 1, 1), (64, 2), (1, 4, LIMIT - 1)),
        ((4, 64), (LIMIT, 1), (64, 2), None),
        ((64, 4), (1, FAR), (4, 2), None),
        ((64,), (FAR,), (64, 2), None),
        ((3, 4, 64), (4 * FAR, FAR, 1), (64, 2), None),
        ((4, 1, 64), (LIMIT - 1, 64, 1), (64, 2), (1, 4, LIMIT - 1)),
        ((4, 1, 64), (FAR, 64, 1), (64, 2), (4, 1, 64)),  # the distance of matrices is a long number
        ((3, 2**29, 4), (2**31, 4, 1), (4, 2), (1, 3 * 2**29, 4)),
        ((3, 2**30, 4), (2**32, 4, 1), (4, 2), (3, 2**30, 4)),  # too many rows for one matrix
        ((2**31, 2, 4), (8, 4, 1), (4, 2), None),
    ],
)
def test_numbers_are_those_of_c(shape, strides, others, found):
    product = gemm(shape, strides, others, (others[1], 1))
    assert (product and (product.count, product.rows, product.a.leading)) == found


def test_what_lies_too_far_apart_is_copied():
    table, w = np.broadcast_to(np.float16(0), (4, FAR)), np.ones((64, 2), np.float16)
    program = ss.program(lambda x, w: x[:, :64] @ w).trace(table, w)
    assert [operation.name for operation in program.operations] == ["copy", "matmul"]


@pytest.mark.parametrize(
    ("function", "copies"),
    [
        (lambda x, w: w.T @ w, 0),
        (lambda x, w: x @ w, 0),
        (lambda x, w: x @ x.mT, 0),
        (lambda x, w: x[0].swapaxes(0, 1) @ w, 0),
        (lambda x, w: x[0, 0, 0] @ w, 0),
        (lambda x, w: w.T @ x[0, 0, 0], 0),
        (lambda x, w: w.T[:, 0] @ w[0], 0),
        (lambda x, w: x.transpose(0, 2, 1, 3) @ w, 1),
        (lambda x, w: w[::2, ::2] @ w[:3], 1),
        (lambda x, w: x @ x[:1].mT, 1),  # repeats along the first axis, but not along the second
    ],
)
def test_copies_are_made_for_what_libraries_cannot_read(function, copies):
    x, w = X.astype("float64"), W.astype("float64")
    program = ss.program(function).trace(x, w)
    assert [operation.name for operation in program.operations] == ["copy"] * copies + ["matmul"]
    np.testing.assert_array_equal(run_reference(program, [x, w])[0], function(x, w))


@st.composite
def seen(draw, shape):
    """Return a function of an array that is seen as one of a shape, and the shape that the array needs."""
    order = draw(st.permutations(range(len(shape))))
    stored = [shape[axis] for axis in order]
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in stored]
    gaps = [draw(st.integers(0, 1)) for _ in stored]
    needed = tuple(extent * abs(step) + gap for extent, step, gap in zip(stored, steps, gaps, strict=True))

    def view(x):
        for axis, (extent, step) in enumerate(zip(stored, steps, strict=True)):
            x = x[(slice(None),) * axis + (slice(None, None, step),)]
            x = x[(slice(None),) * axis + (slice(extent),)]
        return x.transpose([order.index(axis) for axis in range(len(shape))])

    return view, needed


@given(st.data())
def test_libraries_get_only_what_they_can_read(data):
    rows, inner, columns = (data.draw(EXTENT) for _ in range(3))
    batch = tuple(data.draw(st.lists(EXTENT, max_size=2)))
    batches = st.sampled_from(
        [batch, (), (1,) * len(batch), batch[1:], tuple(1 if number else extent for number, extent in enumerate(batch))]
    )
    first = data.draw(st.sampled_from([(*data.draw(batches), rows, inner), (inner,)]))
    second = data.draw(st.sampled_from([(*data.draw(batches), inner, columns), (inner,)]))
    (one, a), (other, b) = data.draw(seen(first)), data.draw(seen(second))
    given_arrays = [(np.arange(np.prod(shape)) % 11).astype("float64").reshape(shape) for shape in (a, b)]
    program = ss.program(lambda a, b: one(a) @ other(b)).trace(*given_arrays)
    (launch,) = [launch for launch in program.launches() if launch.name == "matmul"]
    views = [view or whole(program.variables[variable].spec) for variable, view in launch.operands]
    assert gemm(views[0].spec.shape, views[0].strides, views[1].spec.shape, views[1].strides) is not None
    np.testing.assert_array_equal(run_reference(program, given_arrays)[0], one(given_arrays[0]) @ other(given_arrays[1]))


def test_flags_are_views():
    def program(x, w):
        return ss.ops.matmul(w, x, transpose_a=True, transpose_b=True)

    x, w = X.astype("float64"), W.astype("float64")
    traced = ss.program(program).trace(x, w)
    assert "matmul(%1.T:float64[6, 5], %0.mT:float64[2, 3, 5, 4])" in str(traced)
    np.testing.assert_array_equal(run_reference(traced, [x, w])[0], w.T @ x.mT)
    with pytest.raises(ProgramError, match=r"matmul: transpose_a for shape \(5,\), which is not a matrix"):
        ss.program(lambda x, w: ss.ops.matmul(x[0, 0, 0], w, transpose_a=True)).trace(x, w)
