"""Every operator on a real GPU against its NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import DeviceError

pytestmark = pytest.mark.gpu

FLOATS = ["float16", "float32", "float64"]
# One element, what no vector width divides, what all divide, more than a block, and no elements.
SHAPES = [(1,), (3,), (5, 7), (16, 32), (3, 1025), (257, 33, 5), (0,), (0, 4)]
SOFTMAX_TOLERANCE = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-14}
MATMUL_TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}
CONVOLUTION_TOLERANCE = {"float16": 2e-3, "float32": 2e-3, "float64": 1e-12}  # float32 may be computed in TF32


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def with_specials(shape, dtype, seed=0):
    array = normal(shape, dtype, seed)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).max], dtype)
    count = min(array.size, special.size)
    array.reshape(-1)[:count] = special[:count]
    return array


def assert_equal(outputs, expected):
    for output, reference in zip(outputs, expected, strict=True):
        assert output.dtype == reference.dtype
        np.testing.assert_array_equal(output, reference)


def assert_close(outputs, expected, tolerance):
    """Compare within a share of the largest value."""
    for output, reference in zip(outputs, expected, strict=True):
        assert output.dtype == reference.dtype
        scale = float(np.abs(reference.astype(np.float64)).max())
        np.testing.assert_allclose(output.astype(np.float64), reference.astype(np.float64), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise(both, dtype, shape):
    a, b = with_specials(shape, dtype), normal(shape, dtype, seed=1)
    assert_equal(*both(lambda a, b: (ss.ops.add(a, b), ss.ops.multiply(a, b), ss.ops.relu(a), ss.ops.add(a, a)), a, b))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_in_place(both, dtype, shape):
    def function(a, b):
        ss.ops.add(a, b, out=a)
        ss.ops.multiply(a, b, out=b)
        ss.ops.relu(a, out=a)
        return a, b

    assert_equal(*both(function, normal(shape, dtype), normal(shape, dtype, seed=1)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [*SHAPES, (64, 63), (3, 0)])
def test_bias_add(both, dtype, shape):
    assert_equal(*both(ss.ops.bias_add, with_specials(shape, dtype), normal(shape[-1:], dtype, seed=1)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (4, 31), (3, 32), (2, 3, 257), (5, 1000), (70_000, 3), (0, 5)])
def test_softmax(both, dtype, shape):
    (output,), (expected,) = both(ss.ops.softmax, normal(shape, dtype) * np.dtype(dtype).type(4))
    np.testing.assert_allclose(output, expected, atol=SOFTMAX_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [3, 300])
def test_softmax_of_extremes_in_place(both, dtype, columns):
    rows = np.zeros((6, columns), dtype)
    rows[:, 1] = [np.finfo(dtype).max, np.finfo(dtype).min, -np.inf, np.inf, np.nan, 0]
    rows[5] = -np.inf
    (output,), (expected,) = both(lambda x: ss.ops.softmax(x, out=x), rows)
    np.testing.assert_allclose(output, expected, atol=SOFTMAX_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 1, 1), (3, 5, 7), (64, 64, 64), (129, 33, 65), (1, 512, 1), (256, 1024, 128)])
def test_matmul(both, dtype, rows, inner, columns):
    outputs, expected = both(ss.ops.matmul, normal((rows, inner), dtype), normal((inner, columns), dtype, seed=1))
    assert_close(outputs, expected, MATMUL_TOLERANCE[dtype] * max(1, inner**0.5 / 16))


# image, weights, stride, padding
CONVOLUTIONS = [
    ((1, 8, 8, 8), (16, 3, 3, 8), 1, 1),
    ((2, 9, 7, 16), (8, 3, 3, 16), 2, 1),
    ((1, 5, 5, 8), (8, 1, 1, 8), 1, 0),
    ((2, 8, 10, 8), (8, 2, 4, 8), 1, 0),
    ((1, 56, 56, 64), (64, 3, 3, 64), 1, 1),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("image", "weights", "stride", "padding"), CONVOLUTIONS)
def test_convolution_forward_and_backward(both, dtype, image, weights, stride, padding):
    def function(x, w):
        y = ss.ops.convolution(x, w, stride=stride, padding=padding)
        return y, *ss.ops.convolution_backward(x, w, y, stride=stride, padding=padding)

    x, w = normal(image, dtype), normal(weights, dtype, seed=1) * np.dtype(dtype).type(1 / np.prod(weights[1:]) ** 0.5)
    if dtype == "float64":
        with pytest.raises(DeviceError, match="float64"):
            both(function, x, w)
        return
    outputs, expected = both(function, x, w)
    # The gradient is taken of the GPU's own output, which carries its rounding on.
    assert_close(outputs, expected, 2 * CONVOLUTION_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(1,), (1000, 3), (0,)])
def test_copies_and_host_functions(both, dtype, shape):
    reverse = ss.host_function(lambda values: values[::-1])
    x = (normal(shape, "float64") * 10).astype(dtype)
    assert_equal(*both(lambda x: reverse(ss.ops.to_host(ss.ops.to_device(reverse(x)))), x))


def test_an_operator_of_cupy_calls(both):
    @ss.operator(reads=["x", "total"], writes=["total", "scaled"], reference=lambda x, total: (total + x, x * 3))
    def accumulate(x, total, scaled):
        import cupy

        cupy.add(total, x, out=total)
        with ss.auxiliary_stream():
            cupy.multiply(x, 3, out=scaled)

    x = normal(1000, "float32")
    assert_equal(*both(accumulate, x, x + 1))


def test_an_operator_of_a_raw_kernel(both):
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }', "twice")

    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: 2 * x)
    def twice(x, y):
        kernel((1,), (x.size,), (x, y))

    assert_equal(*both(lambda x: ss.ops.relu(twice(x)), normal(100, "float32")))
