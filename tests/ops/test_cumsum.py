from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.cumsum import planned_cumsum
from streamscope.program.reference import run_reference

DTYPES = ["float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool"]


@given(st.data())
def test_cumsum_is_numpys(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(nps.array_shapes(max_dims=3, max_side=5))
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    x = data.draw(nps.arrays(dtype, shape, elements=st.integers(0, 1 if dtype == "bool" else 20)))
    (found,) = run_reference(ss.program(lambda x: np.cumsum(x, axis)).trace(x), [x])
    np.testing.assert_array_equal(found, np.cumsum(x, axis))
    assert found.dtype == np.cumsum(x, axis).dtype


def test_half_is_added_up_in_single_precision(evaluate):
    assert evaluate(ss.ops.cumsum, np.ones(4096, np.float16))[-1] == 4096


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_gradient_is_the_sum_from_the_other_end(evaluate, slopes, axis):
    x = np.random.default_rng(0).standard_normal((3, 4))
    dy = np.random.default_rng(1).standard_normal(np.cumsum(x, axis).shape)
    found = evaluate(lambda dy: ss.ops.cumsum(dy, axis, reverse=True), dy)
    np.testing.assert_allclose(found.reshape(x.shape), slopes(lambda x: ss.ops.cumsum(x, axis), dy, x)[0], atol=1e-8)


def test_long_lines_are_shared_by_blocks_and_many_lines_by_threads():
    assert [kernel.blocks for kernel in planned_cumsum(1, 1000, 1, "float32", "float32", reverse=False)] == [1]
    assert [kernel.blocks for kernel in planned_cumsum(1, 2**24, 1, "float32", "float32", reverse=False)] == [512, 512]
    assert [kernel.blocks for kernel in planned_cumsum(4, 2**20, 8, "float32", "float32", reverse=False)] == [512, 512]
    assert [kernel.blocks for kernel in planned_cumsum(4, 100, 2**14, "float32", "float32", reverse=False)] == [256]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x: ss.ops.cumsum(x, 2), r"cumsum: axis 2 is outside of shape"),
        (lambda x: ss.ops.cumsum(x, (0, 1)), r"cumsum: axis=\(0, 1\) is not one axis"),
        (lambda x: ss.ops.cumsum(x, (0,)), r"cumsum: axis=\(0,\) is not one axis"),
        (lambda x: ss.ops.cumsum(x, reverse=2), r"cumsum: reverse=2 is neither True nor False"),
        (lambda x: np.cumsum(x, dtype=np.float64), r"NumPy's cumsum with dtype="),
    ],
)
def test_what_does_not_fit(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("shape", "axis", "cost"),
    [
        # A tile has 2,048 elements. Of eight that follow each other, half find their sectors of 32 bytes in the cache.
        ((300, 2048), 1, (300, 3, 300 * 2048 * 2 * 16)),
        ((300, 4097), 1, (300, 9, 300 * 4097 * 2 * 16)),
        # Apart, each has a sector of its own, and what is written in part is read before.
        ((2048, 300), 0, (300, 3, 300 * 2048 * 2 * 64)),
        # A thread for each line; neighbours share sectors.
        ((10, 1 << 15), 0, ((1 << 15) // 256, 5, 0)),
    ],
)
def test_cost(launches, shape, axis, cost):
    x = np.zeros(shape, np.float32)
    (launch,) = launches(lambda x: ss.ops.cumsum(x, axis), x)
    assert launch.cost.bytes == 2 * x.nbytes
    assert (launch.cost.blocks, launch.cost.stages, launch.cost.touched_bytes) == cost
