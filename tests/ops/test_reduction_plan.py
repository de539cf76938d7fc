"""How much of an array a thread or a block of a reduction reads, which bounds what it can add or number in 32 bits."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.reducers import MOST_KEYED, is_keyed
from streamscope.kernels.reduce.reduction_kernels import ColumnKernel, RowKernel, ShortKernel, short_capacity
from streamscope.kernels.reduce.reduction_plan import plan_reduction, reduced_shape
from streamscope.ops import reductions
from streamscope.program.variable import ArraySpec

LARGEST_BYTES = 500 * 10**9


@st.composite
def large_reductions(draw):
    """Draw a shape of up to `LARGEST_BYTES` elements, and the axes to reduce."""
    shape = []
    for _ in range(draw(st.integers(1, 4))):
        shape.append(min(LARGEST_BYTES // math.prod(shape), draw(st.integers(1, 99)) << draw(st.integers(0, 33))))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return tuple(shape), tuple(sorted(axes))


def first_kernel(x, axes, reduction=reductions.sum):
    """Return the layout of the kernel that reads an array, and its numbers."""
    result = ArraySpec(reduced_shape(x.shape, axes, keepdims=False), "int64")
    first = plan_reduction.__wrapped__(reduction.reducer, x, result, axes).kernels[0]
    return first.make.args[3], first.numbers


def elements_of_a_thread(kernel, numbers):
    """Return how many elements one thread joins at most of a run; of columns, each is joined apart."""
    if isinstance(kernel, ShortKernel):
        return numbers[2]
    if not isinstance(kernel, RowKernel):
        return math.ceil(numbers[4] / (THREADS // kernel.across))
    along, outer, splits = numbers[1:4]
    run = math.ceil(along / max(1, splits // outer))
    ends = 2 * math.ceil((kernel.width - 1) / kernel.lanes)  # taken element by element
    return math.ceil(run / (kernel.width * kernel.lanes)) * kernel.width + ends


@given(large_reductions())
@example(((2, 2, 2**33), (0, 2)))
@example(((300, 132, 12_000_000), (0, 2)))
def test_a_thread_can_add_its_bytes_in_32_bits(reduction):
    shape, axes = reduction
    kernel, numbers = first_kernel(ArraySpec(shape, "uint8"), axes)
    assert elements_of_a_thread(kernel, numbers) <= 2**24  # each from -128 to 127 in 32 bits, or to 255 without a sign


def rows_of_a_block(kernel, numbers):
    """Return how many rows a block of a columns kernel that compares keys has to number; 0 of other kernels."""
    keyed = isinstance(kernel, ColumnKernel) and is_keyed(reductions.argmax.reducer, "int8", kernel.width)
    return numbers[4] if keyed else 0


@given(large_reductions())
def test_a_block_can_number_its_rows_of_bytes(reduction):
    shape, axes = reduction
    assert rows_of_a_block(*first_kernel(ArraySpec(shape, "int8"), axes, reductions.argmax)) <= MOST_KEYED


@pytest.mark.parametrize("shape", [(2**34, 16), (2**36, 4), (2**24 + 4, 512 * 400)])
def test_a_block_has_no_more_rows_of_bytes_than_keys_number(shape):
    assert MOST_KEYED // 2 < rows_of_a_block(*first_kernel(ArraySpec(shape, "int8"), (0,), reductions.argmax)) <= MOST_KEYED


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((10**6, 49), 1), ((10**7, 3), 1), ((500, 333), 1), ((10**5, 3, 21), 1), ((7, 3), 1)])
def test_short_pieces_fill_blocks_by_whole_vectors(shape, axis, dtype):
    x, result = ArraySpec(shape, dtype), ArraySpec(reduced_shape(shape, (axis,), keepdims=False), "int64")
    (planned,) = plan_reduction(reductions.argmax.reducer, x, result, (axis,)).kernels
    pieces, of_block, *_ = planned.numbers
    elements, width = of_block * math.prod(shape[1:]), 16 // x.dtype.itemsize
    assert elements <= short_capacity(x.dtype.itemsize)
    assert elements % width == 0
    assert pieces == shape[0]
    (vectors,) = map(int, re.findall(r"__shared__ vector<.*> vectors\[(\d+)\]", planned.source.code))
    assert width - 1 + elements <= vectors * width  # wherever in a vector they begin


@pytest.mark.parametrize("shape", [(10**7, 1), (10**6, 64), (1000, 4001), (1000, 500, 3), (10, 3070)])
def test_pieces_that_are_long_or_whole_vectors_are_not_short(shape):
    kernel, _ = first_kernel(ArraySpec(shape, "float32"), (1,))
    assert not isinstance(kernel, ShortKernel)


@pytest.mark.parametrize("shape", [(1, 16, 512, 512), (2, 16, 512, 512), (2, 3, 4096, 4096), (2, 2, 2**25), (500, 2, 2**16)])
def test_few_results_fill_the_gpu(shape):
    axes = (0, *range(2, len(shape)))
    x = ArraySpec(shape, "float32")
    plan = plan_reduction(reductions.sum.reducer, x, ArraySpec(reduced_shape(shape, axes, keepdims=False), "float32"), axes)
    assert 350 < plan.blocks <= 528
