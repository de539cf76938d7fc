from __future__ import annotations

import itertools
from ctypes import c_int, c_longlong

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.library.cudnn import ConvolutionShape
from streamscope.kernels.pooling import planned_pooling
from streamscope.kernels.take import TakenShape, planned_take

X = np.random.default_rng(3).standard_normal((2, 7, 6, 3))
SETTINGS = [(2, None, 0), (3, 2, 1), (2, 3, 0), (3, 1, 2), (1, 2, 0), (6, 1, 0)]


def windows(x, window, stride, padding):
    """Yield each place of the result with the elements of its window, by itself; those outside of the image are left out."""
    stride = stride or window
    rows, columns = ((extent + 2 * padding - window) // stride + 1 for extent in x.shape[1:3])
    for n, p, q, c in itertools.product(range(x.shape[0]), range(rows), range(columns), range(x.shape[3])):
        top, left = p * stride - padding, q * stride - padding
        yield (n, p, q, c), x[n, max(0, top) : top + window, max(0, left) : left + window, c]


@pytest.mark.parametrize(("window", "stride", "padding"), SETTINGS)
def test_each_window_by_hand(evaluate, window, stride, padding):
    largest = evaluate(lambda x: ss.ops.max_pool(x, window, stride=stride, padding=padding), X)
    mean = evaluate(lambda x: ss.ops.avg_pool(x, window, stride=stride, padding=padding), X)
    count = 0
    for place, elements in windows(X, window, stride, padding):
        assert largest[place] == elements.max()
        assert mean[place] == pytest.approx(elements.sum() / window**2, abs=1e-12)
        count += 1
    assert count == largest.size == mean.size


@pytest.mark.parametrize(("window", "stride", "padding"), SETTINGS)
def test_gradients_are_slopes(evaluate, slopes, window, stride, padding):
    x, options = X[:1, :, :, :2], {"stride": stride, "padding": padding}

    def largest(x):
        return ss.ops.max_pool(x, window, **options)

    def mean(x):
        return ss.ops.avg_pool(x, window, **options)

    dy = np.random.default_rng(1).standard_normal(evaluate(mean, x).shape)
    found = evaluate(lambda x, dy: ss.ops.max_pool_backward(x, largest(x), dy, window, **options), x, dy)
    np.testing.assert_allclose(found, slopes(largest, dy, x)[0], atol=1e-8)
    found = evaluate(lambda x, dy: ss.ops.avg_pool_backward(x, dy, window, **options), x, dy)
    np.testing.assert_allclose(found, slopes(mean, dy, x)[0], atol=1e-8)


def test_the_gradient_of_a_window_goes_to_one_element(evaluate):
    x = np.zeros((1, 5, 5, 2))
    x[0, 2, 2] = np.nan
    dy = np.ones((1, 3, 3, 2))
    dx = evaluate(lambda x, dy: ss.ops.max_pool_backward(x, ss.ops.max_pool(x, 3, stride=1), dy, 3, stride=1), x, dy)
    assert dx.sum() == dy.sum()
    np.testing.assert_array_equal(dx[0, 2, 2], [9, 9])  # NaN is the largest of all nine windows
    relu = evaluate(lambda x, dy: ss.ops.max_pool_backward(x, ss.ops.max_pool(x, 2), dy, 2), np.zeros((1, 4, 4, 1)), np.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(relu[0, :, :, 0], np.tile([[1, 0], [0, 0]], (2, 2)))


def test_cost(launches):
    # x and y are moved once; 9 comparisons an element of y; three channels are no vector of doubles, so a thread for each element.
    (launch,) = launches(lambda x: ss.ops.max_pool(x, 3, stride=2, padding=1), X)
    size = 2 * 4 * 3 * 3
    assert (launch.cost.bytes, launch.cost.flops, launch.cost.blocks, launch.cost.stages) == (8 * (X.size + size), 9 * size, 1, 1)
    (backward,) = launches(lambda x, dy: ss.ops.avg_pool_backward(x, dy, 2), X, X[:, :3, :3])
    assert backward.cost.stages == 2


@pytest.mark.parametrize(("images", "index", "number"), [(1, "int", c_int), (2**20, "long long", c_longlong)])
def test_extents_are_passed_as_the_kernel_takes_them(images, index, number):
    shape = ConvolutionShape((images, 32, 32, 8), (8, 2, 2, 8), 2, 0)
    taken = TakenShape(images, 32, 32 * 8, 32, "float32", "int32")
    for kernel in (planned_pooling("max_pool", shape, "float32", aligned=True), planned_take(taken, aligned=True)):
        assert (f"typedef {index} index_t;" in kernel.source.code, kernel.number) == (True, number)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x: ss.ops.max_pool(x, 8), r"max_pool: window 8 does not fit x of shape \(2, 7, 6, 3\) with padding 0"),
        (lambda x: ss.ops.max_pool(x, 2, padding=2), r"max_pool: padding 2 is not smaller than window 2"),
        (lambda x: ss.ops.avg_pool(x, 0), r"avg_pool: window"),
        (lambda x: ss.ops.avg_pool(x, 2, stride=1.5), r"avg_pool: stride"),
        (lambda x: ss.ops.avg_pool(x.astype("int8"), 2), r"avg_pool: dtypes int8 do not fit"),
        (lambda x: ss.ops.avg_pool(x[0], 2), r"avg_pool: x of shape \(7, 6, 3\) has no four axes.*channels last"),
        (lambda x: ss.ops.max_pool_backward(x, x, x, 2), r"dy of shape .* does not fit x of shape .*its shape must be \(2, 3, 3, 3\)"),
        (lambda x: ss.ops.avg_pool_backward(x, x[:, :3, :3].astype("float32"), 2), r"avg_pool_backward: x is float64 and dy is float32"),
        (lambda x: ss.ops.max_pool_backward(x, x, x.astype("float32"), 2), r"max_pool_backward: x is float64 and dy is float32"),
        (lambda x: ss.ops.avg_pool_backward(X, x[:, :3, :3], 2), r"avg_pool_backward: it takes variables, got an ndarray"),
    ],
)
def test_what_does_not_fit(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(X)


def test_no_images(evaluate):
    assert evaluate(lambda x: ss.ops.max_pool(x, 2), np.ones((0, 4, 4, 2))).shape == (0, 2, 2, 2)
