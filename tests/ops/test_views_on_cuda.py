"""Views, products of them and what is joined of them on a real GPU, in every engine, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.engine_entry import ENGINES

pytestmark = pytest.mark.gpu

TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_close(outputs, expected):
    for output, reference in zip(outputs, expected, strict=True):
        assert (output.dtype, output.shape) == (reference.dtype, reference.shape)
        scale = float(np.abs(reference.astype(np.float64)).max(initial=1e-30))
        tolerance = TOLERANCE[output.dtype.name] * scale
        np.testing.assert_allclose(output.astype(np.float64), reference.astype(np.float64), rtol=0, atol=tolerance)


def heads(x):
    return x.reshape(*x.shape[:-1], 4, 16).swapaxes(-2, -3)


PRODUCTS = {
    "a.T @ b": (lambda a, b: a.T @ b, (33, 17), (33, 65)),
    "a @ b.T": (lambda a, b: a @ b.T, (33, 17), (65, 17)),
    "a.T @ b.T": (lambda a, b: a.T @ b.T, (17, 33), (65, 17)),
    "by flags": (lambda a, b: ss.ops.matmul(a, b, transpose_a=True, transpose_b=True), (3, 17, 33), (3, 65, 17)),
    "many times many": (lambda a, b: a @ b, (5, 33, 17), (5, 17, 9)),
    "many times one": (lambda a, b: a @ b, (5, 3, 33, 17), (17, 9)),
    "many times one, turned": (lambda a, b: a @ b.T, (5, 1, 17), (9, 17)),
    "one times many": (lambda a, b: a @ b, (33, 17), (5, 17, 9)),
    "many turned times one": (lambda a, b: a.mT @ b, (5, 17, 33), (17, 9)),
    "broadcast along one axis": (lambda a, b: a @ b, (4, 5, 33, 17), (1, 5, 17, 9)),
    "heads": (lambda a, b: heads(a) @ heads(b).mT, (33, 64), (21, 64)),
    "heads of a batch": (lambda a, b: heads(a) @ heads(b).mT, (2, 33, 64), (2, 21, 64)),
    "parts": (lambda a, b: a[1:20, 3:14] @ b[2:13, ::1], (33, 17), (33, 9)),
    "parts that begin anywhere": (lambda a, b: a[1:, 1:] @ b[1:, 1:], (34, 18), (18, 10)),
    "vector and matrix": (lambda a, b: a @ b, (17,), (17, 9)),
    "matrix and vector": (lambda a, b: a.T @ b[:, 1], (17, 33), (17, 9)),
    "vector and vector": (lambda a, b: a @ b[::-1], (17,), (17,)),
    "a column and a row": (lambda a, b: a[:, :1] @ b[:1], (33, 17), (4, 9)),
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("product", PRODUCTS)
def test_products(both, product, dtype):
    function, a, b = PRODUCTS[product]
    assert_close(*both(function, normal(a, dtype), normal(b, dtype, seed=1)))


def attention(x, wq, wk, wv):
    batch, length, width = x.shape
    q, k, v = ((x @ w).reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
    scores = ss.ops.softmax((q @ k.mT) * 0.25)
    return (scores @ v).transpose(0, 2, 1, 3).reshape(batch, length, width), np.concatenate([x[:, :1], x[:, 1:] * 2], axis=1)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_attention_in_every_engine(both, engine, fuse):
    x, w = normal((3, 37, 64), "float32"), normal((3, 64, 64), "float32", seed=1) / 8
    assert_close(*both(attention, x, *w, engine=engine, fuse=fuse))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_variable_that_is_written_while_views_of_it_are_read(both, engine):
    def program(x, total):
        turned = x.T
        first, second = turned * turned, x[::-1] + turned
        x = ss.ops.multiply(x, 0.5, out=x)
        return x, ss.ops.add(total, first + second * turned, out=total)

    x = normal((257, 257), "float32")
    for output, reference in zip(*both(program, x, np.zeros_like(x), engine=engine), strict=True):
        np.testing.assert_allclose(output, reference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fuse", [False, True])
def test_parts_are_written_in_place(both, engine, fuse):
    def function(x, wide):
        first, before = x[0, 0], x * 2  # numbers are copies
        x[1:] += x[:-1]
        x[:, ::3] *= 0.5
        x.T[5:20] -= first
        x[::-2, 7:] += wide[::-2, 7:]  # in the dtype of x
        x[3, 4] += 1
        block = x[8:40, 16:48]
        block @= block.T * 0.01
        x /= 3
        return x, before, first * 1.0

    x, wide = normal((65, 96), "float32"), normal((65, 96), "float64", seed=1)
    outputs, references = both(function, x, wide, engine=engine, fuse=fuse)
    for output, reference, right in zip(outputs, references, function(x.copy(), wide), strict=True):
        np.testing.assert_allclose(reference, right, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(output, right, rtol=2e-3, atol=2e-3)


def test_libraries_get_what_they_can_read(both):
    image, weights = normal((2, 9, 8, 16), "float16"), normal((8, 3, 3, 16), "float16", seed=1)

    def program(x, w):
        return ss.ops.convolution(x[1:, 1:], w[::2]), ss.ops.convolution(x.swapaxes(1, 2), w)

    assert_close(*both(program, image, weights))


def test_copies_between_host_and_device_begin_where_the_view_does(both):
    @ss.host_function(results=[((4, 5), "float32")])
    def doubled(x):
        return x * 2

    def program(x):
        return ss.ops.to_host(ss.ops.to_device(x[2:])[1:] * 1.0), doubled(x[:5, :4].T)

    for output, reference in zip(*both(program, normal((7, 5), "float32")), strict=True):
        np.testing.assert_array_equal(output, reference)


def test_operators_of_the_users_get_arrays_without_gaps(both):
    @ss.operator(reads=["x"], writes=["out"], reference=lambda x: x * 2)
    def doubled(x, out):
        import cupy

        assert x.flags.c_contiguous
        assert x.data.ptr % 256 == 0
        cupy.multiply(x, 2, out=out)

    for output, reference in zip(*both(lambda x: (doubled(x.T), doubled(x[1:]), doubled(x[0])), normal((5, 7), "float32")), strict=True):
        np.testing.assert_array_equal(output, reference)


def test_memory_of_the_users_takes_the_place_of_a_variable_behind_views(device):
    import cupy

    x = normal((65, 65), "float32")
    prepared = ss.prepare(ss.program(lambda x: x.T + x[::-1]).trace(x), engine="graph", device=device)
    for scale in (1, 2, 3):
        values = cupy.asarray(x * scale)
        prepared.rebind({"x": values})
        for _ in range(2):
            prepared.run()
        prepared.wait()
        np.testing.assert_array_equal(prepared.outputs()[0], x.T * scale + x[::-1] * scale)
