from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.launch import Product
from streamscope.program.reference import run_reference

EXTENT = st.integers(1, 6)


@given(EXTENT, EXTENT, EXTENT, st.sampled_from(["float16", "float32", "float64"]), st.integers(0, 2**32 - 1))
def test_values(rows, inner, columns, dtype, seed):
    random = np.random.default_rng(seed)
    # Whole numbers this small are exact in every dtype.
    a, b = (random.integers(-8, 9, shape).astype(dtype) for shape in ((rows, inner), (inner, columns)))
    (result,) = run_reference(ss.program(ss.ops.matmul).trace(a, b), [a, b])
    expected = [[sum(int(a[i, k]) * int(b[k, j]) for k in range(inner)) for j in range(columns)] for i in range(rows)]
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == dtype


def test_half_accumulates_in_single_precision(evaluate):
    # In half, 2,048 + 1 is 2,048.
    a, b = np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16)
    assert evaluate(ss.ops.matmul, a, b) == 4096


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((2, 3), (2, 3), r"inner extents of \(2, 3\) and \(2, 3\) differ"),
        ((), (3, 2), r"shapes \(\) and \(3, 2\) are not matrices"),
        ((2, 2, 2), (3, 2, 2), r"shapes \(2, 2, 2\) and \(3, 2, 2\) do not broadcast"),
        ((0, 3), (3, 2), "hold no elements"),
        ((2, 0), (0, 2), "hold no elements"),
    ],
)
def test_shapes_that_do_not_fit(evaluate, a, b, said):
    with pytest.raises(ProgramError, match=f"matmul: .*{said}"):
        evaluate(ss.ops.matmul, np.ones(a), np.ones(b))


def test_dtypes_that_do_not_fit(evaluate):
    with pytest.raises(ProgramError, match="matmul: dtypes float32, float16 do not fit"):
        evaluate(ss.ops.matmul, np.ones((2, 2), np.float32), np.ones((2, 2), np.float16))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_cost(launches, dtype):
    (launch,) = launches(ss.ops.matmul, np.ones((100, 30), dtype), np.ones((30, 200), dtype))
    size = np.dtype(dtype).itemsize
    assert launch.cost.bytes == (100 * 30 + 30 * 200 + 100 * 200) * size
    assert launch.cost.flops == 2 * 100 * 30 * 200
    assert launch.cost.blocks == 2 * 4  # tiles of 64 x 64
    assert launch.cost.product == Product("matmul", dtype, 1, 100, 30, 200)


@pytest.mark.parametrize(
    ("a", "b", "product"),
    [
        ((4, 100, 30), (4, 30, 200), (4, 100, 30, 200)),
        ((4, 100, 30), (30, 200), (1, 400, 30, 200)),  # one product of 400 rows
        ((4, 100, 30), (1, 30, 200), (1, 400, 30, 200)),
        ((100, 30), (4, 30, 200), (4, 100, 30, 200)),
        ((30,), (30, 200), (1, 1, 30, 200)),
        ((100, 30), (30,), (1, 100, 30, 1)),
    ],
)
def test_what_is_multiplied(launches, a, b, product):
    (launch,) = [one for one in launches(ss.ops.matmul, np.ones(a, np.float16), np.ones(b, np.float16)) if one.library]
    assert launch.cost.product == Product("matmul", "float16", *product)
    assert launch.library
